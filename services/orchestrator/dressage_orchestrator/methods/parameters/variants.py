"""The variants of the search with a model, and the searches without one. Pure data.

A variant states who proposes, who revises, what evidence the revision is based on, and which candidate an iteration keeps. The
engine (`models.ModelSearch`) reads these fields and nothing else, so that a new variant is a new row. A profile states under
which conditions all variants are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dressage.policies.sb3_baselines import BASELINES

CONTROLS = ("random", "hill_climb", "cma_es")
"""Searches by the trainer, without a model."""
Second = Literal["none", "critic", "proposal", "independent"]


@dataclass(frozen=True)
class Variant:
    """A search with a model.

    :param second: origin of the second candidate of an iteration: ``none``; ``critic``, a revision of the first one;
        ``proposal``, a further proposal that is given the first one's return; ``independent``, a further proposal on the same
        history.
    :param describes: whether the proposer's prompt describes environment and intent.
    :param focus: what the critic is asked for (`CriticTask.focus`).
    :param rollout_labels: labels of the first candidate's rollouts that the evidence shows.
    :param statistics: whether the evidence has statistics over all episodes.
    :param rewards: whether the evidence shows the reward of each step.
    :param commits_second: whether an iteration always keeps the second candidate.
    :param limits_revision: whether a revision is limited from the revision threshold on, by default.
    :param trace: label of the rollout that the history shows for its latest entries; empty: none.
    :param trace_latest: whether the proposer is shown that rollout of the latest parameters.
    :param self_critique: whether the proposer drafts, criticises and revises in one reply.
    """

    name: str
    second: Second = "none"
    describes: bool = False
    focus: str = ""
    rollout_labels: tuple[str, ...] = ()
    statistics: bool = False
    rewards: bool = False
    commits_second: bool = False
    limits_revision: bool = False
    trace: str = ""
    trace_latest: bool = False
    self_critique: bool = False

    @property
    def calls(self) -> int:
        """Calls of the model in an iteration, and candidates that it evaluates."""
        return 1 if self.second == "none" else 2


_REPTRAJ = Variant(
    "reptraj",
    second="critic",
    focus="failure_point",
    rollout_labels=("nearest_mean",),
    rewards=True,
    trace="nearest_mean",
)

VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("props"),
        Variant("props_plus", describes=True, trace="first"),
        Variant(
            "r2po",
            second="critic",
            focus="diagnosis",
            rollout_labels=("median",),
            statistics=True,
            limits_revision=True,
        ),
        _REPTRAJ,
        Variant(
            "always_critic",
            second="critic",
            focus="failure_point",
            rollout_labels=("nearest_mean",),
            rewards=True,
            commits_second=True,
            trace="nearest_mean",
        ),
        Variant(
            "three_traj", second="critic", focus="contrast", rollout_labels=("worst", "median", "best"), rewards=True
        ),
        Variant(
            "critic_only",
            describes=True,
            rollout_labels=("nearest_mean",),
            rewards=True,
            trace="nearest_mean",
            trace_latest=True,
            self_critique=True,
        ),
        Variant("pure_search", second="independent"),
        Variant("actor_second_pass", second="proposal"),
    )
}

SEARCHES = (*VARIANTS, *CONTROLS, *BASELINES)
"""All values of ``spec.parameters.search``."""


@dataclass(frozen=True)
class Profile:
    """Conditions under which variants are compared.

    :param paired: whether all candidates of a session are played on the same seeds.
    :param enforced: whether the range of parameters is enforced.
    :param losers: whether the history also has the candidates that an iteration did not keep.
    :param is_bounded: whether evidence is bounded: head, tail and decisive steps instead of whole rollouts.
    :param rule: revision rule of the variants that limit revisions.
    :param digits: significant digits of parameters in prompts, by variant; ``""`` is the default.
    :param iterations: number of iterations that prompts give, by variant; others give the true number.
    :param traced: latest entries of the history that show a rollout, by variant and kind of policy.
    """

    name: str
    paired: bool
    enforced: bool
    losers: bool
    is_bounded: bool
    rule: str
    digits: dict[str, int]
    iterations: dict[str, int]
    traced: dict[str, tuple[int, int]]

    def latest_with_rollout(self, variant: Variant, *, table: bool) -> int:
        """Return how many of the latest entries of the history show a rollout."""
        tables, others = self.traced.get(variant.name, self.traced[""])
        return tables if table else others


CORRECTED = Profile(
    "corrected",
    paired=True,
    enforced=True,
    losers=True,
    is_bounded=True,
    rule="skip",
    digits={"": 3},
    iterations={},
    traced={"": (5, 5)},
)
PAPER = Profile(
    "r2po-paper",
    paired=False,
    enforced=False,
    losers=False,
    is_bounded=False,
    rule="text",
    digits={"": 3, "props": 5},
    iterations={"props": 400, "props_plus": 400},
    # ProPS+ shows the whole first rollout of every past table, and none of a linear policy, though its prompt promises it.
    traced={"": (100, 5), "props_plus": (1000, 0), "critic_only": (0, 0)},
)
PROFILES = {profile.name: profile for profile in (CORRECTED, PAPER)}
