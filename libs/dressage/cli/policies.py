"""`dressage eval` and `dressage export`: what a finished policy does, and what other programs need of it.

Evaluation runs stock Gymnasium, never our batched simulator, and puts the random policy beside the trained one.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dressage import errors
from dressage.cli import output
from dressage.cli.connection import Where, connect
from dressage.cli.progress import counted, return_text, short

_RESAMPLES = 2000
_TOGETHER = 16
"""Episodes in lockstep. A recorded step takes some 10 kB, so that these take 160 MB where they last 1,000 steps."""


@asynccontextmanager
async def bundle_folder(bundle: str, where: Where) -> AsyncIterator[Path]:
    """The folder of a bundle: the one that is named, or that of a session's best policy.

    :raises NotFound: if the text names neither.
    """
    path = Path(bundle).expanduser()
    if path.is_dir() or path.is_file():
        yield path if path.is_dir() else path.parent
        return
    if "/" in bundle.removeprefix("sessions/") or "." in bundle:
        raise errors.NotFound(f"BUNDLE: {bundle!r} is no folder of a policy bundle and no session's id")
    async with connect(where) as connection:
        session = await connection.client.get_session(bundle)
        if not session.best_policy:
            raise errors.FailedPrecondition(f"{session.name} has no policy yet", reason="NO_POLICY")
        local = connection.local_path(session.best_policy)
        if local is not None:
            yield local
            return
        scratch = Path(tempfile.mkdtemp(prefix="dressage-policy-"))
        try:
            await connection.client.download_artifacts(session.best_policy, scratch)
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@dataclass(frozen=True)
class Episodes:
    """What a policy did in some episodes."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    speeds: tuple[float, ...] | None
    seconds: float

    def to_dict(self, rng: np.random.Generator) -> dict[str, Any]:
        """Means with 95 % bootstrap intervals, and throughput."""
        facts: dict[str, Any] = {
            "episodes": len(self.returns),
            "mean_return": float(np.mean(self.returns)),
            "return_interval": bootstrap_interval(self.returns, rng),
            "return_std": float(np.std(self.returns)),
            "mean_length": float(np.mean(self.lengths)),
            "mean_speed": None,
            "speed_interval": None,
            "steps_per_second": sum(self.lengths) / self.seconds if self.seconds > 0 else None,
        }
        if self.speeds is not None:
            facts["mean_speed"] = float(np.mean(self.speeds))
            facts["speed_interval"] = bootstrap_interval(self.speeds, rng)
        return facts


def bootstrap_interval(values: Sequence[float], rng: np.random.Generator) -> list[float]:
    """The 95 % percentile bootstrap interval of the mean; both ends are the value itself if there is but one."""
    samples = np.asarray(values, dtype=np.float64)
    means = rng.choice(samples, size=(_RESAMPLES, len(samples))).mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return [float(low), float(high)]


def evaluate(bundle: str, where: Where, *, episodes: int, seed: int, as_json: bool) -> None:
    """Evaluates a policy and prints what came out."""

    async def work() -> dict[str, Any]:
        async with bundle_folder(bundle, where) as folder:
            return await asyncio.to_thread(measure, folder, episodes=episodes, seed=seed)

    facts = asyncio.run(work())
    if as_json:
        output.print_json(facts)
        return
    rows = [(name, *_row(facts[name])) for name in ("policy", "random")]
    title = f"{facts['environment']}, {counted(episodes, 'episode')} of stock Gymnasium from seed {seed}"
    output.print_table(("", "return", "95 % interval", "m/s", "steps", "steps/s"), rows, title=title)


def _row(facts: dict[str, Any]) -> tuple[str, ...]:
    low, high = facts["return_interval"]
    return (
        return_text(facts["mean_return"], decimals=1),
        f"{return_text(low, decimals=1)} to {return_text(high, decimals=1)}",
        "" if facts["mean_speed"] is None else f"{facts['mean_speed']:.2f}",
        f"{facts['mean_length']:.0f}",
        f"{facts['steps_per_second']:,.0f}",
    )


def measure(folder: Path, *, episodes: int, seed: int) -> dict[str, Any]:
    """Episodes of a bundle's policy and of the random one, on equal seeds.

    An episode depends on its seed alone, not on how many are run: the random policy begins anew with each. A trained
    policy's actions for several observations at once may differ from those for one in the last bits.

    :raises InvalidArgument: if the bundle is none.
    """
    from dressage.envs.options import EnvOptions
    from dressage.envs.reference import random_policy
    from dressage.policies import load

    policy = load(folder)
    card = policy.description
    options = EnvOptions.from_dict(card.environment_options)
    rng, seeds = np.random.default_rng(0), range(seed, seed + episodes)

    def random(first: int) -> Any:
        # A stream of its own: that of the bare seed is what Gymnasium draws the first state from.
        return random_policy(card.environment, int(np.random.SeedSequence((first, 1)).generate_state(1)[0]))

    trained = _episodes(lambda _: policy.act, card.environment, options, seeds, together=_TOGETHER)
    return {
        "environment": card.environment,
        "bundle": str(folder),
        "seed": seed,
        "policy": trained.to_dict(rng),
        "random": _episodes(random, card.environment, options, seeds, together=1).to_dict(rng),
    }


def _episodes(policy: Callable[[int], Any], environment: str, options: Any, seeds: range, *, together: int) -> Episodes:
    """Figures of one episode per seed; of the recordings, which are large, only those of a part are held at a time.

    :param policy: the policy of a part, by its first seed.
    :param together: episodes of a part, which run in lockstep.
    """
    from dressage.envs.reference import rollout

    returns: list[float] = []
    lengths: list[int] = []
    speeds: list[float] = []
    begin = time.perf_counter()
    for start in range(0, len(seeds), together):
        part = seeds[start : start + together]
        for trajectory in rollout(policy(part[0]), environment, part, options, batched=True):
            returns.append(float(np.sum(trajectory.reward)))
            lengths.append(trajectory.num_steps)
            if "x_velocity" in trajectory.fields:
                speeds.append(float(np.mean(trajectory.x_velocity[1:])))
    seconds = time.perf_counter() - begin
    moves = len(speeds) == len(returns)
    return Episodes(tuple(returns), tuple(lengths), tuple(speeds) if moves else None, seconds)


def export(bundle: str, where: Where, *, form: str, out: Path | None, as_json: bool) -> None:
    """Exports a policy and prints the files written."""

    async def work() -> list[Path]:
        async with bundle_folder(bundle, where) as folder:
            return await asyncio.to_thread(write_export, folder, form, out or _default_out(bundle, form))

    written = asyncio.run(work())
    if as_json:
        output.print_json({"format": form, "files": [str(path) for path in written]})
    else:
        print("\n".join(str(path) for path in written))


def _default_out(bundle: str, form: str) -> Path:
    """In the working folder: named after the session, or after the folder of the bundle, whichever way it is told."""
    path, name = Path(bundle).expanduser(), short(bundle.rstrip("/"))
    if path.exists():  # `.` and `..` have no name of their own, and a file's is not the policy's
        name = (path if path.is_dir() else path.parent).resolve().name
    name = name or "policy"
    return Path(f"{name}.onnx" if form == "onnx" else f"{name}-sb3")


def write_export(folder: Path, form: str, out: Path) -> list[Path]:
    """Writes a bundle's policy in another format; returns the files.

    :raises FailedPrecondition: if a package that the format needs is not installed, or the format has no such kind of policy.
    :raises InvalidArgument: if the place cannot be written to.
    """
    from dressage.policies import load, to_onnx, to_sb3

    policy = load(folder)
    with output.writing("--out", out):
        if form == "onnx":
            target = out / "policy.onnx" if out.is_dir() else out
            target.parent.mkdir(parents=True, exist_ok=True)
            return [to_onnx(policy, target)]
        return list(to_sb3(policy, out))
