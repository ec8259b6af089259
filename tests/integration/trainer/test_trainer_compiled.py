"""Compiled updates are kept from run to run, and only by a process that has seen no generated code."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("jax")
pytest.importorskip("mujoco")

from dressage import training
from dressage.envs.cards import load_card
from dressage.sandbox.capabilities import capabilities
from dressage.sandbox.limits import Limits
from dressage.sandbox.process import SandboxProcess
from dressage.training.hyperparameters import Hyperparameters
from dressage.training.preset import load_preset
from dressage_trainer.lease import compiled
from dressage_trainer.lease.compiled import CompiledCache, sources, updates_of
from dressage_trainer.lease.sandboxes import Sandboxes
from dressage_trainer.messages import MemberTask, TrainSpec, parse
from dressage_trainer.ppo.networks import initial_weights
from dressage_trainer.ppo.ppo import PPO
from dressage_trainer.speed.lanes import PpoLanes
from dressage_trainer.speed.threads import learner_environment

SMALL = {"num_envs": 4, "num_steps": 16, "minibatch_size": 32, "epochs": 1, "hidden_sizes": [8, 8]}
# A hostile reward could try to leave something behind; its learner must not be able to.
REWARD = '''
LATEX = "1"
TERMS = {"up": "stay up"}

def reward(state, action, next_state, memory, np):
    """One."""
    return {"up": np.ones_like(next_state.time)}
'''


def spec(**change):
    values = {**SMALL, **change}
    members = (MemberTask("a", values, 1), MemberTask("b", {**values, "learning_rate": 1e-3}, 2))
    return TrainSpec(environment="InvertedPendulum-v5", reward_source=REWARD, members=members, steps_per_member=64)


def test_keys_tell_shapes_apart_and_nothing_else():
    key = updates_of(spec()).key
    assert key == updates_of(spec(learning_rate=1.0, discount=0.5)).key
    assert key != updates_of(spec(num_steps=32)).key
    assert "reward" not in str(updates_of(spec()).request) and "LATEX" not in str(updates_of(spec()).request)


@pytest.mark.parametrize("name", ["presets.toml", "hyperparameters.py"])
def test_keys_change_with_the_default_preset_and_the_rules(name, tmp_path, monkeypatch):
    copied = tmp_path / "training"
    shutil.copytree(Path(training.__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__"))
    key = updates_of(spec()).key
    monkeypatch.setattr(training, "__file__", str(copied / "__init__.py"))
    assert updates_of(spec()).key == key
    with (copied / name).open("a") as file:
        file.write("# changed\n")
    assert updates_of(spec()).key != key


def test_keys_change_with_the_preset_of_the_environment(monkeypatch):
    key, preset = updates_of(spec()).key, load_preset("InvertedPendulum-v5")
    other = replace(preset, ppo=replace(preset.ppo, epochs=preset.ppo.epochs + 1))
    monkeypatch.setattr(compiled, "load_preset", lambda environment: other)
    assert updates_of(spec()).key != key


def test_keys_depend_on_all_sources_of_what_is_compiled():
    paths = {Path(inspect.getfile(item)) for item in (PPO, PpoLanes, initial_weights, Hyperparameters, load_preset)}
    assert paths <= set(sources())


def test_an_own_environment_of_another_size_has_another_key(tmp_path, monkeypatch):
    monkeypatch.setenv("DRESSAGE_ENVIRONMENTS", str(tmp_path))
    (tmp_path / "mjcf:cat").mkdir()
    own = replace(spec(), environment="mjcf:cat")

    def key_with(**change):
        card = {**load_card("InvertedPendulum-v5").to_dict(), "id": "mjcf:cat", **change}
        (tmp_path / "mjcf:cat" / "card.json").write_text(json.dumps(card))
        return updates_of(own).key

    key, action = key_with(), load_card("InvertedPendulum-v5").to_dict()["action"]
    assert key == key_with(title="another cat")
    others = [
        key_with(observation_size=9),
        key_with(action=action * 2),
        key_with(action_kind="discrete", num_actions=2),
        key_with(action_kind="discrete", num_actions=3),
    ]
    assert len({key, *others}) == 5


@pytest.mark.parametrize("environment", ["mjcf:none", "Nothing-v0"])
def test_an_unknown_environment_is_left_to_the_learner_to_refuse(tmp_path, monkeypatch, environment):
    monkeypatch.setenv("DRESSAGE_ENVIRONMENTS", str(tmp_path))
    assert updates_of(replace(spec(), environment=environment)).key


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path):
    cache, code = CompiledCache(tmp_path / "cache"), updates_of(spec())
    kind = tmp_path / "cache" / "updates"
    folder = kind / code.key
    folder.mkdir(parents=True)
    (folder / code.marker).touch()
    folders = (tmp_path / "cache", kind, folder)
    for path in folders:
        path.chmod(0o700)
    assert cache.find(code) == folder
    for path in folders:
        path.chmod(0o770)
        assert cache.find(code) is None and cache.prepare(code) is None
        path.chmod(0o700)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert cache.find(code) is None


@pytest.mark.timeout(500)
@pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")
def test_the_warm_up_fills_what_a_learner_reads_and_cannot_write(tmp_path):
    cache, code = CompiledCache(tmp_path / "cache", Sandboxes(tmp_path / "sandboxes")), updates_of(spec())
    assert cache.find(code) is None
    patient = replace(code.sandbox, limits=replace(code.sandbox.limits, wall_seconds=240.0))
    folder = cache.prepare(replace(code, sandbox=patient))
    assert folder is not None and folder == cache.find(code)
    files = {path.name: path.stat() for path in folder.iterdir()}
    assert {name.split("-")[0] for name in files} >= {"jit_update_prepare", "jit_update_epochs"}
    assert not list((tmp_path / "sandboxes").iterdir())
    os.utime(folder / next(iter(files)), (1, 1))
    before = {path.name: path.stat().st_mtime for path in folder.iterdir()}

    scratch = tmp_path / "run"
    scratch.mkdir()
    begun = time.monotonic()
    environment = {**learner_environment(compilation_cache=folder), "JAX_EXPLAIN_CACHE_MISSES": "1"}
    with SandboxProcess.start("dressage_trainer.learner:learn", limits=Limits(wall_seconds=250), scratch=scratch,
                              threads=1, env=environment, read_only=[folder]) as process:  # fmt: skip
        process.channel.send(spec().to_dict())
        while (message := parse(process.channel.recv(timeout=240))).type != "done":
            assert message.type != "failed", message
        ended = process.wait(30)
    assert time.monotonic() - begun < 250
    # The learner loads what the warm-up compiled: if it compiled the update again, JAX would have logged a miss.
    assert "MISS for 'jit_update" not in ended.stderr_tail, ended.stderr_tail
    assert {path.name: path.stat().st_mtime for path in folder.iterdir()} == before
