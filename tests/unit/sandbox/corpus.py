"""Hostile programs. Each tries one thing, and sets ``out["did"]`` to something true if it succeeds.

`RAW` are what runs in a sandboxed process if lint and namespace are fooled. `GENERATED` are bodies of rewards, judges and
policies that run in the namespace of generated code, without the lint. `FATAL` break their own process. `HOARDS` keep more
memory or files than they may. The secret stands in the environment of the parent, in its memory and in a file.
"""

SECRET = "top-secret"

DESCRIPTORS = {
    # The first of all, because others leave descriptors of their own.
    "finds descriptors of its parent": """
import os
own = {0, 1, 2, channel._read_fd, channel._write_fd}
out['did'] = [fd for fd in range(1024) if fd not in own and os.path.exists(f'/proc/self/fd/{fd}')]
""",
}
FILES = {
    "reads the password file": "out['did'] = open('/etc/passwd').read()",
    "reads the parent's environment": "import os; out['did'] = open(f'/proc/{os.getppid()}/environ').read()",
    "reads the first process' environment": "out['did'] = open('/proc/1/environ').read()",
    "reads the parent's memory": "import os; out['did'] = open(f'/proc/{os.getppid()}/mem', 'rb')",
    "writes its own memory by proc": "import os; out['did'] = open(f'/proc/{os.getppid()}/mem', 'r+b')",
    "reads through its own root link": "out['did'] = open('/proc/self/root/etc/passwd').read()",
    "reads through its parent's folder": "import os; out['did'] = os.listdir(f'/proc/{os.getppid()}/cwd')",
    "reads through its parent's descriptors": "import os; out['did'] = os.listdir(f'/proc/{os.getppid()}/fd')",
    "reads the secret's file": "out['did'] = open(request['secret_file']).read()",
    "lists the home folder": "import os; out['did'] = os.listdir('/root' if os.path.exists('/root') else '/home')",
    "lists the temporary folder": "import os; out['did'] = os.listdir('/tmp')",
    "climbs out of its folder": "out['did'] = open('../' * 20 + 'etc/passwd').read()",
    "writes outside its folder": "out['did'] = open('/tmp/sandbox-escape', 'w')",
    "writes next to its folder": "import os; out['did'] = open(os.path.dirname(os.getcwd()) + '/neighbour', 'w')",
    "writes into its packages": "import dressage; out['did'] = open(dressage.__path__[0] + '/escape.py', 'w')",
    "removes a folder of its packages": "import os, dressage; os.rmdir(dressage.__path__[0] + '/sandbox'); out['did'] = 1",
    "truncates a file of its packages": "import os, dressage; os.truncate(dressage.__file__, 0); out['did'] = 1",
    "renames a file of its packages": "import os, dressage; os.rename(dressage.__file__, 'mine.py'); out['did'] = 1",
    "leaves a link for its parent": "import os; os.symlink('/etc/passwd', 'link'); out['did'] = 1",
    "links a file from outside": "import os; os.link('/etc/passwd', 'link'); out['did'] = 1",
    "leaves a pipe for its parent": "import os; os.mkfifo('pipe'); out['did'] = 1",
    "makes a device": "import os, stat; os.mknod('zero', stat.S_IFCHR | 0o666, os.makedev(1, 5)); out['did'] = 1",
    "reads the kernel's messages": "out['did'] = open('/dev/kmsg').read(10)",
    "changes modes": "import os; os.chmod('/tmp', os.stat('/tmp').st_mode); out['did'] = 1",
    "changes owners": "import os; os.chown('.', 0, 0); out['did'] = 1",
    "sets an extended attribute": "import os; os.setxattr('.', 'user.x', b'1'); out['did'] = 1",
    "moves its root": "import os; os.chroot('.'); out['did'] = 1",
}
NETWORK = {
    "opens a TCP socket": "import socket; out['did'] = socket.socket()",
    "opens a UDP socket": "import socket; out['did'] = socket.socket(type=socket.SOCK_DGRAM)",
    "opens a raw socket": "import socket; out['did'] = socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "opens a netlink socket": "import socket; out['did'] = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
    "opens a Unix socket": "import socket; out['did'] = socket.socket(socket.AF_UNIX)",
    "opens a packet socket": "import socket; out['did'] = socket.socket(17, socket.SOCK_RAW, 0)",
    "makes a socket pair": "import socket; out['did'] = socket.socketpair()",
    "resolves a name": "import socket; out['did'] = socket.getaddrinfo('example.org', 80)",
    "starts an event loop": "import asyncio; asyncio.run(asyncio.sleep(0)); out['did'] = 1",
}
PROCESSES = {
    "forks": "import os; out['did'] = os.fork() or 1",
    "forks a terminal": "import pty; out['did'] = pty.fork()",
    "starts a program": "import subprocess; out['did'] = subprocess.run(['/bin/true'])",
    "spawns a program": "import os; out['did'] = os.posix_spawn('/bin/true', ['true'], {})",
    "starts a worker": "import multiprocessing as m; p = m.Process(target=int); p.start(); out['did'] = 1",
    "becomes a program": "import os; os.execv('/bin/true', ['true'])",
    "leaves its session": "import os; os.setsid(); out['did'] = 1",
    "leaves its group": "import os; os.setpgid(0, os.getppid()); out['did'] = 1",
    "becomes root": "import os; os.setresuid(0, 0, 0) if os.getuid() else os.setresuid(1, 1, 1); out['did'] = 1",
    "joins a group": "import os; os.setgroups([0]); out['did'] = 1",
    "raises its priority": "import os; os.setpriority(os.PRIO_PROCESS, os.getppid(), -5); out['did'] = 1",
    "becomes a real-time process": "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)); out['did'] = 1",
    "takes all processors": "import os; os.sched_setaffinity(0, range(os.cpu_count())); out['did'] = 1",
    "slows its parent's processors": "import os; os.sched_setaffinity(os.getppid(), [0]); out['did'] = 1",
    "changes its parent's limits": "import os, resource as r; r.prlimit(os.getppid(), r.RLIMIT_NOFILE, (9, 9)); out['did'] = 1",
    "raises its own limits": "import resource as r; r.setrlimit(r.RLIMIT_DATA, (-1, -1)); out['did'] = 1",
    "signals its parent": "import os; os.kill(os.getppid(), 0); out['did'] = 1",
    "signals everybody": "import os; os.kill(-1, 0); out['did'] = 1",
    "signals its group": "import os; os.killpg(0, 0); out['did'] = 1",
    "signals its parent by a descriptor": "import os, signal; out['did'] = os.pidfd_open(os.getppid())",
}
MEMORY = {
    "keeps memory in a memfd": "import os; out['did'] = os.memfd_create('hidden')",
    "makes shared memory": "from multiprocessing import shared_memory as s; out['did'] = s.SharedMemory(create=True, size=9)",
    "writes shared memory by its file": "out['did'] = open('/dev/shm/hidden', 'w')",
    "makes a semaphore": "import multiprocessing as m; out['did'] = m.Semaphore(1)",
    "finds the secret in its environment": "import os; out['did'] = request['secret_name'] in os.environ",
    "finds the secret in what it inherited": """
import gc
seen = [o for o in gc.get_objects() if isinstance(o, dict)]
out['did'] = any(isinstance(v, str) and v == 'top-' + 'secret' for d in seen for v in list(d.values()) if d is not request)
""",
    "asks for twenty gigabytes": "out['did'] = len(bytearray(20 << 30))",
    "asks for twenty gigabytes of numbers": "import numpy as np; out['did'] = np.ones((20, 1 << 27)).sum()",
    "writes a file without end": "open('big', 'wb').write(bytes(300 << 20)); out['did'] = 1",
}
CLOCKS = {
    "sets the clock": "import time; time.clock_settime(time.CLOCK_REALTIME, 0); out['did'] = 1",
}
_OPEN = "import ctypes, dressage, fcntl, os; libc = ctypes.CDLL(None); fd = os.open(dressage.__path__[0] + '/py.typed', 0); "
NEIGHBOURS = {
    "takes a lease on a file of its packages": _OPEN
    + "fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK); out['did'] = 1",
    "stops who writes its packages by a lease": _OPEN
    + "fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK); out['did'] = 1",
    "locks a file of its packages": _OPEN + "fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB); out['did'] = 1",
    "locks a part of a file of its packages": _OPEN
    + "fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 1); out['did'] = 1",
    "locks an open file of its packages": _OPEN + "fcntl.fcntl(fd, 37, bytes(32)); out['did'] = 1",
    "watches its packages": _OPEN + "out['did'] = libc.inotify_init1(0) >= 0",
    "asks for notice of accesses": "import fcntl, os; fcntl.fcntl(os.open('.', 0), fcntl.F_NOTIFY, 1); out['did'] = 1",
    "sets flags of a file of its packages": _OPEN + "fcntl.ioctl(fd, 0x40086602, bytes(8)); out['did'] = 1",
    "sets the project of a file of its packages": _OPEN + "fcntl.ioctl(fd, 0x401C5820, bytes(28)); out['did'] = 1",
    "evicts its packages from memory": _OPEN + "out['did'] = libc.posix_fadvise(fd, 0, 0, 4) == 0",
    "pages its packages out": """
import ctypes, mmap, numpy
with open(numpy.__file__, "rb") as file:
    pages = mmap.mmap(file.fileno(), 4096, access=mmap.ACCESS_READ)
pages.madvise(21)
out['did'] = 1
""",
    "shares pages with its neighbours": "import mmap; mmap.mmap(-1, 1 << 16, mmap.MAP_PRIVATE).madvise(12); out['did'] = 1",
    "writes the disks' caches": _OPEN + "out['did'] = libc.syncfs(fd) == 0",
    "takes its user's room for pipes": "import fcntl, os; out['did'] = fcntl.fcntl(os.pipe()[1], 1031, 1 << 20) > 1 << 16",
    "takes its user's timers": """
import ctypes
libc, timer = ctypes.CDLL(None), ctypes.c_void_p()
out['did'] = all(libc.timer_create(0, None, ctypes.byref(timer)) == 0 for _ in range(2000))
""",
}
KERNEL = {
    "hides its descriptors from its parent": "import ctypes; out['did'] = ctypes.CDLL(None).prctl(4, 0) == 0",
    "makes descriptors of its own": "import ctypes; out['did'] = ctypes.CDLL(None).syscall(436, 1000, 1000, 2) == 0",
    "maps shared memory": "import mmap; out['did'] = len(mmap.mmap(-1, 4096))",
    "maps shared zeros": "import os; out['did'] = os.open('/dev/zero', os.O_RDONLY)",
    "maps huge pages": "import mmap; out['did'] = len(mmap.mmap(-1, 1 << 21, mmap.MAP_PRIVATE | 0x40000))",
    "allocates beyond the end of a file": """
import ctypes, os
size = ctypes.c_long(2 << 20)
out['did'] = ctypes.CDLL(None).fallocate(os.open('beyond', os.O_RDWR | os.O_CREAT), 1, ctypes.c_long(0), size) == 0
""",
    "keeps pages in a pipe": """
import ctypes, os
page = ctypes.create_string_buffer(4096)
part = (ctypes.c_size_t * 2)(ctypes.addressof(page), 4096)
out['did'] = ctypes.CDLL(None).vmsplice(os.pipe()[1], part, 1, 0) > 0
""",
    "keeps files in a pipe": "import os; out['did'] = os.sendfile(os.pipe()[1], os.open(os.__file__, 0), 0, 4096)",
    "keeps rules in the kernel": """
import ctypes
rights = (ctypes.c_uint64 * 1)(1)
out['did'] = ctypes.CDLL(None).syscall(444, rights, ctypes.c_size_t(8), 0) >= 0
""",
    "keeps filters in the kernel": """
import ctypes
allow = ctypes.c_uint64(0x7FFF000000000006)
program = (ctypes.c_uint64 * 2)(1, ctypes.addressof(allow))
out['did'] = ctypes.CDLL(None).prctl(22, 2, program) == 0
""",
}
RAW = {**DESCRIPTORS, **FILES, **NETWORK, **PROCESSES, **MEMORY, **CLOCKS, **NEIGHBOURS, **KERNEL}

CALLS = [
    "ptrace",
    "unshare",
    "mount",
    "umount2",
    "pivot_root",
    "setns",
    "bpf",
    "keyctl",
    "add_key",
    "userfaultfd",
    "perf_event_open",
    "process_vm_readv",
    "process_vm_writev",
    "io_uring_setup",
    "clone3",
    "shmget",
    "msgget",
    "semget",
    "open_by_handle_at",
    "name_to_handle_at",
    "fanotify_init",
    "kcmp",
    "init_module",
    "kexec_load",
    "reboot",
    "swapon",
    "settimeofday",
    "clock_settime",
    "adjtimex",
    "acct",
    "quotactl",
    "sethostname",
    "iopl",
    "pidfd_getfd",
    "memfd_secret",
    "seccomp",
    "personality",
    "vhangup",
    "syslog",
    "rt_sigqueueinfo",
    "tkill",
    "mknod",
    "chroot",
]
"""System calls that must fail for any arguments."""

_SUBCLASSES = "().__class__.__base__.__subclasses__()"
_WRAP = f"[c for c in {_SUBCLASSES} if c.__name__ == '_wrap_close'][0].__init__.__globals__"

GENERATED = {
    "reward imports by statement": "import os\nreturn os.listdir('/tmp')",
    "reward imports by builtins": "return __builtins__['__import__']('os').listdir('/tmp')",
    "reward finds os by subclasses": f"return {_WRAP}['listdir']('/tmp')",
    "reward opens by subclasses": f"return {_WRAP}['open']('/etc/passwd', 0)",
    "reward forks by subclasses": f"return {_WRAP}['fork']() or 1",
    "reward uses eval": "return eval('1')",
    "reward uses open": "return open('/etc/passwd').read()",
    "reward finds builtins of a module": "return math.__loader__.load_module('posix').listdir('/tmp')",
    "reward reads by numpy": "return np.fromfile('/etc/passwd', dtype='u1').size",
    "reward maps a file by numpy": "return np.memmap('/etc/passwd', dtype='u1', mode='r').size",
    "reward writes by numpy": "np.save('/tmp/sandbox-escape.npy', np.ones(1))\nreturn 1",
    "reward loads a pickle by numpy": """
data = b"\\x80\\x04cposix\\nlistdir\\n(X\\x04\\x00\\x00\\x00/tmptR."
return __builtins__['__import__']('pickle').loads(data)
""",
    "reward finds ctypes in numpy": "return np.ctypeslib.ctypes.CDLL(None).fork() >= 0",
    "reward reads memory by numpy": "return np.ctypeslib.ctypes.string_at(0x400000, 8) if 0 else open('/proc/1/maps').read()",
    "reward finds sys in numpy": "return np.sys.modules['os'].listdir('/tmp')",
    "reward climbs its frames": """
try:
    raise ValueError
except ValueError as error:
    frame = error.__traceback__.tb_frame
while frame.f_back is not None:
    frame = frame.f_back
return frame.f_globals['__builtins__'].open('/etc/passwd').read() if not isinstance(
    frame.f_globals['__builtins__'], dict) else frame.f_globals['__builtins__']['open']('/etc/passwd').read()
""",
    "reward climbs a generator's frame": """
g = (g.gi_frame.f_back.f_back for _ in [1])
frame = [*g][0]
return frame.f_builtins['open']('/etc/passwd').read()
""",
    "judge formats attributes": "return '{0.__class__.__init__.__globals__}'.format(math) and open('/etc/passwd').read()",
    "judge compiles code": f"return {_WRAP}['__builtins__']['compile']('1', '', 'eval') and open('/tmp/x', 'w')",
    "judge changes the checker": """
import sys
for name, module in list(sys.modules.items()):
    if name.startswith('dressage.contracts'):
        for field in list(vars(module)):
            if field.startswith('check'):
                setattr(module, field, lambda *a, **k: True)
return open('/etc/passwd').read()
""",
    "judge reads the channel": "import gc\nreturn [o for o in gc.get_objects() if 'top-' + 'secret' == o]",
    "judge hides an import in a class": "class A:\n    import socket\nreturn A.socket.socket()",
    "judge imports in a decorator": "f = (lambda f: __builtins__['__import__']('socket').socket())(1)\nreturn f",
    "policy overloads an operator": "class A:\n    def __del__(self): open('/tmp/x', 'w')\nA()\nreturn open('/tmp/x', 'w')",
    "policy starts a thread that forks": """
import threading, os
seen = []
def work():
    try:
        seen.append(os.fork() or 1)
    except OSError:
        pass
thread = threading.Thread(target=work)
thread.start(); thread.join()
return seen
""",
    "policy changes numpy for others": "np.sum = lambda *a, **k: 7\nreturn open('/etc/passwd').read()",
    "policy reads by linecache": "import linecache\nreturn linecache.getlines('/etc/passwd')",
    "policy imports a file that it wrote": """
open('evil.py', 'w').write('import socket; s = socket.socket()')
import evil
return evil.s
""",
    "policy unpickles itself": "import pickle\nreturn pickle.loads(b'cposix\\nsystem\\n(S\"true\"\\ntR.') == 0",
    "policy installs a hook": "import sys, os\nsys.settrace(lambda *a: None)\nreturn os.kill(os.getppid(), 0) is None",
}

FATAL = {
    "exits": "import os; os._exit(0)",
    "raises SystemExit": "raise SystemExit(0)",
    "aborts": "import os; os.abort()",
    "follows a null pointer": "import ctypes; ctypes.string_at(0)",
    "kills itself": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "never returns": "while True: pass",
    "holds the interpreter's lock": "sum(range(10**15))",
    "ignores signals and never returns": "import signal\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
    "recurses in C": "import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6): x = [x]\nrepr(x)",
    "writes nonsense into the pipe": "import os; os.write(channel._write_fd, b'not a message at all' * 9)\nwhile True: pass",
    "closes the pipe": "import os; os.close(channel._write_fd)\nwhile True: pass",
    "eats memory by and by": "x = []\nwhile True: x.append(bytearray(b'x') * (1 << 20))",
}

HOARDS = {
    "keeps pages in shared memory": """
import ctypes, mmap, time
maps = []
for _ in range(12):
    maps.append(mmap.mmap(-1, 64 << 20))
    ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(maps[-1])), 1, 64 << 20)
    maps[-1].madvise(mmap.MADV_DONTNEED)
time.sleep(0.5)
out['did'] = 'keeps 768 MiB'
""",
    "keeps pages of shared zeros": """
import mmap, os, time
zero = os.open('/dev/zero', os.O_RDONLY)
maps = []
for _ in range(12):
    maps.append(mmap.mmap(zero, 64 << 20, prot=mmap.PROT_READ))
    maps[-1].madvise(22)  # MADV_POPULATE_READ
    maps[-1].madvise(mmap.MADV_DONTNEED)
time.sleep(0.5)
out['did'] = 'keeps 768 MiB'
""",
    "keeps page tables": """
import mmap, time
pages = mmap.mmap(-1, 400 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, mmap.PROT_READ)
pages.madvise(mmap.MADV_NOHUGEPAGE)
for at in range(0, 400 << 30, 2 << 20):
    pages[at]
time.sleep(0.5)
out['did'] = 'keeps 800 MiB'
""",
    "keeps removed files open": """
import os, time
files = []
for number in range(40):
    files.append(os.open('file', os.O_RDWR | os.O_CREAT))
    os.posix_fallocate(files[-1], 0, 16 << 20)
    os.unlink('file')
time.sleep(3)
out['did'] = 'keeps 640 MiB'
""",
    "keeps removed files mapped": """
import ctypes, os, time
call = ctypes.CDLL(None).mmap  # that of Python keeps a descriptor
call.restype, call.argtypes = ctypes.c_size_t, [ctypes.c_size_t] * 2 + [ctypes.c_int] * 3 + [ctypes.c_long]
for number in range(40):
    with open('file', 'w+b') as file:
        os.posix_fallocate(file.fileno(), 0, 16 << 20)
        assert call(0, 4096, 3, 1, file.fileno(), 0) % 4096 == 0
    os.unlink('file')
time.sleep(3)
out['did'] = 'keeps 640 MiB'
""",
}

REWARD = """
LATEX = r"v_x"
TERMS = {"speed": "forward velocity, m/s", "effort": "squared torque"}

def reward(state, action, next_state, memory, np):
    return {"speed": np.tanh(next_state.x_velocity), "effort": -0.1 * np.square(action).sum(-1)}
"""
JUDGE = """
def judge(trajectory, np):
    score = float(np.clip(np.mean(trajectory.x_velocity) / 4.0, 0.0, 1.0))
    return {"score": score, "criteria": {"speed": score}, "evidence": {"mean speed, m/s": score}}
"""
"""A reward and a judge of neighbours, which mean no harm."""
