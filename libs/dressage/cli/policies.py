"""`dressage eval`, `dressage export` and `dressage check`.

Evaluation runs stock Gymnasium, the package of a pack or an environment of the user's, not the batched simulator, and
compares the policy with random actions. The check of a reward or a code policy is that of a session, on this machine.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dressage import errors
from dressage.cli import output
from dressage.local.connection import ServerOptions
from dressage.sdk.texts import quantity, return_text, short

if TYPE_CHECKING:
    from dressage.contracts import CheckFailure
    from dressage.envs.cards import EnvironmentCard
    from dressage.policies import ProgramPolicy


def evaluate(bundle: str, server: ServerOptions, *, episodes: int, seed: int, as_json: bool) -> None:
    """Evaluate a policy and print the result."""
    from dressage.envs.cards import load_card
    from dressage.sdk.evaluation import measure
    from dressage.sdk.policy import load_path, open_bundle

    async def work() -> dict[str, Any]:
        async with open_bundle(bundle, server) as opened:
            policy = load_path(opened.folder)
            facts = await asyncio.to_thread(measure, policy, episodes=episodes, seed=seed)
            head = {"environment": policy.description.environment, "bundle": str(opened.folder), "seed": seed}
            return {**head, **({"policy_from": opened.origin} if opened.origin else {}), **facts}

    facts = asyncio.run(work())
    if as_json:
        output.print_json(facts)
        return
    card = load_card(facts["environment"])
    decimals = 2 if "program" in card.methods else 1  # returns of programs are at most 1
    rows = [(name, *_row(facts[name], decimals)) for name in ("policy", "random") if name in facts]
    title = f"{facts['environment']}, {quantity(episodes, 'episode')} of {_simulator(card)} from seed {seed}"
    columns = ("", "return", "95 % interval", "m/s", "steps", "steps/s")
    indices = [index for index, column in enumerate(columns) if column != "m/s" or any(row[index] for row in rows)]
    cells = [[row[index] for index in indices] for row in rows]
    output.print_table([columns[index] for index in indices], cells, title=title)
    if "policy_from" in facts:
        print(f"policy: {facts['policy_from']}")


def _simulator(card: EnvironmentCard) -> str:
    """Return what plays the episodes of an environment, in words."""
    from dressage.envs import custom

    if card.pack:
        return f"the environment pack {card.pack}"
    if "program" in card.methods:
        return "the engine of programs"
    if custom.module_of(card.id):
        return f"your module {custom.module_of(card.id)}"
    if card.id.startswith(custom.MODEL):
        return "your model in MuJoCo"
    return "the environment registered with Gymnasium" if custom.is_custom(card.id) else "stock Gymnasium"


def _row(facts: dict[str, Any], decimals: int) -> tuple[str, ...]:
    low, high = facts["return_interval"]
    return (
        return_text(facts["mean_return"], decimals=decimals),
        f"{return_text(low, decimals=decimals)} to {return_text(high, decimals=decimals)}",
        "" if facts["mean_speed"] is None else f"{facts['mean_speed']:.2f}",
        f"{facts['mean_length']:.0f}",
        f"{facts['steps_per_second']:,.0f}",
    )


def export(bundle: str, server: ServerOptions, *, form: str, out: Path | None, as_json: bool) -> None:
    """Export a policy and print the names of the files."""
    from dressage.sdk.policy import open_bundle

    async def work() -> tuple[list[Path], str]:
        async with open_bundle(bundle, server) as opened:
            target = out or _default_out(bundle, form)
            return await asyncio.to_thread(write_export, opened.folder, form, target), opened.origin

    written, origin = asyncio.run(work())
    if as_json:
        facts = {"format": form, "files": [str(path) for path in written]}
        output.print_json({**facts, **({"policy_from": origin} if origin else {})})
        return
    print("\n".join(str(path) for path in written))
    if origin:
        print(f"policy: {origin}", file=sys.stderr)


def _default_out(bundle: str, form: str) -> Path:
    """Return a path in the current folder with the name of the session or of the folder of the bundle."""
    path, name = Path(bundle).expanduser(), short(bundle.rstrip("/"))
    if path.exists():  # `.` and `..` have no name, and that of a file is not the policy's
        name = (path if path.is_dir() else path.parent).resolve().name
    name = name or "policy"
    return Path({"onnx": f"{name}.onnx", "python": f"{name}.py"}.get(form, f"{name}-sb3"))


def write_export(folder: Path, form: str, out: Path) -> list[Path]:
    """Write the policy of a bundle in another format and return the files.

    :raises FailedPrecondition: if a required package is not installed, or the format does not support the kind of policy.
    :raises InvalidArgument: if the path cannot be written, or the format is that of another kind of policy.
    """
    from dressage.policies import is_code, is_program, load, load_code, load_program, to_onnx, to_python, to_sb3

    if is_program(folder):
        if form != "python":
            raise errors.InvalidArgument(field="--format", value=form, expected="python for a program")
        with output.writing("--out", out):
            target = out / "program.py" if out.is_dir() else out
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_python_of(load_program(folder)), "utf-8")
            return [target]
    if is_code(folder) != (form == "python"):
        fitting = "python" if is_code(folder) else "sb3 or onnx"
        kind = "a code policy" if is_code(folder) else "a policy of weights"
        raise errors.InvalidArgument(field="--format", value=form, expected=f"{fitting} for {kind}")
    if form == "python":
        with output.writing("--out", out):
            return [to_python(load_code(folder), out / "policy.py" if out.is_dir() else out)]
    policy = load(folder)
    with output.writing("--out", out):
        if form == "onnx":
            target = out / "policy.onnx" if out.is_dir() else out
            target.parent.mkdir(parents=True, exist_ok=True)
            return [to_onnx(policy, target)]
        return list(to_sb3(policy, out))


def _python_of(policy: ProgramPolicy) -> str:
    """Return a program as a Python file to read, with its own text as a comment."""
    head = f"# A program for {policy.environment}, exported by Dressage. Tests and actions are those of the task."
    return f"{head}\n# {policy.program}\n\n\n{policy.python}\n"


def check(path: Path, environment: str, *, allow_unsandboxed: bool, traceable: bool, as_json: bool) -> int:
    """Check a file and return the exit code: 1 if the check fails.

    :raises InvalidArgument: if the file cannot be read.
    :raises NotFound: for an unknown environment.
    :raises FailedPrecondition: if this kernel has no sandbox and running without is not allowed.
    """
    from dressage.sdk.checking import check_source, passed_text
    from dressage.sdk.files import read_source

    source, environment = read_source(path, field="REWARD.py"), environment.removeprefix("environments/")
    report = check_source(source, environment, allow_unsandboxed=allow_unsandboxed, traceable=traceable)
    if as_json:
        output.print_json({"file": str(path), "environment": environment, **report.to_dict()})
    elif report.ok:
        print(f"{path}: {passed_text(report)}")
        if report.terms:
            output.print_table(("term", "meaning"), report.terms.items())
        if report.traceable:
            print(f"{path}: can be compiled for a device")
        _print_findings(path, report.obstacles)
    else:
        _print_findings(path, report.failures)
        print(f"{path}: failed, {quantity(len(report.failures), 'finding')}")
    return 0 if report.ok else 1


def _print_findings(path: Path, findings: Sequence[CheckFailure]) -> None:
    for finding in findings:
        place = f"{path}:{finding.line}" if finding.line else str(path)
        seen = f" (seen: {finding.seen})" if finding.seen else ""
        text = f"{finding.rule}: {finding.message}{seen}"
        print(f"{place}: {' '.join(text.split())}")  # on one line: a text of the code may look like another finding
