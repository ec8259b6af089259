"""Compare whole trainings of the stacked PPO and Stable-Baselines3's PPO in pairs with the same random numbers.

Each seed is trained by both, in float32 as trainings are run: the same first weights, the same noise, the same minibatch
orders, and the same steps of the simulator, which magnifies rounding beyond all bounds. All else is each one's own, from
the first update to the last: normalisation, advantages, losses, gradients, Adam, the policy that acts. The deterministic
policies that come out are evaluated on stock Gymnasium, SB3's by SB3's own ``predict``.

Both sides of a pair use common random numbers, and the difference of the interquartile-mean final returns is
bootstrapped over pairs. This removes the chance in the comparison of independent seeds (`learning_comparison.py`) and keeps
the differences between the algorithms. Writes a page and a plot into ``--out`` (``docs/learning/``), and the returns of
every pair into ``--work`` (``same_chance.json``). The plot shows the environments of the work folder. Each pair is stored
in ``--work`` when it ends, so an interrupted run continues from there.

    python research/same_chance.py --env Hopper-v5
"""

from __future__ import annotations

import functools
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "unit" / "trainer"), str(ROOT / "benchmarks"), str(ROOT / "research")]

import learning_comparison  # noqa: E402
from support.equal_settings import hyperparameters  # noqa: E402

compare = functools.partial(learning_comparison.compare, paired=True)


def pair(environment: str, seed: int, *, steps: int, episodes: int) -> dict[str, Any]:
    """Train one seed by both, and evaluate both policies.

    :returns: ``returns`` of each episode by backend, ``state`` and ``actions`` with the largest differences after each
        update: of anything that both keep (see `Twin.difference`), and of the actions in all steps until then.
    """
    from dressage.training.hyperparameters import Hyperparameters
    from sb3_twin import train_pair
    from support.ours import REWARDS, returns_of

    values = hyperparameters(environment)
    h = Hyperparameters.from_dict(values)
    policies, state, actions = train_pair(environment, REWARDS[environment], h, seed, steps=steps)
    returns = {name: returns_of(policy, environment, episodes) for name, policy in policies.items()}
    return {"seed": seed, "returns": returns, "state": state, "actions": actions, "hyperparameters": values}


def row(pairs: list[dict[str, Any]], steps: int) -> dict[str, Any]:
    """Return an environment's row of the page."""
    by_seed = {name: np.array([np.mean(p["returns"][name]) for p in pairs]) for name in ("jax", "sb3")}
    return {
        "seeds": len(pairs),
        "steps": steps,
        "comparison": compare(by_seed["jax"], by_seed["sb3"], np.random.default_rng(0)),
        "returns": {name: values.tolist() for name, values in by_seed.items()},
        "state": [p["state"][-1] for p in pairs],
        "actions": [p["actions"][-1] for p in pairs],
    }


def draw(rows: dict[str, Any], path: Path) -> None:
    """Final returns of the pairs, SB3's over ours."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(rows), 4), dpi=120, layout="constrained")
    for axes, (environment, result) in zip(figure.subplots(1, len(rows), squeeze=False)[0], rows.items(), strict=True):
        ours, theirs = result["returns"]["jax"], result["returns"]["sb3"]
        low, high = min(*ours, *theirs), max(*ours, *theirs)
        axes.plot([low, high], [low, high], color="grey", linewidth=1)
        axes.scatter(ours, theirs, s=18)
        axes.set(title=environment, xlabel="final return, stacked PPO (ours)", ylabel="Stable-Baselines3 PPO")
        axes.grid(alpha=0.3)
    figure.savefig(path)


def write_page(path: Path, rows: dict[str, Any]) -> None:
    """Write the page with a line for each environment; lines of environments without a row stay."""
    lines = [
        "# Trainings with the same random numbers",
        "",
        "`research/same_chance.py` writes this page. It compares pairs of whole trainings, one by the stacked PPO and one by "
        "Stable-Baselines3's own `PPO.learn` under `VecNormalize`, in float32, with the hyperparameters of the "
        "[comparison of independent seeds](README.md). The two of a pair have the same first weights, noise, minibatch orders "
        "and steps of the simulator: SB3's environments take each step from the state of ours, with our action, and the page "
        "reports how far SB3's own action is from it. Everything else is separate from the first update to the last.",
        "",
        "Final returns are of the deterministic policies, ten episodes on stock Gymnasium. The difference of interquartile "
        "means over seeds has its 95 % bounds by bootstrap over pairs (common random numbers). The last columns are the "
        "largest differences over all pairs: of an action in the whole training, and at its end of everything that both store: "
        "weights, Adam's moments, the normalisers' means and variances in the environment's units, observations. The only "
        "difference within a pair is rounding. HalfCheetah magnifies it most: some actions that SB3's PPO learns from differ "
        "by 0.15 from its own.",
        "",
        learning_comparison.HEADER.format(counted="pairs") + " actions | state |",
        learning_comparison.RULE + " ---: | ---: |",
    ]
    by_name = {}
    for name, result in rows.items():
        worst = f"{max(result['actions']):.2g} | {max(result['state']):.2g}"
        by_name[name] = f"{learning_comparison.cells(name, result, 1)} {worst} |"
    lines += [
        *learning_comparison.table_lines(path, by_name),
        "",
        f"![Final returns of the pairs]({path.stem}.png)",
        "",
    ]
    path.write_text("\n".join(lines), "utf-8")


def run(environment: str, *, seeds: int, steps: int, episodes: int, work: Path, out: Path) -> dict[str, Any]:
    """Train the pairs that the work folder lacks, compare and write the page; return the environment's row."""
    pairs = []
    for seed in range(seeds):
        part = work / f"{environment}-{seed}-{steps}.json"
        known = json.loads(part.read_text("utf-8")) if part.is_file() else {}
        if known.get("hyperparameters") != hyperparameters(environment):
            known = pair(environment, seed, steps=steps, episodes=episodes)
            part.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(known), "utf-8")
            ours, theirs = (np.mean(known["returns"][name]) for name in ("jax", "sb3"))
            print(f"{environment} seed {seed}: {ours:.1f} and {theirs:.1f}", file=sys.stderr, flush=True)
        pairs.append(known)
    result = row(pairs, steps)
    rows = learning_comparison.keep(work / "same_chance.json", environment, result)
    out.mkdir(parents=True, exist_ok=True)
    draw(rows, out / "same_chance.png")
    write_page(out / "same_chance.md", rows)
    return result


def main() -> int:
    """Run the comparison for the environments named."""
    warnings.filterwarnings("ignore", message="You have specified a mini-batch size")
    parser = learning_comparison.arguments(__doc__, seeds=10, work=ROOT / "out" / "same_chance")
    return learning_comparison.run_each(run, parser.parse_args(), 1)


if __name__ == "__main__":
    raise SystemExit(main())
