"""Custom environments: a model file and a registered Gymnasium id become environments like the others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
from dressage.envs import (
    ENVIRONMENT_IDS,
    BatchEnv,
    EnvOptions,
    adding,
    list_cards,
    load_card,
    load_check_trajectories,
    make_batch,
)
from dressage.envs import reference as stock
from dressage.envs.custom import VARIABLE, custom_ids, folder_of
from dressage.envs.describe import describe
from dressage.envs.tasks import task
from dressage.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable
from gymnasium.envs.classic_control.pendulum import PendulumEnv

DOG = """
<mujoco model="dog">
  <option timestep="0.004"/>
  <asset><mesh name="hull" file="hull.stl"/></asset>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 .1"/>
    <body name="trunk/main" pos="0 0 .4">
      <freejoint name="root"/>
      <geom type="mesh" mesh="hull" mass="2"/>
      <body pos=".2 0 0">
        <joint name="hip-1" axis="0 1 0" range="-60 60" limited="true" damping=".2" armature=".05"/>
        <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass=".2"/>
      </body>
      <body pos="-.2 0 0">
        <joint name="ball" type="ball" damping=".2" armature=".05"/>
        <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass=".2"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <position name="servo" joint="hip-1" kp="5" ctrlrange="-0.5 1" ctrllimited="true"/>
    <motor joint="hip-1" gear="0.5"/>
  </actuator>
  <keyframe><key name="home" qpos="0 0 .5 1 0 0 0 .2 1 0 0 0"/></keyframe>
</mujoco>
"""


BALL = """
<mujoco>
  <option timestep="0.01" gravity="0 0 {gravity}">{flag}</option>
  <worldbody>
    {floor}
    <body pos="0 0 .1">
      <freejoint/><geom size=".1" mass="1"/>
      <body pos="0 0 .1"><joint name="hip"/><geom size=".02" mass=".1" contype="0" conaffinity="0"/></body>
    </body>
  </worldbody>
  <actuator><motor joint="hip"/></actuator>
</mujoco>
"""
FLOOR = '<geom type="plane" size="5 5 .1"/>'


@pytest.fixture(scope="module", autouse=True)
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(tmp_path_factory.mktemp("environments")))
        yield


@pytest.fixture(scope="module")
def dog(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model with a mesh in another file, a name that is no identifier, unnamed bodies and a keyframe."""
    folder = tmp_path_factory.mktemp("models")
    corners = np.array([[x, y, z] for x in (-0.2, 0.2) for y in (-0.1, 0.1) for z in (-0.05, 0.05)])
    _write_stl(folder / "hull.stl", corners)
    (folder / "dog.xml").write_text(DOG)
    return adding.add_model(folder / "dog.xml", max_episode_steps=120).id


@pytest.fixture(scope="module")
def pendulum() -> str:
    return adding.add_registered("gymnasium:Pendulum-v1").id


def _write_stl(path: Path, corners: np.ndarray) -> None:
    faces = [
        (0, 1, 3),
        (0, 3, 2),
        (4, 6, 7),
        (4, 7, 5),
        (0, 4, 5),
        (0, 5, 1),
        (2, 3, 7),
        (2, 7, 6),
        (0, 2, 6),
        (0, 6, 4),
    ]
    faces += [(1, 5, 7), (1, 7, 3)]
    with path.open("wb") as file:
        file.write(bytes(80) + np.uint32(len(faces)).tobytes())
        for face in faces:
            file.write(np.zeros(3, np.float32).tobytes() + corners[list(face)].astype(np.float32).tobytes() + bytes(2))


def _actions(batch: BatchEnv, steps: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    if batch.num_actions:
        return [rng.integers(batch.num_actions, size=batch.num_envs) for _ in range(steps)]
    shape = (batch.num_envs, batch.action_size)
    return [rng.uniform(batch.action_low, batch.action_high, size=shape).astype(np.float32) for _ in range(steps)]


def test_a_model_file_becomes_an_environment(dog: str) -> None:
    card = load_card(dog)
    assert card.id == "mjcf:dog"
    assert card.max_episode_steps == 120
    assert not card.can_terminate
    assert card.time_step == pytest.approx(0.02)
    assert card.observation_size == len(card.observation_components) == 12 + 10
    assert [(part.name, part.low, part.high) for part in card.action] == [("servo", -0.5, 1.0), ("hip_1", -1.0, 1.0)]
    names = set(card.field_names)
    assert {"x_velocity", "pitch", "turned_yaw", "hip_1_angle", "xpos_trunk_main", "contact_hip_1", "upright"} <= names
    assert all(name.isidentifier() for name in names)
    assert card in list_cards()
    assert 0.04 < card.scales["standing_height"] < 0.6
    assert "hip_1" in describe(card)
    assert {len(episodes) for episodes in load_check_trajectories(dog).values()} == {2}


@pytest.mark.parametrize("name", ["dog", "pendulum"])
def test_the_batch_equals_the_reference_environment(name: str, request: pytest.FixtureRequest) -> None:
    env_id = request.getfixturevalue(name)
    short = EnvOptions(max_episode_steps=50)
    (episode,) = stock.rollout(stock.random_policy(env_id, 3), env_id, [5], short)
    batch = make_batch(env_id, 1, num_threads=1, options=short)
    batch.reset([5])
    for index, action in enumerate(episode.action):
        step = batch.step(action[None].astype(np.float32))
        assert step.reward[0] == episode.reward[index]
        assert tuple(step.next_state.fields) == tuple(episode.fields) == load_card(env_id).field_names
        for field, column in episode.fields.items():
            assert np.array_equal(step.next_state.fields[field][0], column[index + 1]), field
    assert step.truncated[0]


def test_pendulum_equals_gymnasiums_own(pendulum: str) -> None:
    batch, env = make_batch(pendulum, 2, num_threads=1), gymnasium.make("Pendulum-v1")
    observation = batch.reset([3, 4])[1]
    assert np.array_equal(observation, env.reset(seed=4)[0])
    for action in _actions(batch, 230):
        step = batch.step(action)
        final, reward, terminated, truncated, _ = env.step(action[1])
        assert np.array_equal(final, step.final_observation[1])
        assert reward == step.reward[1]
        assert (terminated, truncated) == (step.terminated[1], step.truncated[1])
        seen = env.reset()[0] if truncated else final
        assert np.array_equal(seen, step.observation[1])


@pytest.mark.parametrize("name", ["dog", "pendulum"])
def test_a_snapshot_goes_on_to_the_bit(name: str, request: pytest.FixtureRequest) -> None:
    env_id, short = request.getfixturevalue(name), EnvOptions(max_episode_steps=25)
    batch, other = (make_batch(env_id, 3, num_threads=1, options=short) for _ in range(2))
    batch.reset([5, 6, 7])
    actions = _actions(batch, 60)
    for action in actions[:33]:
        batch.step(action)
    snapshot = batch.snapshot()
    assert all(value.dtype.kind in "fiu" for value in snapshot.values())
    expected = [batch.step(action) for action in actions[33:]]
    other.restore(snapshot)
    for action, step in zip(actions[33:], expected, strict=True):
        again = other.step(action)
        assert np.array_equal(again.observation, step.observation)
        assert np.array_equal(again.reward, step.reward)
        assert np.array_equal(again.truncated, step.truncated)
    other = make_batch(env_id, 2, num_threads=1, options=short)
    with pytest.raises(InvalidArgument, match=r"snapshot\."):
        other.restore(snapshot)


def test_an_environment_with_randomness_of_its_own_is_not_resumed(pendulum: str) -> None:
    class Restless(PendulumEnv):
        def _get_obs(self) -> np.ndarray:
            return super()._get_obs() + np.random.default_rng().normal(size=3).astype(np.float32)  # nobody seeds this

    gymnasium.register("Restless-v0", entry_point=lambda **_: Restless(), max_episode_steps=30)
    batch = make_batch(adding.add_registered("gymnasium:Restless-v0").id, 1, num_threads=1)
    batch.reset([1])
    batch.step(np.zeros((1, 1)))
    with pytest.raises(FailedPrecondition, match="cannot be resumed"):
        batch.restore(batch.snapshot())


def test_a_fault_of_one_environment_ends_its_episode_alone(pendulum: str) -> None:
    batch = make_batch(pendulum, 3, num_threads=1)
    batch.reset([1, 2, 3])
    step = batch.step(np.array([[0.0], [np.nan], [0.0]]))
    assert batch.divergences == 1
    assert step.truncated.tolist() == [False, True, False]
    assert np.isfinite(step.observation).all()


def test_a_diverged_model_ends_the_reference_episode_too(tmp_path: Path) -> None:
    wild = DOG.replace('<asset><mesh name="hull" file="hull.stl"/></asset>', "").replace(
        'type="mesh" mesh="hull"', 'size=".1"'
    )
    (tmp_path / "wild.xml").write_text(wild.replace('gear="0.5"', 'gear="1e9"'))
    env_id = adding.add_model(tmp_path / "wild.xml", max_episode_steps=60).id
    (episode,) = stock.rollout(lambda _: np.ones(2), env_id, [1])
    batch = make_batch(env_id, 1, num_threads=1)
    batch.reset([1])
    steps = 1
    while not batch.step(np.ones((1, 2))).truncated[0]:
        steps += 1
    assert episode.truncated
    assert episode.num_steps == steps < 60
    assert batch.divergences == 1


def _scales(folder: Path, **parts: str) -> dict[str, float]:
    (folder / "ball.xml").write_text(BALL.format(**{"gravity": "-9.81", "flag": "", "floor": FLOOR} | parts))
    return dict(adding.add_model(folder / "ball.xml", max_episode_steps=60).scales)


@pytest.mark.parametrize("gravity", [9.81, 1.62])
def test_the_typical_speed_is_by_the_models_own_gravity(gravity: float, tmp_path: Path) -> None:
    scales = _scales(tmp_path, gravity=str(-gravity))
    assert scales["standing_height"] == pytest.approx(0.1, abs=0.01)
    assert scales["typical_speed"] == pytest.approx((gravity * scales["standing_height"]) ** 0.5, rel=1e-3)


@pytest.mark.parametrize(
    "parts",
    [
        {"floor": ""},  # falls for ever
        {"gravity": "0"},
        {"gravity": "9.81"},
        {"flag": '<flag gravity="disable"/>'},
    ],
)
def test_what_stands_nowhere_has_no_height_to_stand_at(parts: dict[str, str], tmp_path: Path) -> None:
    scales = _scales(tmp_path, **parts)
    assert "random_episode_steps" in scales
    assert not {"standing_height", "typical_speed"} & set(scales)


def _whole(folder: Path) -> bool:
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*.npz")}
    scaled = '"random_return"' in (folder / "card.json").read_text()
    return scaled and len(names) == 6 and (folder / "model.mjb").is_file()


@pytest.fixture
def ball(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment in a folder of its own; returns where it is kept."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "kept"))
    _scales(tmp_path)
    return folder_of("mjcf:ball")


def test_readers_see_the_old_environment_until_the_new_one_is_whole(
    ball: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, seen = (ball / "card.json").read_text(), []

    def spying(*arguments: Any) -> None:
        seen.append(_whole(ball) and (ball / "card.json").read_text() == old)
        write(*arguments)
        seen.append(_whole(ball) and (ball / "card.json").read_text() == old)

    write = adding.write_check_episodes
    monkeypatch.setattr(adding, "write_check_episodes", spying)
    _scales(tmp_path, gravity="-1.62")
    assert seen == [True, True]
    assert _whole(ball)
    assert (ball / "card.json").read_text() != old
    assert [path.name for path in ball.parent.iterdir()] == ["mjcf:ball"]


@pytest.mark.parametrize("left", ["nothing", "half"])
def test_what_a_killed_replacement_left_is_put_back_first(
    ball: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    old = (ball / "card.json").read_text()
    before = ball.with_name(".mjcf:ball.before")
    ball.rename(before)
    if left == "half":
        ball.mkdir()
        (ball / "card.json").write_text(old)

    def failing(*arguments: Any) -> None:
        raise InvalidArgument("no")

    monkeypatch.setattr(adding, "write_check_episodes", failing)
    with pytest.raises(InvalidArgument):
        _scales(tmp_path, gravity="-1.62")
    assert _whole(ball)
    assert (ball / "card.json").read_text() == old
    assert [path.name for path in ball.parent.iterdir()] == ["mjcf:ball"]


def test_a_replacement_that_was_killed_at_its_end_stands(
    ball: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = (ball / "card.json").read_text()
    before = ball.with_name(".mjcf:ball.before")
    before.mkdir()  # its files are deleted already
    monkeypatch.setattr(adding, "write_check_episodes", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        _scales(tmp_path, gravity="-1.62")
    assert _whole(ball)
    assert (ball / "card.json").read_text() == new
    assert not before.exists()


def test_what_cannot_be_added_is_named(tmp_path: Path, dog: str) -> None:
    broken = tmp_path / "dog.xml"
    broken.write_text("<mujoco><worldbody><body>")
    with pytest.raises(InvalidArgument, match=r"model: .*got .*MuJoCo compiles"):
        adding.add_model(broken)
    with pytest.raises(InvalidArgument, match="model: not found"):
        adding.add_model(tmp_path / "absent.xml")
    still = tmp_path / "still.xml"
    still.write_text("<mujoco><worldbody><body><joint/><geom size='.1'/></body></worldbody></mujoco>")
    with pytest.raises(InvalidArgument, match="at least one actuator"):
        adding.add_model(still)
    with pytest.raises(InvalidArgument, match="mjcf:NAME"):
        adding.add_model(still, name="../up")
    with pytest.raises(NotFound, match="NoSuch-v0"):
        adding.add_registered("gymnasium:NoSuch-v0")
    gymnasium.register("Pairs-v0", entry_point=lambda **_: _Pairs())
    with pytest.raises(InvalidArgument, match="Box or Discrete"):
        adding.add_registered("gymnasium:Pairs-v0")
    assert load_card(dog).id == "mjcf:dog"  # what was there is there still
    assert "gymnasium:NoSuch-v0" not in custom_ids()


class _Pairs(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.MultiDiscrete([2, 2])


def test_the_error_for_an_unknown_one_names_the_command_to_add_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFound, match="dressage envs add gymnasium:Acrobot-v1"):
        load_card("gymnasium:Acrobot-v1")
    with pytest.raises(NotFound, match=r"dressage envs add PATH\.xml"):
        make_batch("mjcf:cat", 1, num_threads=1)
    with pytest.raises(InvalidArgument, match="mjcf:NAME"):
        load_card("mjcf:../../etc/passwd")
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(NotFound, match=VARIABLE):
        load_card("mjcf:dog")


def test_a_damaged_card_is_refused(dog: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / dog).mkdir()
    (tmp_path / dog / "card.json").write_text("{")
    with pytest.raises(InvalidArgument, match="card of 'mjcf:dog' cannot be read"):
        load_card(dog)
    assert load_card("Hopper-v5") in list_cards()


@pytest.mark.parametrize(
    "text", ["", '"x"', "null", "[" * 100_000, '{"id": ' * 100_000, "\x00", '{"id": "mjcf:cat"}', "loop"]
)
def test_a_damaged_card_is_left_out_of_the_list(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    card = tmp_path / "mjcf:cat" / "card.json"
    card.parent.mkdir()
    if text == "loop":
        card.symlink_to(card)
    else:
        card.write_text(text)
    assert [entry.id for entry in list_cards()] == list(ENVIRONMENT_IDS)
    with pytest.raises(InvalidArgument, match="card"):
        load_card("mjcf:cat")


@pytest.mark.parametrize("change", [{"scales": None}, {"options": 3}, {"fields": {}}])
def test_a_card_with_a_damaged_entry_is_left_out_of_the_list(
    change: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    plain = load_card("Hopper-v5").to_dict() | {"id": "mjcf:cat"}
    (tmp_path / "mjcf:cat").mkdir()
    (tmp_path / "mjcf:cat" / "card.json").write_text(json.dumps(plain))
    assert list_cards()[-1].id == "mjcf:cat"
    (tmp_path / "mjcf:cat" / "card.json").write_text(json.dumps(plain | change))
    assert [entry.id for entry in list_cards()] == list(ENVIRONMENT_IDS)


def test_a_discrete_id_joins_too() -> None:
    env_id = adding.add_registered("gymnasium:Taxi-v4").id
    card = load_card(env_id)
    assert (card.action_kind, card.num_actions, card.action_shape) == ("discrete", 6, ())
    assert card.observation_size == 500  # one-hot
    batch = make_batch(env_id, 2, num_threads=1)
    assert batch.reset([1, 2]).sum(axis=1).tolist() == [1, 1]
    assert batch.step(np.array([0, 5])).reward.tolist() != [0, 0]
    with pytest.raises(InvalidArgument, match="integers from 0 to 5"):
        batch.step(np.array([0, 6]))


def test_a_model_that_cannot_be_read_any_more_says_what_to_do(
    dog: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(folder_of(dog), tmp_path / dog)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / dog / "model.mjb").write_bytes(b"of another version")
    with pytest.raises(InvalidArgument, match="add it again"):
        make_batch(dog, 1, num_threads=1)
    (tmp_path / dog / "model.mjb").unlink()
    with pytest.raises(Unavailable, match=r"model\.mjb is missing"):
        make_batch(dog, 1, num_threads=1)


def test_the_model_is_the_one_of_the_file(dog: str) -> None:
    model = task(dog).load()
    assert model.nmesh == 1
    assert model.body_mass.sum() == pytest.approx(2.4)
    assert mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_BODY, 1) == "trunk/main"
