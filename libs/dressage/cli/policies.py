"""`dressage eval` and `dressage export`.

Evaluation runs stock Gymnasium, not the batched simulator, and compares the policy with random actions.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from dressage.cli import output
from dressage.local.connection import ServerOptions
from dressage.sdk.progress import counted, return_text, short


def evaluate(bundle: str, server: ServerOptions, *, episodes: int, seed: int, as_json: bool) -> None:
    """Evaluate a policy and print the result."""
    from dressage.policies import load
    from dressage.sdk.evaluation import measure
    from dressage.sdk.policy import bundle_folder

    async def work() -> dict[str, Any]:
        async with bundle_folder(bundle, server) as folder:
            policy = load(folder)
            facts = await asyncio.to_thread(measure, policy, episodes=episodes, seed=seed)
            return {"environment": policy.description.environment, "bundle": str(folder), "seed": seed, **facts}

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


def export(bundle: str, server: ServerOptions, *, form: str, out: Path | None, as_json: bool) -> None:
    """Export a policy and print the names of the files."""
    from dressage.sdk.policy import bundle_folder

    async def work() -> list[Path]:
        async with bundle_folder(bundle, server) as folder:
            return await asyncio.to_thread(write_export, folder, form, out or _default_out(bundle, form))

    written = asyncio.run(work())
    if as_json:
        output.print_json({"format": form, "files": [str(path) for path in written]})
    else:
        print("\n".join(str(path) for path in written))


def _default_out(bundle: str, form: str) -> Path:
    """Return a path in the current folder with the name of the session or of the folder of the bundle."""
    path, name = Path(bundle).expanduser(), short(bundle.rstrip("/"))
    if path.exists():  # `.` and `..` have no name, and that of a file is not the policy's
        name = (path if path.is_dir() else path.parent).resolve().name
    name = name or "policy"
    return Path(f"{name}.onnx" if form == "onnx" else f"{name}-sb3")


def write_export(folder: Path, form: str, out: Path) -> list[Path]:
    """Write the policy of a bundle in another format and return the files.

    :raises FailedPrecondition: if a required package is not installed, or the format does not support the kind of policy.
    :raises InvalidArgument: if the path cannot be written.
    """
    from dressage.policies import load, to_onnx, to_sb3

    policy = load(folder)
    with output.writing("--out", out):
        if form == "onnx":
            target = out / "policy.onnx" if out.is_dir() else out
            target.parent.mkdir(parents=True, exist_ok=True)
            return [to_onnx(policy, target)]
        return list(to_sb3(policy, out))
