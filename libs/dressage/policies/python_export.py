"""A code policy as one Python file that plays its environment with Gymnasium only."""

from __future__ import annotations

import json
import os
from pathlib import Path

from dressage.errors import FailedPrecondition
from dressage.policies.bundle import write_file
from dressage.policies.code import CodePolicy

_REGISTERED = "gymnasium:"
_MODEL = "mjcf:"

_MAIN = '''

def main():
    """Play episodes and print their returns: python FILE --episodes 10 --seed 0"""
    import argparse

    import gymnasium
    import numpy

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first episode")
    given = parser.parse_args()
    environment, options = {environment!r}, {options!r}
    if environment not in gymnasium.registry:  # one of Dressage's own
        from dressage.envs.small import register

        register()
    env = gymnasium.make(environment, **options)
    seen, space = env.observation_space, env.action_space

    def observe(observation):
        """Return a copy of the flat observation, or the number of a discrete one."""
        if isinstance(seen, gymnasium.spaces.Discrete):
            return int(observation) - int(seen.start)
        return numpy.array(gymnasium.spaces.flatten(seen, observation), numpy.float64)

    def convert(action):
        """Return the action as the environment takes it; continuous ones are clipped to the bounds."""
        if isinstance(space, gymnasium.spaces.Discrete):
            return int(action) + int(space.start)
        low, high = space.low.ravel().astype(numpy.float64), space.high.ravel().astype(numpy.float64)
        clipped = numpy.clip(numpy.asarray(action, numpy.float64), low, high)
        return clipped.astype(space.dtype).reshape(space.shape)

    returns = []
    for seed in range(given.seed, given.seed + given.episodes):
        policy, total, ended = Policy(), 0.0, False
        policy.reset()
        observation, _ = env.reset(seed=seed)
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(convert(policy.act(observe(observation))))
            total, ended = total + float(reward), terminated or truncated
        print(f"seed {{seed}}: return {{total:.6g}}")
        returns.append(total)
    print(f"mean return of {{len(returns)}} episodes: {{sum(returns) / max(1, len(returns)):.6g}}")


if __name__ == "__main__":
    main()
'''


def to_python(policy: CodePolicy, path: str | os.PathLike[str]) -> Path:
    """Write the policy's source with a ``main`` that plays episodes.

    :returns: the file.
    :raises FailedPrecondition: if Gymnasium has no such environment.
    """
    name = policy.environment.removeprefix(_REGISTERED)
    if name.startswith(_MODEL):
        message = (
            f"{name} is a custom model, which Gymnasium does not have, so that its policies have no export to Python"
        )
        raise FailedPrecondition(message, reason="EXPORT_UNSUPPORTED")
    options = json.loads(json.dumps(policy.environment_options))
    head = f"# A policy for {name}, exported by Dressage. SHA-256 of its source: {policy.sha256}\n"
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    source = head + policy.source.rstrip() + "\n" + _MAIN.format(environment=name, options=options)
    write_file(target, source.encode())
    return target
