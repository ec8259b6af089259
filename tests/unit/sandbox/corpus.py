"""Hostile programs. Each tries one thing, and sets ``out["did"]`` to something true if it succeeds.

`RAW` are what runs in a sandboxed process if lint and namespace are fooled. `GENERATED` are bodies of rewards, judges and
policies that run in the namespace of generated code, without the lint. `FATAL` break their own process. The secret stands
in the environment of the parent, in its memory and in a file.
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
RAW = {**DESCRIPTORS, **FILES, **NETWORK, **PROCESSES, **MEMORY, **CLOCKS}

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
