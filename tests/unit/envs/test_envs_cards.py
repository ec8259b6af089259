"""Cards: current, complete, readable by a person or a model, and loaded without a simulator."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from dressage.contracts.judge import TrajectoryView
from dressage.envs import (
    ENVIRONMENT_IDS,
    REWARD_ENVIRONMENT_IDS,
    SEARCH_ENVIRONMENT_IDS,
    EnvironmentCard,
    State,
    list_cards,
    load_card,
    load_check_trajectories,
    make_batch,
)
from dressage.envs.catalogue import catalogue
from dressage.envs.describe import describe
from dressage.envs.generate import build_card, differences
from dressage.errors import InvalidArgument, NotFound
from hypothesis import given
from hypothesis import strategies as st

GENERATED = [*REWARD_ENVIRONMENT_IDS, *SEARCH_ENVIRONMENT_IDS]
"""Environments whose card is generated here; those of packs need the pack (tests/integration/trainer/test_trainer_packs.py)."""


@pytest.mark.parametrize("env_id", GENERATED)
def test_cards_on_disk_are_what_the_live_environment_gives(env_id: str) -> None:
    live = build_card(env_id, measure=False).to_dict()
    disk = load_card(env_id).to_dict()
    scales = disk.pop("scales")
    live.pop("scales")
    assert disk == live
    assert scales["random_episode_steps"] <= load_card(env_id).max_episode_steps


def test_measured_scales_are_current() -> None:
    assert differences("InvertedPendulum-v5") == []


@pytest.mark.slow
@pytest.mark.parametrize("env_id", GENERATED)
def test_all_measured_scales_are_current(env_id: str) -> None:
    assert differences(env_id) == []


def test_known_scales_of_half_cheetah() -> None:
    scales = load_card("HalfCheetah-v5").scales
    assert -350 < scales["random_return"] < -250  # published baselines give about -280
    assert 0.4 < scales["standing_height"] < 0.7
    assert 1 < scales["typical_speed"] < 4


REWARD_CARDS = [load_card(env_id) for env_id in REWARD_ENVIRONMENT_IDS]


@pytest.mark.parametrize("card", REWARD_CARDS, ids=lambda card: card.id)
def test_every_field_of_the_card_has_the_shape_it_says(card: EnvironmentCard) -> None:
    batch = make_batch(card.id, 3, num_threads=1)
    batch.reset([1, 2, 3])
    state = batch.step(np.zeros((3, *card.action_shape), dtype=np.int64)).next_state
    assert tuple(state.fields) == card.field_names
    for field in card.fields:
        assert state.fields[field.name].shape == (3, *field.shape), field.name
        assert field.name.isidentifier()
        assert field.unit in {"m", "m/s", "rad", "rad/s", "s", "1", "N", "mixed"}
        assert field.meaning
    assert len(set(card.field_names)) == len(card.field_names)
    assert card.observation_size == len(card.observation_components) == batch.observation_size


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Hopper-v5", "Walker2d-v5"])
def test_positive_pitch_lifts_the_nose(env_id: str) -> None:
    """On the live model: turn the torso by the pitch of the card, and see where a point ahead of it goes."""
    import mujoco
    from dressage.envs.layout import layout_of
    from dressage.envs.loading import load_model
    from dressage.envs.tasks import task

    model = load_model(catalogue()[env_id].model_file)
    data = mujoco.MjData(model)
    data.joint("rooty").qpos[0] += 0.3
    mujoco.mj_forward(model, data)
    fields = {entry.field.name: entry for entry in task(env_id).fields(layout_of(model))}
    pitch = fields["pitch"].function({"qpos": data.qpos[None]})[0]
    ahead = data.body("torso").xmat.reshape(3, 3) @ (1.0, 0.0, 0.0)
    assert np.sign(pitch) == np.sign(ahead[2])
    assert abs(pitch) == pytest.approx(0.3)
    assert fields["z_position"].function({"qpos": data.qpos[None]})[0] == pytest.approx(data.body("torso").xpos[2])


@pytest.mark.parametrize(
    ("env_id", "foot"), [("HalfCheetah-v5", "bfoot"), ("Hopper-v5", "foot"), ("Walker2d-v5", "foot")]
)
def test_touching_agrees_with_the_contacts_of_the_simulator(env_id: str, foot: str) -> None:
    import gymnasium
    from dressage.envs.layout import layout_of
    from dressage.envs.tasks import task

    env = gymnasium.make(env_id)
    env.reset(seed=1)
    env.action_space.seed(1)
    model, data = env.unwrapped.model, env.unwrapped.data
    layout = layout_of(model)
    field = {entry.field.name: entry for entry in task(env_id).fields(layout)}[f"touching_{foot}"]
    geom, seen = layout.body_capsule[foot].id, set()
    for _ in range(150):
        *_, terminated, truncated, _ = env.step(env.action_space.sample() * 0.5)
        contacts = any(geom in contact.geom and 0 in contact.geom for contact in data.contact)
        raw = {name: np.array(getattr(data, name))[None] for name in field.sources}
        touching = bool(field.function(raw)[0])
        seen.add(touching)
        # Runge-Kutta leaves contacts and poses of slightly different instants behind.
        if model.opt.integrator == 0:
            assert touching == contacts
        if terminated or truncated:
            env.reset()
    assert seen == {True, False}


@pytest.mark.parametrize("card", REWARD_CARDS, ids=lambda card: card.id)
def test_rewards_and_judges_read_exactly_the_fields_of_the_card(card: EnvironmentCard) -> None:
    """By what each of them is given: the state, a recorded trajectory, and the judge's view of one."""
    batch = make_batch(card.id, 1, num_threads=1)
    batch.reset([1])
    state = batch.state()
    assert set(dir(state)) - {"fields", "rows"} == set(card.field_names)
    episode = load_check_trajectories(card.id)["random"][0]
    assert tuple(episode.fields) == card.field_names
    view = TrajectoryView(episode)
    facts = {"action", "reward", "num_steps", "terminated", "truncated", "environment", "time_step"}
    assert set(vars(view)) - facts == set(card.field_names)
    for name in card.field_names:
        assert getattr(state, name).shape[1:] == getattr(view, name).shape[1:] == card.field(name).shape
    for wrong in (f"{card.field_names[-1]}_", "nothing"):
        for reader in (state, episode, view):
            with pytest.raises(AttributeError, match=wrong):
                getattr(reader, wrong)


def test_no_simulator_is_imported_with_the_package() -> None:
    code = (
        "import sys, dressage.envs as e; e.list_cards(); e.load_check_trajectories('Hopper-v5'); "
        "import dressage.envs.reference; from dressage.envs.describe import describe; describe(e.load_card('Hopper-v5')); "
        "print({'mujoco', 'gymnasium', 'jax', 'torch', 'grpc'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == "set()"


@pytest.mark.parametrize("card", list_cards(), ids=lambda card: card.id)
def test_the_description_names_everything_and_stays_compact(card: EnvironmentCard) -> None:
    text = describe(card)
    for name in (*card.field_names, *(part.name for part in card.action), *card.scales):
        assert name in text
    assert f"{card.time_step:g} s" in text
    assert len(text) < 14_000
    assert all(len(line) < 400 for line in text.splitlines())


def test_the_description_has_units() -> None:
    text = describe(load_card("HalfCheetah-v5"))
    assert "standing_height = 0.5676 m\n" in text and " m/s\n" in text and "random_episode_steps = 1000 steps" in text
    assert "bthigh in [-1, 1] — motor" in text and "touching_bfoot (N,) — 1 when" in text


@pytest.mark.parametrize("card", list_cards(), ids=lambda card: card.id)
def test_cards_survive_json(card: EnvironmentCard) -> None:
    assert EnvironmentCard.from_dict(json.loads(json.dumps(card.to_dict()))) == card


@given(st.dictionaries(st.sampled_from(["id", "fields", "action", "x"]), st.integers() | st.none()))
def test_what_is_no_card_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        EnvironmentCard.from_dict(data)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.just(10**400) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@pytest.mark.parametrize("data", ["x", 3, None, [], [["id", "Hopper-v5"]], True])
def test_a_card_that_is_no_mapping_is_refused(data: object) -> None:
    with pytest.raises(InvalidArgument, match="card"):
        EnvironmentCard.from_dict(data)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("title", "half a pair: \ud800"),
        ("scales", None),
        ("scales", {"random_return": None}),
        ("options", ["max_episode_steps"]),
        ("options", {"max_episode_steps": "many"}),
        ("fields", ["x"]),
        ("fields", [{"name": "x", "shape": [], "unit": "m", "meaning": "where"}] * 2),
        ("action", []),
        ("action", [{"name": "a", "low": "-1", "high": 1, "unit": "1", "meaning": "push"}]),
        ("action_kind", "other"),
        ("time_step", "0.02"),
        ("observation_size", None),
        ("example_intents", "run"),
    ],
)
def test_an_entry_of_the_wrong_form_is_named(name: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=f"card.{name}"):
        EnvironmentCard.from_dict({**load_card("Hopper-v5").to_dict(), name: value})


@given(st.data())
def test_a_card_with_any_entry_replaced_is_refused_or_can_be_shown(data: st.DataObject) -> None:
    plain = load_card(data.draw(st.sampled_from(["Hopper-v5", "CartPole-v1"]))).to_dict()
    place: dict[str, object] = plain
    key = data.draw(st.sampled_from(sorted(plain)))
    entries = plain[key]
    if isinstance(entries, list) and isinstance(entries[0], dict) and data.draw(st.booleans()):
        place = entries[data.draw(st.integers(0, len(entries) - 1))]
        key = data.draw(st.sampled_from(sorted(place)))
    place[key] = data.draw(JSON_VALUES)
    try:
        card = EnvironmentCard.from_dict(plain)
    except InvalidArgument:
        return
    assert describe(card)
    assert card.action_size >= 1
    json.dumps(card.to_dict())


@given(st.text(max_size=80))
def test_unknown_environments_are_not_found(name: str) -> None:
    with pytest.raises(NotFound) as error:
        load_card(name + "?")
    assert all(known in error.value.message for known in ENVIRONMENT_IDS)


def test_the_nearest_environment_is_named_first() -> None:
    with pytest.raises(NotFound, match=r"known environments: Walker2d-v5, "):
        load_card("walker2d-v4")


def test_an_unknown_field_names_its_near_matches() -> None:
    state = State({"x_velocity": np.zeros(2), "pitch": np.zeros(2)})
    with pytest.raises(AttributeError, match=r"no field 'x_velocty'; near matches: x_velocity"):
        _ = state.x_velocty
    with pytest.raises(NotFound, match="x_velocity"):
        load_card("Hopper-v5").field("x_velocty")


def test_a_state_is_read_only_and_selects_rows() -> None:
    state = State({"x_velocity": np.arange(4.0), "xpos_torso": np.arange(12.0).reshape(4, 3)})
    with pytest.raises(AttributeError):
        state.x_velocity = np.zeros(4)
    with pytest.raises(ValueError, match="read-only"):
        state.x_velocity[0] = 1
    rows = state.rows([2, 0])
    assert rows.x_velocity.tolist() == [2, 0]
    assert rows.xpos_torso.shape == (2, 3)


def test_the_data_of_an_environment_stay_small():
    for entry in catalogue().values():
        assert sum(path.stat().st_size for path in entry.path.rglob("*") if path.is_file()) < 1_000_000, entry.id
