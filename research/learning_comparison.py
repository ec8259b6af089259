"""Compare what the stacked PPO and Stable-Baselines3's PPO learn, with many seeds and equal hyperparameters.

Both backends train the same members (seed by seed, the same hyperparameters) on the same batched simulation with the
same reward. The deterministic policies are then evaluated on stock Gymnasium. The comparison is of the interquartile
mean of the final returns over seeds; the lower 95 % bootstrap bound of the difference should be above -10 % of SB3's. The
mean return over the whole training is compared too: it differs where one learns more slowly and both end with the same
return.

Writes a table and plots into ``--out`` (``docs/learning/``), and the returns of every seed into ``--work``
(``figures.json``). Each part of the work is stored in ``--work`` when it ends, so an interrupted run continues from there.

    python research/learning_comparison.py --env HalfCheetah-v5
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from support.equal_settings import ENVIRONMENTS, hyperparameters  # noqa: E402

OUT = ROOT / "docs" / "learning"
CHUNK = 5
"""Seeds in a part of the work."""
MARGIN = -0.10
_INTRODUCTION = (
    "`research/learning_comparison.py` writes this page. Both sides use equal hyperparameters (listed there) and the same "
    "batched environments. The figures are interquartile means over seeds of the final returns of the deterministic policies "
    "on stock Gymnasium, and their difference with its "
    "95 % bootstrap bounds. The last column compares the mean return of the training episodes over the whole training: it "
    "shows where one learns more slowly and both end with the same return.",
    "",
    "[What was tried](tried.md) explains how the hyperparameters and numbers of seeds were chosen. With the same random "
    "numbers instead of independent seeds, both end with the same returns on all three: [ten pairs of each](same_chance.md).",
)
_RESAMPLES = 10_000
HEADER = "| environment | {counted} | steps | ours | SB3 | difference | 95 % bounds | lower bound above −10 % |"
RULE = "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"


def train(
    backend: str, environment: str, seeds: list[int], steps: int, *, threads: int, episodes: int
) -> dict[str, Any]:
    """Final stock returns of each seed's deterministic policy, and the learning curves by the trained reward."""
    from dressage.contracts.reward import load_reward
    from dressage.envs import EnvOptions, make_batch
    from dressage.envs.cards import load_card
    from dressage_trainer.backends.group import MemberSetup
    from dressage_trainer.messages import MemberTask, TrainSpec
    from support.ours import REWARDS, stock_returns

    build: Any
    if backend == "sb3":
        from dressage_trainer.backends.sb3.groups import build_groups as build
    else:
        from dressage_trainer.backends.stacked import build_groups as build
    card, source = load_card(environment), REWARDS[environment]
    values = hyperparameters(environment)
    members = tuple(MemberTask(f"s{seed}", values, seed) for seed in seeds)
    spec = TrainSpec(
        environment=environment,
        reward_source=source,
        members=members,
        steps_per_member=steps,
        threads=threads,
        backend=backend,
    )
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        module, root = load_reward(source, card), Path(folder)
        setup = MemberSetup(spec=spec, card=card, options=EnvOptions(), module=module, root=root)
        groups = list(build(setup, make_batch=make_batch))
        while pending := [group for group in groups if group.steps < steps and not group.all_stopped]:
            min(pending, key=lambda group: group.steps).advance(began=time.monotonic())
        seconds = time.perf_counter() - began
        policies = [policy for group in groups for policy in group.policies()]
        for group in groups:
            group.close()
        curves = {member.member: _curve(root / "members" / member.member / "metrics.jsonl") for member in members}
    returns = {policy.member: stock_returns(policy, environment, episodes) for policy in policies}
    return {"returns": returns, "curves": curves, "seconds": seconds, "hyperparameters": values}


def _curve(path: Path) -> list[list[float]]:
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [[row["step"], row["episode_return"]] for row in rows if row["episode_return"] is not None]


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Mean of the middle half over the last axis; partial weights where a quarter is no whole number."""
    ordered = np.sort(values, axis=-1)
    count = ordered.shape[-1]
    edges = np.arange(count + 1) / count
    weights = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0.0, None) * 2.0
    mean: np.ndarray = (ordered * weights).sum(-1)
    return mean


def compare(
    ours: np.ndarray, theirs: np.ndarray, rng: np.random.Generator, *, paired: bool = False
) -> dict[str, float]:
    """Interquartile means over seeds, and the relative difference with its 95 % bootstrap bounds.

    :param paired: a seed is the same chance for both sides, so that pairs are drawn; otherwise each side's are by themselves.
    """
    drawn = rng.integers(len(ours), size=(_RESAMPLES, len(ours)))
    theirs_drawn = drawn if paired else rng.integers(len(theirs), size=(_RESAMPLES, len(theirs)))
    differences = interquartile_mean(ours[drawn]) - interquartile_mean(theirs[theirs_drawn])
    mine, reference = float(interquartile_mean(ours)), float(interquartile_mean(theirs))
    low, high = np.percentile(differences, [2.5, 97.5]) / abs(reference)
    return {"ours": mine, "sb3": reference, "difference": (mine - reference) / abs(reference), "low": low, "high": high}


def on_one_grid(results: dict[str, dict[str, Any]], points: int = 200) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Steps that every seed of every backend has, and by backend the training returns there, `[seeds, points]`."""
    curves = {
        name: [np.array(curve) for curve in result["curves"].values() if curve] for name, result in results.items()
    }
    every = [curve for members in curves.values() for curve in members]
    grid = np.linspace(max(m[0, 0] for m in every), min(m[-1, 0] for m in every), points)
    return grid, {
        name: np.stack([np.interp(grid, m[:, 0], m[:, 1]) for m in members]) for name, members in curves.items()
    }


def draw(environment: str, results: dict[str, dict[str, Any]], path: Path) -> None:
    """Learning curves: each seed thin, the mean thick."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), dpi=120, layout="constrained")
    axes: Any = figure.add_subplot()
    grid, curves = on_one_grid(results)
    for (backend, values), colour in zip(curves.items(), ("C0", "C1"), strict=True):
        axes.plot(grid, values.T, color=colour, alpha=0.2, linewidth=0.8)
        label = "stacked PPO (ours)" if backend == "jax" else "Stable-Baselines3 PPO"
        axes.plot(grid, values.mean(0), color=colour, linewidth=2, label=f"{label}, {len(values)} seeds")
    axes.set(
        xlabel="environment steps of each seed", ylabel="episode return", title=f"{environment}, equal hyperparameters"
    )
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)


def difference_text(figures: dict[str, float], decimals: int) -> tuple[str, str]:
    """The difference and its bounds, in percent."""
    difference, low, high = (f"{figures[name]:+.{decimals}%}" for name in ("difference", "low", "high"))
    return difference, f"{low} to {high}"


def cells(name: str, row: dict[str, Any], decimals: int) -> str:
    """An environment's line of a table below `HEADER`: returns have so many decimals, percentages one more."""
    figures = row["comparison"]
    difference, bounds = difference_text(figures, decimals + 1)
    return (
        f"| {name} | {row['seeds']} | {row['steps']:,} | {figures['ours']:.{decimals}f} | {figures['sb3']:.{decimals}f} | "
        f"{difference} | {bounds} | {'yes' if figures['low'] > MARGIN else 'no'} |"
    )


def keep(path: Path, environment: str, row: dict[str, Any]) -> dict[str, Any]:
    """Add an environment's row to a JSON file, and return all rows of the file."""
    rows: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    rows[environment] = row
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", "utf-8")
    return rows


def table_lines(path: Path, lines: dict[str, str]) -> list[str]:
    """Return the lines by environment, in order; those of other environments come from the page that exists."""
    page = path.read_text("utf-8").splitlines() if path.is_file() else []
    existing = {name: line for name in ENVIRONMENTS for line in page if line.startswith(f"| {name} |")}
    return [line for _, line in sorted({**existing, **lines}.items())]


def write_table(path: Path, rows: dict[str, Any]) -> None:
    """Write the page with a line for each environment; lines of environments without a row stay."""
    lines = [
        "# Learning compared with Stable-Baselines3",
        "",
        *_INTRODUCTION,
        "",
        HEADER.format(counted="seeds") + " over the whole training |",
        RULE + " --- |",
    ]
    by_name = {
        name: f"{cells(name, row, 0)} {', '.join(difference_text(row['whole_training'], 1))} |"
        for name, row in rows.items()
    }
    table = table_lines(path, by_name)
    names = [line.split("|")[1].strip() for line in table]
    lines += [*table, "", *(f"![{name}]({name}.png)" for name in names), ""]
    path.write_text("\n".join(lines), "utf-8")


def _holds(part: Path, values: dict[str, Any]) -> bool:
    """Whether a part of the work is done, with these hyperparameters."""
    return part.is_file() and bool(json.loads(part.read_text("utf-8")).get("hyperparameters") == values)


def run(
    environment: str,
    *,
    seeds: int,
    steps: int,
    threads: int,
    episodes: int,
    work: Path,
    out: Path,
    first_seed: int = 0,
) -> dict[str, Any]:
    """Train what the work folder lacks, compare and write the page; return the environment's row."""
    results: dict[str, dict[str, Any]] = {}
    every = range(first_seed, first_seed + seeds)
    for backend in ("jax", "sb3"):
        parts = []
        for first in every[::CHUNK]:
            chunk = range(first, min(first + CHUNK, every.stop))
            part = work / f"{environment}-{backend}-{chunk.start}-{chunk.stop}-{steps}.json"
            if not _holds(part, hyperparameters(environment)):
                result = train(backend, environment, list(chunk), steps, threads=threads, episodes=episodes)
                part.parent.mkdir(parents=True, exist_ok=True)
                part.write_text(json.dumps(result), "utf-8")
            parts.append(json.loads(part.read_text("utf-8")))
        results[backend] = {
            "returns": {name: value for part in parts for name, value in part["returns"].items()},
            "curves": {name: value for part in parts for name, value in part["curves"].items()},
            "seconds": sum(part["seconds"] for part in parts),
        }
    by_seed = {name: np.array([np.mean(v) for v in result["returns"].values()]) for name, result in results.items()}
    during = {name: values.mean(1) for name, values in on_one_grid(results)[1].items()}
    row = {
        "seeds": seeds,
        "first_seed": first_seed,
        "steps": steps,
        "comparison": compare(by_seed["jax"], by_seed["sb3"], np.random.default_rng(0)),
        "whole_training": compare(during["jax"], during["sb3"], np.random.default_rng(0)),
        "returns": {name: values.tolist() for name, values in by_seed.items()},
        "seconds": {name: result["seconds"] for name, result in results.items()},
    }
    rows = keep(work / "figures.json", environment, row)
    out.mkdir(parents=True, exist_ok=True)
    draw(environment, results, out / f"{environment}.png")
    write_table(out / "README.md", rows)
    return row


def arguments(description: str | None, *, seeds: int, work: Path) -> argparse.ArgumentParser:
    """Return the parser of a comparison's options, named as `run`'s arguments, and ``env``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", action="append", choices=ENVIRONMENTS, help="repeatable; all three if none is named")
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--work", type=Path, default=work, help="folder for finished parts and raw returns")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the page and its plots")
    return parser


def run_each(run: Callable[..., dict[str, Any]], given: argparse.Namespace, decimals: int) -> int:
    """Run the comparison for the environments named and print each; the exit status is 0 if all are in bounds."""
    options = dict(vars(given))
    rows = []
    for environment in options.pop("env") or ENVIRONMENTS:
        rows.append(run(environment, **options))
        print(f"{environment}: {', '.join(difference_text(rows[-1]['comparison'], decimals + 1))}")
    return 0 if all(row["comparison"]["low"] > MARGIN for row in rows) else 1


def main() -> int:
    """Run the comparison for the environments named."""
    parser = arguments(__doc__, seeds=20, work=ROOT / "out" / "learning")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=0, help="seeds are numbered from here")
    return run_each(run, parser.parse_args(), 0)


if __name__ == "__main__":
    raise SystemExit(main())
