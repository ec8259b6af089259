"""Environment cards: everything that a reward, a judge or a model needs of an environment.

A card is data. It is generated from the live environment (`python -m dressage.envs.generate`) into a JSON file of this
package, so that services without a simulator can serve it; a test checks that the files are current.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from dataclasses import field as with_default
from typing import Any, Literal

from dressage.envs import custom
from dressage.envs.catalogue import catalogue
from dressage.envs.forms import check_forms
from dressage.envs.packs.batched import tasks
from dressage.envs.packs.registry import PACKS
from dressage.errors import InvalidArgument, NotFound

_OWN = tuple(entry for entry in catalogue().values() if not entry.pack)

REWARD_ENVIRONMENT_IDS: tuple[str, ...] = tuple(entry.id for entry in _OWN if "reward" in entry.methods)
"""Environments that support the method ``reward``: they have a batch, a preset and null controls; without those of packs."""

SEARCH_ENVIRONMENT_IDS: tuple[str, ...] = tuple(entry.id for entry in _OWN if entry.methods == ("parameters", "code"))
"""Environments that only support methods without a reward of their own, without those of packs."""

PROGRAM_ENVIRONMENT_IDS: tuple[str, ...] = tuple(entry.id for entry in _OWN if entry.methods == ("program",))
"""Tasks of programs (`dressage.programs`); they only support the method ``program``."""

ENVIRONMENT_IDS: tuple[str, ...] = tuple(catalogue())
"""Environments that have a card, in the order in which they are listed."""

OptionValue = int | float | bool


@dataclass(frozen=True)
class Field:
    """One field of the state.

    :param name: attribute name in ``state`` and ``trajectory``.
    :param shape: shape of one row, without the leading axis of N environments or T+1 steps.
    :param unit: SI unit; ``1`` for none, ``mixed`` where the components differ.
    :param meaning: one phrase, with the sign convention where there is one.
    """

    name: str
    shape: tuple[int, ...]
    unit: str
    meaning: str


@dataclass(frozen=True)
class ObservationComponent:
    """One number of the stock observation, in order; clipped to ±``clip`` where that is given.

    :param group: words for a block of numbers that belong together, which a description shows as one line; else empty.
    """

    name: str
    unit: str
    meaning: str
    clip: float | None = None
    group: str = ""


@dataclass(frozen=True)
class ActionComponent:
    """One number of the action, in order."""

    name: str
    low: float
    high: float
    unit: str
    meaning: str


@dataclass(frozen=True)
class EnvironmentCard:
    """The description of one environment.

    :param time_step: seconds per environment step.
    :param termination: when an episode ends before its time limit, in words.
    :param scales: reference numbers: ``random_return`` (mean stock return of uniformly random actions),
        ``random_episode_steps``, ``motionless_return``, and for walkers ``standing_height`` (m) and
        ``typical_speed`` (m/s).
    :param action: what each number of a Box action does; of a discrete action one entry that describes the choices,
        with the bounds 0 and ``num_actions`` - 1.
    :param options: names and default values of the options that `EnvOptions` accepts here.
    :param num_actions: choices of a discrete action, numbered from 0; 0 for a Box action.
    :param num_observations: number of discrete observations, numbered from 0; 0 for other observations.
    :param methods: methods that support the environment.
    :param target: mean return from which it counts as solved; None: search methods need a target from the caller.
    :param pack: environment pack that must be installed to play it; empty: none.
    :param cameras: names of the cameras of the MuJoCo model, besides the one that follows the robot.
    """

    id: str
    title: str
    description: str
    fields: tuple[Field, ...]
    observation_components: tuple[ObservationComponent, ...]
    action: tuple[ActionComponent, ...]
    action_kind: Literal["box", "discrete"]
    observation_size: int
    time_step: float
    max_episode_steps: int
    can_terminate: bool
    termination: str
    stock_reward: str
    scales: Mapping[str, float] = with_default(default_factory=dict)
    example_intents: tuple[str, ...] = ()
    options: Mapping[str, OptionValue] = with_default(default_factory=dict)
    num_actions: int = 0
    num_observations: int = 0
    methods: tuple[str, ...] = ("reward",)
    target: float | None = None
    pack: str = ""
    cameras: tuple[str, ...] = ()

    @property
    def action_size(self) -> int:
        """Number of action components; 1 where the action is discrete."""
        return len(self.action)

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one action: (A,), or () where it is a single integer."""
        return () if self.action_kind == "discrete" else (self.action_size,)

    @property
    def has_video(self) -> bool:
        """Whether the renderer can draw it: there is a MuJoCo model, or its simulator has a camera. Custom environments have to
        be tried."""
        if self.pack:
            return PACKS[self.pack].camera or self.id in PACKS[self.pack].models
        entry = catalogue().get(self.id)
        return "program" not in self.methods and (entry is None or entry.simulated)

    @property
    def field_names(self) -> tuple[str, ...]:
        """Names of all fields, in order."""
        return tuple(entry.name for entry in self.fields)

    def field(self, name: str) -> Field:
        """Return the field of that name.

        :raises NotFound: naming near matches.
        """
        for entry in self.fields:
            if entry.name == name:
                return entry
        near = difflib.get_close_matches(name, self.field_names, n=4, cutoff=0.5) or self.field_names
        raise NotFound(f"{self.id} has no field {name!r}; near matches: {', '.join(near)}", reason="FIELD_NOT_FOUND")

    def to_dict(self) -> dict[str, Any]:
        """Return the card as JSON-ready data."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        for component in plain["observation_components"]:
            if not component["group"]:
                del component["group"]
        if not self.cameras:
            del plain["cameras"]
        return plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EnvironmentCard:
        """Build a card from `to_dict`'s data.

        :raises InvalidArgument: when a key is missing, unknown or of the wrong form.
        """
        if not isinstance(data, Mapping):
            raise InvalidArgument(field="card", value=type(data).__name__, expected="a card's dict")
        try:
            values = dict(data)
            fields = ({**entry, "shape": tuple(entry["shape"])} for entry in _entries(values, "fields"))
            values["fields"] = tuple(Field(**entry) for entry in fields)
            components = _entries(values, "observation_components")
            values["observation_components"] = tuple(ObservationComponent(**entry) for entry in components)
            values["action"] = tuple(ActionComponent(**entry) for entry in _entries(values, "action"))
            for name in ("example_intents", "methods", "cameras"):
                if isinstance(values.get(name), list | tuple):
                    values[name] = tuple(values[name])
            card = cls(**values)
            check_forms(card, "card")
            if len(set(card.field_names)) < len(card.fields):
                raise InvalidArgument(field="card.fields", value=card.field_names, expected="each name once only")
            return card
        except (KeyError, TypeError, RecursionError) as error:
            raise InvalidArgument(
                f"not an environment card: {error!r}", field="card", expected="a card's dict"
            ) from error


def _entries(values: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    entries: Sequence[Mapping[str, Any]] = values[name]
    if not isinstance(entries, list | tuple) or not all(isinstance(entry, Mapping) for entry in entries):
        raise InvalidArgument(field=f"card.{name}", value=entries, expected="a list of dicts")
    return entries


def load_card(env_id: str) -> EnvironmentCard:
    """Return the card of an environment.

    :param env_id: a Gymnasium id, such as ``HalfCheetah-v5``, or a custom one (`dressage.envs.custom`).
    :raises NotFound: listing the known ids, the nearest first.
    :raises InvalidArgument: for a custom environment whose card is damaged.
    """
    if custom.is_custom(env_id):
        return _custom_card(env_id)
    if env_id not in ENVIRONMENT_IDS:
        label = env_id if len(env_id) <= 60 else env_id[:57] + "..."
        if needs := tasks.needs_of(env_id):
            raise NotFound(
                f"{label!r} is a task of Isaac Lab that has no card, so it cannot be trained here yet. {needs} "
                f"Tasks with a card: {', '.join(PACKS['isaaclab'].environments)}",
                reason="ENVIRONMENT_NOT_FOUND",
                metadata={"environment": label},
            )
        nearest = _nearest_first(env_id)
        names = ", ".join(nearest)
        closest = _closest_id(env_id, nearest)
        raise NotFound(
            f"unknown environment {label!r}; {f'did you mean {closest}? ' if closest else ''}known environments: {names}",
            reason="ENVIRONMENT_NOT_FOUND",
            metadata={"environment": label, "known": names},
        )
    return _read_card(env_id)


def list_cards() -> tuple[EnvironmentCard, ...]:
    """Return the cards of all environments, custom ones last; a damaged one is left out (`load_card` raises what is wrong)."""
    cards = [load_card(env_id) for env_id in ENVIRONMENT_IDS]
    for env_id in custom.custom_ids():
        with contextlib.suppress(InvalidArgument, NotFound):  # one may be removed meanwhile
            cards.append(load_card(env_id))
    return tuple(cards)


def _closest_id(env_id: str, ids: Sequence[str]) -> str:
    """Return the id that a misspelt one probably stands for; empty if there is none."""
    folded = {each.lower(): each for each in ids}
    folded |= {each.lower().partition("-")[0]: each for each in ids}
    close = difflib.get_close_matches(env_id.lower(), folded, n=1, cutoff=0.75)
    return folded[close[0]] if close else ""


def _custom_card(env_id: str) -> EnvironmentCard:
    try:
        data = custom.read_card(env_id)
    except RecursionError as error:
        raise InvalidArgument(
            f"the card of {env_id!r} cannot be read: nested too deep",
            field="environment",
            expected="a card; add it again",
        ) from error
    return EnvironmentCard.from_dict(data)


@functools.cache
def _read_card(env_id: str) -> EnvironmentCard:
    text = catalogue()[env_id].card_file.read_text("utf-8")
    return EnvironmentCard.from_dict(json.loads(text))


def _nearest_first(env_id: str) -> list[str]:
    def distance(candidate: str) -> float:
        return -difflib.SequenceMatcher(a=env_id[:60].lower(), b=candidate.lower()).ratio()

    return sorted(ENVIRONMENT_IDS, key=distance)
