"""`dressage envs install isaaclab --from PYTHON`: finding and examining an installation, and how its processes are started.

The installation is made up: a virtual environment with modules that stand for Isaac Lab 2.3. Isaac Sim is not part of it, so
nothing here shows that a simulation works.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from dressage.cli.main import invoke
from dressage.envs.cards import load_card
from dressage.envs.packs import own, process, registry
from dressage.envs.packs.batched import isaacsim, tasks
from dressage.envs.packs.batched.tasks import Task
from dressage.errors import FailedPrecondition, InvalidArgument, NotFound
from dressage.sandbox.capabilities import capabilities

needs_sandbox = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")

CURRENT = f"{sys.version_info.major}.{sys.version_info.minor}"
FILES = {
    "isaacsim.py": "",
    "torch.py": "",
    "safetensors.py": "",
    "gymnasium.py": "from types import SimpleNamespace\nregistry = {}\n"
    "def make(id, cfg, disable_env_checker): raise RuntimeError(f'no simulation of {id} here')\n",
    "isaaclab/__init__.py": "",
    "isaaclab/app.py": """
import os, sys

class AppLauncher:
    def __init__(self, launcher_args=None, **given):
        assert given["headless"] is True and given["device"] == "cpu"
        assert sys.argv[1:] == [] and given["kit_args"].startswith(f"--portable-root {os.getcwd()}/kit")
        print("Isaac Sim prints")
        os.mkdir("kit")
        self.app = object()
""",
    "isaaclab_tasks/__init__.py": """
import os
from types import SimpleNamespace
import gymnasium
assert os.path.isdir("kit"), "Isaac Sim was not started"

def register(id, entry, config):
    gymnasium.registry[id] = SimpleNamespace(entry_point=entry, kwargs={"env_cfg_entry_point": config})

module = "isaaclab_tasks.direct.cartpole.cartpole_env"
register("Isaac-Cartpole-Direct-v0", f"{module}:CartpoleEnv", f"{module}:CartpoleEnvCfg")
module = "isaaclab_tasks.manager_based.classic.ant.ant_env_cfg"
register("Isaac-Ant-v0", "isaaclab.envs:ManagerBasedRLEnv", f"{module}:AntEnvCfg")
""",
    "isaaclab_tasks/utils.py": "def parse_env_cfg(name, device='cuda:0', num_envs=None):\n    return object()\n",
}


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The interpreter of a made-up installation of Isaac Lab 2.3, for the Python of the tests."""
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path / "packs"))
    monkeypatch.setitem(own.ACCEPTED, "isaaclab", replace(own.ACCEPTED["isaaclab"], python=CURRENT))  # type: ignore[arg-type]
    monkeypatch.delenv("OMNI_KIT_ACCEPT_EULA", raising=False)
    folder = tmp_path / "isaac"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True, timeout=120)
    packages = _packages(folder / "bin" / "python")
    for name, text in FILES.items():
        (packages / name).parent.mkdir(exist_ok=True)
        (packages / name).write_text(text)
    _version(packages, "2.3.2.post1")
    installed = Path(numpy.__file__).parent
    for part in (installed, installed.with_name("numpy.libs")):
        shutil.copytree(part, packages / part.name, copy_function=_link, ignore=shutil.ignore_patterns("tests"))
    return folder / "bin" / "python"


def _packages(python: Path) -> Path:
    return python.parent.parent / "lib" / f"python{CURRENT}" / "site-packages"


def _version(packages: Path, version: str) -> None:
    for old in packages.glob("isaaclab-*.dist-info"):
        shutil.rmtree(old)
    folder = packages / f"isaaclab-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: isaaclab\nVersion: {version}\n")


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def test_an_installation_is_recorded_with_how_to_start_it(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNI_KIT_ACCEPT_EULA", "YES")
    folder = registry.folder_of("isaaclab")
    for part in (process.ASSETS, registry.PACKAGES, process.KERNELS):
        (folder / part).mkdir(parents=True)
    used = own.use(registry.pack("isaaclab"), str(python))
    assert (used.version, used.interpreter) == ("2.3.2.post1", str(python))
    assert not registry.problem_of("isaaclab") and registry.own_installation("isaaclab") == used
    assert process.interpreter("isaaclab") == str(python) and process.gigabytes("isaaclab") == 32
    assert str(_packages(python)) in process.import_path("isaaclab")
    assert process.import_path("isaaclab")[-1] == str(folder / "dressage")
    assert process.variables("isaaclab") == {
        "OMNI_KIT_ACCEPT_EULA": "YES",
        process.ASSET_ROOT: str(folder / process.ASSETS),
    }
    assert sorted(path.name for path in folder.iterdir()) == [process.ASSETS, "dressage", registry.MARKER]


def test_an_installation_that_has_moved_is_named(python: Path) -> None:
    own.use(registry.pack("isaaclab"), str(python))
    shutil.rmtree(python.parent.parent)
    with pytest.raises(FailedPrecondition, match=f"has moved: {python} does not exist") as refused:
        process.import_path("isaaclab")
    assert refused.value.reason == "PACK_NOT_INSTALLED"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("missing", "there is no such program"),
        ("no python", "it does not run as a Python (JSONDecodeError)"),
        ("other python", f"it is Python {CURRENT}"),
        ("no package", "isaaclab is not installed there"),
        ("old", "it has isaaclab 2.2.1"),
        ("new", "it has isaaclab 2.30"),
        ("modules", "isaacsim, safetensors not installed there"),
    ],
)
def test_what_cannot_serve_is_refused(
    python: Path, monkeypatch: pytest.MonkeyPatch, damage: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    packages, given = _packages(python), str(python)
    match damage:
        case "missing":
            given = "/no/such/python"
        case "no python":
            given = "/bin/true"
        case "other python":
            monkeypatch.setitem(own.ACCEPTED, "isaaclab", replace(own.ACCEPTED["isaaclab"], python="3.1"))  # type: ignore[arg-type]
        case "no package":
            shutil.rmtree(next(packages.glob("isaaclab-*.dist-info")))
        case "old":
            _version(packages, "2.2.1")
        case "new":
            _version(packages, "2.30")
        case "modules":
            (packages / "isaacsim.py").unlink()
            (packages / "safetensors.py").unlink()
    with pytest.raises(InvalidArgument) as refused:
        own.use(registry.pack("isaaclab"), given)
    message = refused.value.message
    assert message.startswith(f"--from: {words} (got '{given[:40]}") and "); expected the Python " in message, message
    assert refused.value.field == "--from"
    if damage == "modules":
        assert "isaaclab[isaacsim]==2.3.*" in message and "pip install safetensors" in message
    assert not registry.folder_of("isaaclab").exists()
    assert invoke(["envs", "install", "isaaclab", "--from", given]) == 1
    assert words in " ".join(capsys.readouterr().err.split())


def test_other_packs_are_no_installations_of_users(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["envs", "install", "mjlab", "--from", sys.executable]) == 1
    assert "dressage envs install mjlab" in capsys.readouterr().err


@needs_sandbox
def test_the_simulator_is_started_once_and_marked_untried(python: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["envs", "install", "isaaclab", "--from", str(python)]) in (0, None)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        f"isaaclab is your installation: isaaclab 2.3.2.post1, {python}",
        "isaaclab 2.3.2.post1 has not been tried with Dressage. Its simulator is started once, for minutes",
    ]
    assert lines[2].startswith("Isaac-Cartpole-Direct: the simulator does not work: ")
    assert invoke(["envs", "show", "Isaac-Cartpole-Direct"]) in (0, None)
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"Environment pack: isaaclab 2.3.2.post1, your installation {python}; not tried"
    )


@needs_sandbox
def test_tasks_are_listed_after_the_start_without_versions(
    python: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own.use(registry.pack("isaaclab"), str(python))
    monkeypatch.setattr(tasks, "registry", lambda: ())
    assert invoke(["envs", "sync", "isaaclab", "--json"]) in (0, None), capsys.readouterr().err
    answer = json.loads(capsys.readouterr().out)
    assert answer["version"] == "2.3.2.post1"
    assert [Task(**entry) for entry in answer["tasks"]] == [
        Task("Isaac-Ant", "classic", "manager", "physx"),
        Task("Isaac-Cartpole-Direct", "cartpole", "direct", "physx"),
    ]


def test_ids_with_and_without_a_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert isaacsim.task_id("Isaac-Cartpole-Direct") == "Isaac-Cartpole-Direct-v0"
    assert isaacsim.task_id("Isaac-Cartpole-Direct-v1") == "Isaac-Cartpole-Direct-v1"
    assert isaacsim.environment_id(isaacsim.task_id("Isaac-Cartpole-Direct")) == "Isaac-Cartpole-Direct"
    with pytest.raises(NotFound, match="task of Isaac Lab that has no card"):
        load_card("Isaac-Ant-v0")
    with pytest.raises(NotFound, match="did you mean Isaac-Cartpole-Direct"):
        load_card("Isaac-Cartpole-Direct-v0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(process.ASSET_ROOT, "/opt/assets")
    assert isaacsim.kit_arguments() == [
        "--portable-root",
        str(tmp_path / "kit"),
        "--/persistent/isaac/asset_root/cloud=/opt/assets",
    ]
