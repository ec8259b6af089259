"""Hostile scratch folders: they end their process, are measured and removed, and harm no one else."""

import ctypes
import mmap
import os
import textwrap
import time

import pytest
from dressage.sandbox import Limits, SandboxProcess, process
from dressage.sandbox.capabilities import capabilities
from dressage.sandbox.limits import GIB, MIB
from dressage.sandbox.machine import Machine, memory_bytes
from dressage.sandbox.scratch import disk_usage, remove_scratch, removed_size, scratch_folder, scratch_size

LIMIT = 100 * MIB
needs_sandbox = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")


def nested(folder, depth):
    """Make folders nested deeper than a path may be long."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 10, dir_fd=here)
        inner = os.open("d" * 10, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def test_a_deep_folder_is_measured_and_removed(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    nested(folder, 600)
    (folder / "file").write_text("x")
    (folder / "link").symlink_to(tmp_path)
    assert scratch_size(folder, LIMIT) > LIMIT
    remove_scratch(folder)
    assert not folder.exists() and tmp_path.exists()


def test_odd_folders_and_names_are_removed(tmp_path):
    with scratch_folder(tmp_path, prefix="x-") as folder:
        (folder / "closed" / "inner").mkdir(parents=True)
        (folder / "closed").chmod(0)
        os.mkdir(os.fsencode(folder) + b"/\xff\xfe")
        os.mkfifo(folder / "pipe")
        (folder / "full").mkdir()
        for number in range(100):
            (folder / "full" / str(number)).touch()
        (folder / "dangling").symlink_to("nowhere")
    assert not folder.exists()
    remove_scratch(folder)  # which is gone


def test_a_folder_that_cannot_be_read_exceeds_every_limit(tmp_path, monkeypatch):
    def refused(path):
        raise PermissionError(13, "no")

    monkeypatch.setattr(os, "scandir", refused)
    assert scratch_size(tmp_path, LIMIT) > LIMIT


def test_a_sparse_file_counts_with_its_length(tmp_path):
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", GIB)
    assert scratch_size(tmp_path, 2 * GIB) == GIB


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="no /proc")


def map_page(file):
    """Map a page of a file; `mmap.mmap` would keep a descriptor."""
    call = ctypes.CDLL(None).mmap
    call.restype, call.argtypes = ctypes.c_size_t, [ctypes.c_size_t] * 2 + [ctypes.c_int] * 3 + [ctypes.c_long]
    return call(0, 4096, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)


@needs_proc
def test_removed_files_count_while_they_are_used(tmp_path):
    limits, me = Limits(scratch_bytes=LIMIT, file_bytes=50 * MIB), os.getpid()
    folder = tmp_path / "scratch"
    folder.mkdir()
    for name in ("open", "mapped", "both"):
        (folder / name).write_bytes(bytes(MIB))
    with open(folder / "open", "rb"), open(folder / "both", "rb") as both:
        with open(folder / "mapped", "rb") as mapped:
            pages = [map_page(file) for file in (mapped, mapped, both)]
        assert removed_size(me, folder, limits) == 0 and disk_usage(me, folder, limits) == 3 * MIB
        for name in ("open", "both"):
            (folder / name).unlink()
        assert removed_size(me, folder, limits) == 2 * MIB and disk_usage(me, folder, limits) == 3 * MIB
        (folder / "mapped").unlink()
        # An ordinary user does not see the size of a file that is mapped only.
        assert removed_size(me, folder, limits) in (3 * MIB, 2 * MIB + limits.file_bytes)
        assert removed_size(me, tmp_path / "other", limits) == 0, "others, as of packages, do not count"
    for address in pages:
        ctypes.CDLL(None).munmap(ctypes.c_void_p(address), ctypes.c_size_t(4096))
    assert removed_size(me, folder, limits) == 0


def test_a_process_that_is_gone_has_no_removed_files(tmp_path):
    assert removed_size(2**30, tmp_path, Limits()) == 0


@needs_proc
def test_more_mappings_than_are_read_exceed_every_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("dressage.sandbox.scratch._MAX_MAPS_BYTES", 1000)
    assert removed_size(os.getpid(), tmp_path, Limits(scratch_bytes=LIMIT)) > LIMIT


HOSTILE = {
    "deep": """
        import os
        for _ in range(100):
            os.mkdir("d" * 100)
            os.chdir("d" * 100)
        """,
    "closed": """
        import os
        for number in range(70):
            os.mkdir("d", 0o700); os.chdir("d")
        os.mkdir("closed", 0)
        """,
    "sparse": """
        with open("sparse", "wb") as file:
            file.truncate(150 << 20)
        """,
}


@needs_sandbox
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_folder_ends_its_process(tmp_path, name, monkeypatch):
    monkeypatch.setattr(process, "_SCRATCH_POLL_SECONDS", 0.1)
    source = textwrap.dedent(HOSTILE[name]) + "\nimport time; time.sleep(60)\n"
    with scratch_folder(tmp_path) as folder:
        limits = Limits(wall_seconds=60, scratch_bytes=LIMIT)
        with SandboxProcess.start("sandbox_targets:run_source", limits=limits, scratch=folder) as child:
            child.channel.send({"source": source})
            ended = child.wait(40)
        assert ended is not None and ended.kind == "killed" and ended.bound and "scratch" in ended.reason
    assert not folder.exists()


@needs_sandbox
def test_a_fault_of_the_watcher_ends_the_process(tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("a defect")

    monkeypatch.setattr(process, "usage_of", broken)
    with SandboxProcess.start("sandbox_targets:sleep", limits=Limits(wall_seconds=60), scratch=tmp_path) as child:
        begun = time.monotonic()
        ended = child.wait(30)
    assert ended is not None and "a defect" in ended.reason and time.monotonic() - begun < 20


# -- the machine


def control_groups(tmp_path, lines, **files):
    root = tmp_path
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text("MemTotal:       16777216 kB\nMemFree: 1 kB\n")
    (root / "proc/self/cgroup").write_text(lines)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_memory_is_that_of_the_control_group(tmp_path):
    two = control_groups(
        tmp_path / "2", "0::/pods/a\n", pods__a__memory_dot_max="max\n", pods__memory_dot_max=f"{4 * GIB}\n"
    )
    assert memory_bytes(two) == 4 * GIB
    pod = control_groups(tmp_path / "pod", "0::/\n", memory_dot_max=f"{2 * GIB}\n")
    assert memory_bytes(pod) == 2 * GIB
    one = control_groups(
        tmp_path / "1", "4:memory:/host/only\n1:cpu:/\n", memory__memory_dot_limit_in_bytes=f"{3 * GIB}\n"
    )
    assert memory_bytes(one) == 3 * GIB
    assert memory_bytes(control_groups(tmp_path / "none", "0::/\n", memory_dot_max="max\n")) == 16 * GIB
    assert memory_bytes(tmp_path / "nothing") is None


def test_limits_leave_room_for_the_parent():
    limits = Limits(memory_bytes=8 * GIB, scratch_bytes=8 * GIB, file_bytes=2 * GIB)
    pod = Machine(memory_bytes=4 * GIB, scratch_bytes=3 * GIB).fit(limits)
    assert (pod.memory_bytes, pod.scratch_bytes, pod.file_bytes) == (3 * GIB, 3 * GIB // 2, 3 * GIB // 2)
    assert Machine(memory_bytes=int(1.8 * GIB)).fit(limits).memory_bytes == int(0.9 * GIB)
    for tiny in (GIB, GIB // 8):  # the code is not blamed for a container in which no learner fits
        assert Machine(memory_bytes=tiny).fit(limits).memory_bytes == 768 * 2**20
    assert Machine(memory_bytes=64 * GIB, scratch_bytes=64 * GIB).fit(limits) == limits
    assert Machine().fit(limits) == limits
    pair = Machine(memory_bytes=4 * GIB, scratch_bytes=4 * GIB).fit(limits, processes=2)
    assert (pair.memory_bytes, pair.scratch_bytes, pair.file_bytes) == (3 * GIB // 2, GIB, GIB)
