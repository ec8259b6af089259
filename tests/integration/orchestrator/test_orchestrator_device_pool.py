"""Sessions on the pool of devices: rewards that cannot be compiled for it, the choice by measured rates, the defaults."""

from __future__ import annotations

import json
import sqlite3
from functools import partial
from typing import Any

import grpc
import pytest
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.training.device_rates import DeviceRate
from dressage.training.preset import device_preset, load_preset
from dressage_orchestrator import device_pools
from dressage_orchestrator.device_pools import DevicePools
from dressage_orchestrator.launch.kubernetes.pools import Pool, Resources
from dressage_orchestrator.lifecycle.method import Load
from google.protobuf.json_format import ParseDict

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import GOOD, JUDGE, WEAK, author, watch
from tests.integration.orchestrator.stack import Stack

pytestmark = pytest.mark.asyncio
BASE = {
    "intent": "run forward fast",
    "environment": "environments/HalfCheetah-v5",
    "seeds": 1,
    "steps_per_member": 1000,
}
LINE = "traceable (line 5): values decide an if; use np.where"
BRANCHES = "\n# looks at a value"


def machine(monkeypatch: pytest.MonkeyPatch, *, installed: bool = True, has_gpu: bool = False) -> None:
    local = partial(DevicePools.local, installed=installed, has_gpu=has_gpu)
    monkeypatch.setattr(DevicePools, "here", classmethod(lambda cls, default: local(default)))


def training(stack: Stack, session: v1.Session, number: int = 1, ident: str = "train") -> work.TrainAssignment:
    path = stack.folder / "artifacts" / session.name / f"iterations/{number}/assignments/{ident}/spec.json"
    return ParseDict(json.loads(path.read_text()), work.Assignment()).train


async def play(stack: Stack, **spec: Any) -> tuple[v1.Session, list[ev.Event]]:
    given = reward_session(**{**BASE, "judge_source": JUDGE, **spec})
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=given))
    events = await watch(stack.sessions, created.name)
    return await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name)), events


def warned_before_training(events: list[ev.Event], iteration: int) -> str:
    """The one warning about the pool, which precedes the iteration's training."""
    places = [i for i, event in enumerate(events) if event.warning.reason == "NOT_ON_DEVICE"]
    first = next(
        i for i, e in enumerate(events) if e.HasField("assignment_changed") and f"iterations/{iteration}/" in str(e)
    )
    assert len(places) == 1 and places[0] < first
    return events[places[0]].warning.message


async def test_a_callers_reward_that_does_not_trace_trains_on_cpus(stack: Stack, monkeypatch: Any) -> None:
    machine(monkeypatch)
    await stack.start()
    spec = reward_session(**{**BASE, "reward_source": GOOD + BRANCHES, "pool": "gpu"})
    plan = await stack.sessions.EstimateSession(pb.EstimateSessionRequest(spec=spec))
    assert plan.spec.pool == "local" and plan.note == f"pool local instead of gpu: {LINE}; seen: v > 0"
    session, events = await play(stack, reward_source=GOOD + BRANCHES, pool="gpu", max_iterations=1)
    assert session.spec.pool == "local" and warned_before_training(events, 1) == plan.note
    assert not training(stack, session).on_device


async def test_a_written_reward_that_does_not_trace_trains_its_iteration_on_cpus(
    stack: Stack, monkeypatch: Any
) -> None:
    machine(monkeypatch)
    await stack.start()

    def answer(task: agent_pb.Task) -> agent_pb.TaskResult:
        result = author(task)
        if task.WhichOneof("role") == "reviser":
            result.revision.source += BRANCHES
        return result

    stack.neighbours.agent.answer = answer
    session, events = await play(stack, reward_source=WEAK, pool="gpu", max_iterations=2)
    assert session.spec.pool == "gpu"
    first, second = training(stack, session, 1), training(stack, session, 2)
    assert first.on_device and not first.pool
    assert not second.on_device and second.pool == "local"
    message = warned_before_training(events, 2)
    assert message.startswith(f"iteration 2 trains on CPU cores instead of pool gpu, with their defaults: {LINE}")
    iteration = await stack.sessions.GetIteration(pb.GetIterationRequest(name=f"{session.name}/iterations/2"))
    assert iteration.reward.device_obstacle.startswith(LINE)


async def test_a_reward_that_only_the_device_refuses_moves_to_cpus(stack: Stack, monkeypatch: Any) -> None:
    """The judge has no JAX, so the training on the device is the first to find out."""
    machine(monkeypatch)
    stack.neighbours.judge.has_jax = False
    await stack.start()
    source = GOOD + BRANCHES  # a caller's, which nobody repairs
    spec = reward_session(**{**BASE, "reward_source": source, "pool": "gpu", "early_stop": False})
    plan = await stack.sessions.EstimateSession(pb.EstimateSessionRequest(spec=spec))
    assert plan.spec.pool == "gpu"
    assert "it is not known" in plan.note and "moves to CPU cores when it starts" in plan.note
    session, events = await play(stack, reward_source=source, pool="gpu", early_stop=False, max_iterations=1)
    assert session.state == v1.SESSION_STATE_SUCCEEDED and session.best_policy
    trainings = [training(stack, session), training(stack, session, ident="train-2")]
    assert [task.on_device for task in trainings] == [True, False] and trainings[1].pool == "local"
    assert trainings[0].reward_source == trainings[1].reward_source
    assert trainings[0].members[0].hyperparameters.num_envs == 2048
    assert not trainings[1].members[0].hyperparameters.HasField("num_envs")
    [message] = [event.warning.message for event in events if event.warning.reason == "NOT_ON_DEVICE"]
    assert message.startswith("iteration 1 trains on CPU cores instead of pool gpu") and "line 5" in message
    iteration = await stack.sessions.GetIteration(pb.GetIterationRequest(name=f"{session.name}/iterations/1"))
    assert "line 5" in iteration.reward.device_obstacle and not iteration.repairs


async def test_an_iteration_on_cpus_has_their_defaults_and_what_is_given(stack: Stack, monkeypatch: Any) -> None:
    machine(monkeypatch)
    await stack.start()
    spec: dict[str, Any] = {**BASE, "steps_per_member": 0, "early_stop": False, "pool": "gpu", "max_iterations": 1}
    given = {"id": "a", "hyperparameters": {"epochs": 3, "discount": 0.9}}

    def answer(task: agent_pb.Task) -> agent_pb.TaskResult:
        result = author(task)
        if task.WhichOneof("role") == "reward_author":
            result.reward.source += BRANCHES
        return result

    stack.neighbours.agent.answer = answer
    session, _ = await play(stack, **spec, configs=[given])
    preset, device = load_preset("HalfCheetah-v5"), device_preset()
    assert session.spec.reward.steps_per_member == device.steps_factor * preset.steps_per_member
    task = training(stack, session)
    values = task.members[0].hyperparameters
    assert task.pool == "local" and task.steps_per_member == preset.steps_per_member
    assert (values.epochs, values.discount) == (3, 0.9)
    assert not any(map(values.HasField, ("num_envs", "num_steps", "minibatch_size")))
    assert list(values.hidden_sizes) == device.ppo["hidden_sizes"]  # later iterations may continue from its policies


async def test_the_device_has_defaults_of_its_own_and_what_is_given_stays(stack: Stack, monkeypatch: Any) -> None:
    machine(monkeypatch)
    await stack.start()
    spec = reward_session(**{**BASE, "steps_per_member": 0, "early_stop": False, "pool": "gpu"})
    spec.reward.configs.add(id="a").hyperparameters.num_envs = 16
    plan = await stack.sessions.EstimateSession(pb.EstimateSessionRequest(spec=spec))
    preset, given = device_preset(), plan.spec.reward.configs[0].hyperparameters
    assert plan.spec.reward.steps_per_member == preset.steps_factor * load_preset("HalfCheetah-v5").steps_per_member
    assert (given.num_envs, given.num_steps, given.epochs) == (16, preset.ppo["num_steps"], preset.ppo["epochs"])
    assert given.minibatch_size == 16 * preset.ppo["num_steps"]  # no more than the rollout
    assert "this machine has no GPU" in plan.note
    on_cpu = await stack.sessions.EstimateSession(pb.EstimateSessionRequest(spec=reward_session(**BASE)))
    assert on_cpu.spec.pool == "local" and not on_cpu.note
    assert not on_cpu.spec.reward.configs[0].hyperparameters.HasField("num_envs")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"backend": "sb3"}, "ppo of the backend sb3 trains on CPU cores"),
        ({"environment": "environments/CartPole-v1"}, "CartPole-v1 is not simulated by MuJoCo"),
    ],
)
async def test_what_has_no_simulation_on_a_device_says_so(
    stack: Stack, monkeypatch: Any, change: dict[str, Any], words: str
) -> None:
    machine(monkeypatch)
    await stack.start()
    spec = reward_session(**{**BASE, "pool": "gpu", **change})
    plan = await stack.sessions.EstimateSession(pb.EstimateSessionRequest(spec=spec))
    assert plan.spec.pool == "local" and plan.note.startswith(f"pool local instead of gpu: {words}")


async def test_without_the_simulator_the_pool_is_refused_with_a_remedy(stack: Stack, monkeypatch: Any) -> None:
    machine(monkeypatch, installed=False)
    await stack.start()
    with pytest.raises(grpc.aio.AioRpcError, match="needs MuJoCo Warp, which is not installed") as refused:
        await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=reward_session(**{**BASE, "pool": "gpu"})))
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION


async def test_the_pool_is_chosen_by_measured_rates_where_a_device_exists(stack: Stack, monkeypatch: Any) -> None:
    machine(monkeypatch, has_gpu=True)
    await stack.start()

    async def plan(**more: Any) -> Any:
        spec = reward_session(**{**BASE, "steps_per_member": 3_000_000, **more})
        return await stack.sessions.EstimateSession(pb.EstimateSessionRequest(spec=spec))

    unmeasured = await plan()
    assert unmeasured.spec.pool == "local"
    load = "with 1 member, 2,048 environments and about 3,000,000 steps per member"
    unknown = f"no rate of a GPU is measured: no training in HalfCheetah-v5 {load} was measured on pool gpu yet"
    assert f"{unknown}; `--pool gpu` measures one" in unmeasured.note
    with sqlite3.connect(stack.folder / "dressage.db") as database:
        like_it = Load(1, 2048, 3_500_000).of_kind("HalfCheetah-v5")
        rates = [(like_it, "gpu", 1e6), ("HalfCheetah-v5", "gpu", 3e6), ("HalfCheetah-v5", "local", 2e4)]
        database.executemany("INSERT INTO speeds (environment, pool, steps_per_second) VALUES (?, ?, ?)", rates)
    faster = await plan()
    assert faster.spec.pool == "gpu" and faster.spec.reward.configs[0].hyperparameters.num_envs == 2048
    assert "3,000,000 steps at 1,000,000 steps/s, measured" in faster.note and "at 20,000 steps/s" in faster.note
    assert (await plan(pool="local")).spec.pool == "local"
    for other in ({"seeds": 2}, {"steps_per_member": 30_000_000}):  # another load
        elsewhere = await plan(**other)
        assert elsewhere.spec.pool == "local" and "no rate of a GPU is measured" in elsewhere.note
    moved = await plan(reward_source=GOOD + BRANCHES)
    assert moved.spec.pool == "local" and f"pool local instead of gpu: {LINE}" in moved.note


async def test_the_ant_is_kept_on_cpus_unless_the_device_is_named(stack: Stack, monkeypatch: Any) -> None:
    machine(monkeypatch, has_gpu=True)
    await stack.start()
    with sqlite3.connect(stack.folder / "dressage.db") as database:
        rates = [(Load(1, 2048, 1000).of_kind("Ant-v5"), "gpu", 1e6)]
        database.executemany("INSERT INTO speeds (environment, pool, steps_per_second) VALUES (?, ?, ?)", rates)
    for pool, chosen in (("", "local"), ("gpu", "gpu")):
        spec = reward_session(**{**BASE, "environment": "environments/Ant-v5", "pool": pool})
        plan = await stack.sessions.EstimateSession(pb.EstimateSessionRequest(spec=spec))
        assert plan.spec.pool == chosen and "plane_capsule turns the contact's frame" in plan.note, plan.note


async def test_a_rate_of_a_committed_result_counts_for_loads_like_its_own(stack: Stack, monkeypatch: Any) -> None:
    known = DeviceRate("HalfCheetah-v5", "Some GPU", 1, 2048, 1e6, 30.0, "benchmarks/results/made_up.json")
    monkeypatch.setattr(device_pools, "device_rates", lambda: (known,))
    machine(monkeypatch, has_gpu=True)
    await stack.start()

    async def plan(**more: Any) -> Any:
        spec = reward_session(**{**BASE, "steps_per_member": 30_000_000, **more})
        return await stack.sessions.EstimateSession(pb.EstimateSessionRequest(spec=spec))

    near = await plan()
    assert near.spec.pool == "gpu"
    assert "at 500,000 steps/s, measured on another machine: Some GPU, 2,048 environments" in near.note
    assert "benchmarks/results/made_up.json" in near.note
    short = await plan(steps_per_member=30_000)  # the start alone takes longer than the CPU cores
    assert short.spec.pool == "local" and "at 999 steps/s" in short.note
    far = await plan(seeds=3)
    assert far.spec.pool == "local" and "no rate of a GPU is measured" in far.note


async def test_a_training_records_its_rate_under_its_load(stack: Stack, monkeypatch: Any) -> None:
    machine(monkeypatch)
    await stack.start()
    await play(stack, reward_source=GOOD, max_iterations=1, seeds=2)
    with sqlite3.connect(stack.folder / "dressage.db") as database:
        keys = {key for (key,) in database.execute("SELECT environment FROM speeds WHERE pool = 'local'")}
    worlds = 2 * load_preset("HalfCheetah-v5").ppo.num_envs
    assert keys == {"HalfCheetah-v5", Load(2, worlds, 1000).of_kind("HalfCheetah-v5")}


def test_pools_without_devices_offer_no_choice() -> None:
    cores = Pool(image="trainer")
    device = Pool(image="trainer", resources=Resources(limits={"nvidia.com/gpu": "1"}))
    assert not DevicePools.of({"cores": cores}, "cores").automatic
    both = DevicePools.of({"cores": cores, "large": device}, "cores")
    assert (both.automatic, both.names, both.cpu) == (True, frozenset({"large"}), "cores")
