"""Ordinary life in the sandbox: what must work, how processes end, and the refusal to run without barriers."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.sandbox import Limits, SandboxFailure, SandboxProcess, process, run
from dressage.sandbox.capabilities import Capabilities, capabilities

LIMITS = Limits(memory_bytes=1 << 30, wall_seconds=60)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"


def gone(pid, seconds=10):
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def test_capabilities_of_this_kernel():
    features = capabilities()
    assert features.to_dict()["sufficient"] == (features.landlock_abi >= 1 and features.seccomp)
    assert bool(features.missing) == bool(features.remedy)


def test_echo_of_arrays(tmp_path):
    request = {"a": np.arange(6.0).reshape(2, 3), "list": [1, "two", None, True], "bytes": b"\0\1"}
    reply = run("sandbox_targets:echo", request, limits=LIMITS, scratch=tmp_path)["echo"]
    np.testing.assert_array_equal(reply["a"], request["a"])
    assert (reply["list"], reply["bytes"]) == (request["list"], request["bytes"])


def test_nothing_heavy_is_imported_before_the_lock(tmp_path):
    modules = run("sandbox_targets:report_modules", {}, limits=LIMITS, scratch=tmp_path)["modules"]
    assert not {"numpy", "jax", "grpc", "site", "dressage.envs"} & set(modules)


def test_threads_and_files_work(inside):
    source = """
    import os, tempfile, threading, numpy as np
    thread = threading.Thread(target=lambda: out.update(product=float((np.ones((300, 300)) @ np.ones((300, 300))).sum())))
    thread.start(); thread.join()
    os.makedirs("tb/events"); open("tb/events/a", "w").write("x"); os.replace("tb/events/a", "tb/b")
    np.savez("rollout.npz", x=np.ones(3)); out["sum"] = float(np.load("rollout.npz")["x"].sum())
    tempfile.NamedTemporaryFile().write(b"x"); out["listing"] = sorted(os.listdir("."))
    os.getrusage if hasattr(os, "getrusage") else None
    import resource; out["limit"] = resource.getrlimit(resource.RLIMIT_CORE)[0]
    """
    out = inside(textwrap.dedent(source), threads=2)["out"]
    assert out == {"product": 300.0**3, "sum": 3.0, "listing": ["rollout.npz", "tb"], "limit": 0}


def test_jax_compiles_inside(inside):
    pytest.importorskip("jax")
    source = "import jax, jax.numpy as jnp; out['sum'] = float(jax.jit(lambda x: (x @ x).sum())(jnp.ones((64, 64))))"
    reply = inside(source, limits=Limits(memory_bytes=2 << 30, wall_seconds=120))
    assert reply["out"]["sum"] == 64.0**3


def test_mujoco_steps_on_threads_inside(inside):
    pytest.importorskip("mujoco.batch")
    source = """
    import mujoco
    from mujoco.batch import Batch
    xml = "<mujoco><worldbody><body><freejoint/><geom size='.1'/></body></worldbody></mujoco>"
    batch = Batch(mujoco.MjModel.from_xml_string(xml), 8, 2)
    batch.step(nstep=10)
    out["threads"] = int(open("/proc/self/status").read().split("Threads:")[1].split()[0])
    """
    assert inside(textwrap.dedent(source), threads=2)["out"]["threads"] >= 2


def test_stock_gymnasium_steps_inside(inside):
    """Importing it imports a window library, which would like to start a process."""
    pytest.importorskip("gymnasium.envs.mujoco")
    source = """
    import gymnasium
    environment = gymnasium.make("HalfCheetah-v5")
    environment.reset(seed=0)
    out["shape"] = list(environment.step(environment.action_space.sample())[0].shape)
    """
    assert inside(textwrap.dedent(source))["out"]["shape"] == [17]


def test_read_only_folders(inside, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    (folder / "compiled").write_text("code")
    source = f"out['text'] = open('{folder}/compiled').read(); open('{folder}/compiled', 'w')"
    assert inside(source)["error"] == "PermissionError"
    reply = inside(source.partition(";")[0], read_only=[folder])
    assert reply["out"]["text"] == "code"
    assert inside(source, read_only=[folder])["error"] == "PermissionError"


def test_a_hidden_file_stays_hidden_below_folders_that_contain_each_other(inside, tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    (folder / "part").mkdir()
    for name in ("open", "secret"):
        (folder / "part" / name).write_text("code")
    places = dict(read_only=[folder, folder / "part"], hidden=[folder / "part" / "secret"])
    assert inside(f"out['text'] = open('{folder}/part/open').read()", **places)["out"]["text"] == "code"
    assert inside(f"open('{folder}/part/secret')", **places)["error"] == "PermissionError"


def test_environment_and_processors_are_as_asked(inside):
    cpu = min(os.sched_getaffinity(0))
    source = "import os; out['flags'] = os.environ['XLA_FLAGS']; out['cpus'] = sorted(os.sched_getaffinity(0))"
    out = inside(source, env={"XLA_FLAGS": "--some_flag"}, cpus={cpu})["out"]
    assert out == {"flags": "--some_flag", "cpus": [cpu]}


def test_an_exception_is_an_error_with_its_text(tmp_path):
    with pytest.raises(SandboxFailure) as caught:
        run("sandbox_targets:fail", {}, limits=LIMITS, scratch=tmp_path)
    assert caught.value.kind == "error"
    assert "about to fail" in caught.value.stderr_tail
    assert "ValueError: on purpose" in caught.value.stderr_tail


def test_output_is_kept_in_part_only(inside):
    failure = inside("import sys\nfor i in range(200000): print('line', i)\nsys.stdout.flush(); import os; os._exit(3)")
    assert failure.kind == "error"
    assert len(failure.stderr_tail) <= 32 * 1024
    assert failure.stderr_tail.endswith("line 199999\n")


def test_kill_ends_it_and_says_so(tmp_path):
    with SandboxProcess.start("sandbox_targets:sleep", limits=LIMITS, scratch=tmp_path) as child:
        pid = child.channel.recv(timeout=20)["pid"]
        assert pid == child.pid
        assert child.poll() is None
        assert child.wait(0.05) is None
        ended = child.kill()
        assert (ended.kind, ended.code) == ("killed", -signal.SIGKILL)
        assert child.poll() == ended == child.kill()
    assert gone(pid)


def test_it_outlives_the_thread_that_started_it(tmp_path):
    """The kernel's parent-death signal is tied to a thread; a caller's worker thread must not count as the parent."""
    import threading

    started = []
    arguments = {"limits": LIMITS, "scratch": tmp_path}
    thread = threading.Thread(target=lambda: started.append(SandboxProcess.start("sandbox_targets:sleep", **arguments)))
    thread.start()
    thread.join()
    with started[0] as child:
        assert child.channel.recv(timeout=20)["pid"] == child.pid
        assert child.wait(0.3) is None


def test_it_dies_with_its_parent(tmp_path):
    script = f"""
    import sys, time, pathlib
    sys.path.insert(0, {os.path.dirname(__file__)!r})
    from dressage.sandbox import Limits, SandboxProcess
    child = SandboxProcess.start("sandbox_targets:sleep", limits=Limits(), scratch=pathlib.Path({str(tmp_path)!r}))
    print(child.channel.recv(timeout=20)["pid"], flush=True)
    time.sleep(60)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)
    try:
        pid = int(parent.stdout.readline())
        assert alive(pid)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    assert gone(pid)


def test_without_barriers_it_refuses_and_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "capabilities", lambda: Capabilities("Linux", "x86_64", 0, True))
    with pytest.raises(FailedPrecondition, match=r"lacks Landlock.*Linux 5\.13") as caught:
        run("sandbox_targets:echo", {}, limits=LIMITS, scratch=tmp_path)
    assert caught.value.reason == "SANDBOX_UNAVAILABLE"
    reply = run("sandbox_targets:echo", {"a": 1}, limits=LIMITS, scratch=tmp_path, allow_unsandboxed=True)
    assert reply == {"echo": {"a": 1}}


@pytest.mark.parametrize("target", ["", "module", "module:", ":function"])
def test_malformed_targets(tmp_path, target):
    with pytest.raises(InvalidArgument, match="target"):
        run(target, {}, limits=LIMITS, scratch=tmp_path)


def test_missing_scratch(tmp_path):
    with pytest.raises(InvalidArgument, match="scratch"):
        run("sandbox_targets:echo", {}, limits=LIMITS, scratch=tmp_path / "nowhere")


@pytest.mark.parametrize("values", [{"memory_bytes": 0}, {"wall_seconds": -1.0}, {"open_files": None}])
def test_limits_are_positive(values):
    with pytest.raises(InvalidArgument, match=next(iter(values))):
        Limits(**values)


def test_the_current_folder_is_not_readable(tmp_path, monkeypatch, inside):
    elsewhere = tmp_path / "project"
    elsewhere.mkdir()
    (elsewhere / "secret").write_text("secret")
    monkeypatch.chdir(elsewhere)
    monkeypatch.syspath_prepend(str(elsewhere))
    assert str(elsewhere) not in process.import_path()
    (elsewhere / "dressage_plugin").mkdir()
    (elsewhere / "dressage_plugin" / "__init__.py").touch()
    assert str(elsewhere) in process.import_path()


@pytest.mark.parametrize(
    ("source", "kind", "code"),
    [("import os; os._exit(3)", "error", 3), ("import signal; signal.raise_signal(9)", "killed", -9)],
)
def test_a_normal_exit_is_not_reported_as_an_ended_main_thread(tmp_path, monkeypatch, source, kind, code):
    # A process with many threads is seen, on its way out, without its memory and with threads left.
    monkeypatch.setattr(process, "usage_of", lambda pid, before: process.Usage(threads=9, leader_ended=True))
    monkeypatch.setattr(SandboxProcess, "_signal", lambda self: None)
    with SandboxProcess.start("sandbox_targets:run_source", limits=LIMITS, scratch=tmp_path) as child:
        child.channel.send({"source": source})
        ended = child.wait(30)
    assert (ended.kind, ended.code, ended.bound) == (kind, code, False)
