# mypy: warn-unused-ignores
"""A program that uses the functions of `dressage`; `make lint` checks its types. It is never run.

Each `type: ignore` is an error that a type checker has to find.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import dressage
import numpy as np
from dressage.api.v1 import session_pb2


def results() -> None:
    """Functions and their results."""
    result = dressage.run("hop", env="Hopper-v5", seeds=2, env_options={"max_episode_steps": 100}, quiet=True)
    assert_type(result.score, float | None)
    assert_type(result.video, Path | None)
    action, _ = result.policy.predict(np.zeros(11), deterministic=True)
    print(action.shape, dressage.__version__)
    if result.curve is not None:
        assert_type(result.curve.training["default"].steps, list[float])
    assert_type(dressage.train("r.py", env="Hopper-v5"), dressage.Result)
    assert_type([problem.rule for problem in dressage.check(results, env="Hopper-v5").problems], list[str])
    assert_type(dressage.evaluate(dressage.load(b""), episodes=3).mean_return, float)
    dressage.make_env("Hopper-v5", reward=results).reset(seed=1)
    raise dressage.errors.NotFound("nothing")


def clients(client: dressage.Client) -> None:
    """The blocking client has the types of the asynchronous one."""
    assert_type(client.get_session("s"), session_pb2.Session)
    assert_type(list(client.list_sessions(page_size=3)), list[session_pb2.Session])
    client.get_session(3)  # type: ignore[arg-type]
    client.list_sessions(page=3)  # type: ignore[call-arg]


def mistakes() -> None:
    """What a type checker refuses."""
    dressage.run("hop", env=3)  # type: ignore[arg-type]
    dressage.train("r.py", env="Hopper-v5", seeds="two")  # type: ignore[arg-type]
    dressage.result("s").score.upper()  # type: ignore[union-attr]
    dressage.runn  # type: ignore[attr-defined]  # noqa: B018
