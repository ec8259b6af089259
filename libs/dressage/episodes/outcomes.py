"""Results of whole episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dressage.errors import InvalidArgument

Array = NDArray[Any]


@dataclass(frozen=True)
class Outcomes:
    """Episodes of P candidates.

    :param returns: (P, E) float64, undiscounted.
    :param lengths: (P, E) int64; -n where the policy's n-th action was not a number, which ended the episode.
    """

    returns: Array
    lengths: Array

    def check(self, action_size: int) -> Outcomes:
        """Return the outcomes.

        :raises InvalidArgument: if a policy's output was no action of the environment.
        """
        if (self.lengths < 0).any():
            step = -int(self.lengths[self.lengths < 0][0]) - 1
            expected = f"{action_size} finite numbers at step {step}"
            raise InvalidArgument(field="action", value="not a number", expected=expected)
        return self
