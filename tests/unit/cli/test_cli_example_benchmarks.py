"""The cases under examples/benchmarks are read by `dressage bench`, and those of MuJoCo can be trained."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import protovalidate
import pytest
from dressage.api.v1 import benchmark_service_pb2 as pb
from dressage.api.v1 import session_pb2 as v1
from dressage.cli.listings import cut
from dressage.envs.cards import load_card
from dressage.envs.packs.batched.tasks import registry
from dressage.errors import NotFound
from dressage.experiments.files import read_cases

FOLDER = Path(__file__).parents[3] / "examples" / "benchmarks"
CATEGORIES = {"locomotion", "balance", "pose", "style", "acrobatic", "manipulation"}


def cases(name: str) -> list[pb.BenchmarkCase]:
    return list(read_cases(FOLDER / f"{name}.csv", v1.SessionSpec()).request.cases)


@pytest.mark.parametrize("name", ["mujoco_exotic", "isaac_lab"])
def test_each_case_is_a_valid_session_and_occurs_once(name: str) -> None:
    listed = cases(name)
    assert len({(case.environment, case.intent) for case in listed}) == len(listed)
    for case in listed:
        protovalidate.validate(v1.SessionSpec(intent=case.intent, environment=case.environment))
        assert case.category in CATEGORIES and case.difficulty in ("easy", "medium", "hard"), cut(case.intent)


def test_fifteen_cases_have_environments_of_this_package() -> None:
    listed = cases("mujoco_exotic")
    assert Counter(case.environment for case in listed) == {
        f"environments/{name}": 5 for name in ("Ant-v5", "HalfCheetah-v5", "Humanoid-v5")
    }
    assert all("reward" in load_card(case.environment.removeprefix("environments/")).methods for case in listed)


def test_sixty_four_cases_cover_sixteen_environments_of_isaac_lab() -> None:
    listed = cases("isaac_lab")
    assert len(listed) == 64 and len({case.environment for case in listed}) == 16
    assert Counter(case.difficulty for case in listed) == {"easy": 9, "medium": 31, "hard": 24}
    known = {f"environments/{task.id}" for task in registry()}
    assert {case.environment for case in listed} <= known
    trained = [case for case in listed if case.environment == "environments/Isaac-Cartpole-Direct"]
    assert len(trained) == 2 and "reward" in load_card("Isaac-Cartpole-Direct").methods


def test_a_task_of_isaac_lab_without_a_card_is_named_with_what_it_needs() -> None:
    with pytest.raises(NotFound, match=r"'Isaac-Velocity-Flat-H1' .* no card.* newton.* with a card: .*Isaac-Cartpole"):
        load_card("Isaac-Velocity-Flat-H1")
    with pytest.raises(NotFound, match=r"Isaac Sim.*pypi\.nvidia\.com"):
        load_card(next(task.id for task in registry() if task.backend == "physx"))
