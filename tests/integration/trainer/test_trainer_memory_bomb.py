"""A reward that takes memory without end, in a container with little memory: the reward is blamed, not the machine.

The container is a real control group. The learner must reach its own limit, which derives from the group's, before the
kernel ends a process of the group: then the assignment ends as a fault of generated code, and is not tried again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("jax")
pytest.importorskip("mujoco")

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.sandbox.capabilities import capabilities
from google.protobuf.json_format import Parse

from tests.integration.trainer.memory_group import NoGroup, memory_group, run_in

pytestmark = pytest.mark.skipif(not capabilities().sufficient, reason="this kernel has no Landlock or seccomp")

LIMIT = 1792 << 20


def test_a_memory_bomb_in_a_small_container_is_the_rewards_fault(tmp_path: Path) -> None:
    try:
        with memory_group(LIMIT) as group:
            printed = run_in(group, tmp_path, seconds=280)
    except NoGroup as error:
        pytest.skip(str(error))
    result = Parse(printed, pb.AssignmentResult())
    assert result.failure.cause == pb.AssignmentFailure.CAUSE_GENERATED_CODE, printed
    assert result.failure.failure.reason == "LEARNER_OUT_OF_MEMORY"
    assert f"more memory than {LIMIT // 2 >> 20} MiB" in result.failure.failure.message
