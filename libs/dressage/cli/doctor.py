"""`dressage doctor`: checks what is installed, what works, what is missing and how to get it.

Every check tries the component: it reads the version of a package, renders with EGL in a child process, queries the kernel for
sandbox features, reads the databases. API keys are listed by name, without their values.
"""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata, util
from pathlib import Path

from dressage.cli import output
from dressage.installation import install_command
from dressage.sdk import methods

_LOCAL = install_command("local")
_SB3 = f"{install_command('sb3')} (optional)"
_FREE_BYTES = 5 * 10**9
_SECONDS = 60.0
_LOCK_SECONDS = 5.0
_RESTORE = (
    "stop the server, copy the data folder, and restore a backup, or salvage the file with `sqlite3 FILE .recover`"
)

KEYS = (
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "AZURE_API_KEY",
    "MISTRAL_API_KEY",
    "DEEPSEEK_API_KEY",
    "OPENROUTER_API_KEY",
    "GROQ_API_KEY",
    "TOGETHERAI_API_KEY",
    "XAI_API_KEY",
    "COHERE_API_KEY",
)


@dataclass(frozen=True)
class Finding:
    """The result of checking one component."""

    component: str
    status: str
    works: bool
    remedy: str = ""
    required: bool = True


def doctor(data_dir: Path, *, as_json: bool) -> int:
    """Print the findings; return 1 if a required component is missing."""
    findings = examine(data_dir, os.environ)
    healthy = all(finding.works for finding in findings if finding.required)
    if as_json:
        output.print_json({"ok": healthy, "findings": [asdict(finding) for finding in findings]})
    else:
        rows = [(each.component, each.status, _mark(each), "" if each.works else each.remedy) for each in findings]
        output.print_table(("component", "status", "works", "remedy"), rows)
        print("\nready" if healthy else "\nnot ready: see the components marked 'no'")
    return 0 if healthy else 1


def _mark(finding: Finding) -> str:
    return "yes" if finding.works else ("no" if finding.required else "–")


def examine(data_dir: Path, environ: Mapping[str, str]) -> list[Finding]:
    """Return all findings in the order of the output. A check that raises is a finding too."""
    checks: list[Callable[[], Finding]] = [
        _python,
        _uv,
        lambda: _package("mujoco", _LOCAL, least=(4, 0)),
        lambda: _package("jax", _LOCAL),
        lambda: _package("gymnasium", _LOCAL),
        _egl,
        _sandbox,
        _video,
        lambda: _package("torch", _SB3, required=False),
        lambda: _package("stable-baselines3", _SB3, required=False),
        lambda: _package("litellm", _LOCAL),
        lambda: _package("dbos", _LOCAL),
        _methods,
        lambda: _keys(environ),
        lambda: _disk(data_dir),
        _cores,
        lambda: _server(data_dir),
    ]
    if not environ.get("DRESSAGE_ORCHESTRATOR_DATABASE_URL"):
        checks += [partial(_database, data_dir, name) for name in ("dressage.db", "workflows.db")]
    return [_run_check(check) for check in checks]


def _run_check(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:  # a failing check must not end the others
        name = getattr(check, "__name__", "check").strip("_")
        return Finding(name, f"{type(error).__name__}: {error}"[:200], works=False, remedy="please report this")


def _python() -> Finding:
    return Finding("python", platform.python_version(), sys.version_info >= (3, 11), "install Python 3.11 or newer")


def _uv() -> Finding:
    remedy = "https://docs.astral.sh/uv/ (optional: installs environment packs faster)"
    path = shutil.which("uv")
    if path is None:
        return Finding("uv", "not installed", works=False, remedy=remedy, required=False)
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    return Finding("uv", " ".join(done.stdout.split()[1:2]), done.returncode == 0, remedy, required=False)


def _package(name: str, remedy: str, *, least: tuple[int, ...] = (), required: bool = True) -> Finding:
    """Check a Python package by its metadata, without the import, which may take seconds."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, "not installed", works=False, remedy=remedy, required=required)
    numbers = tuple(int(part) for part in version.split(".")[: len(least)] if part.isdigit())
    return Finding(name, version, numbers >= least, remedy, required)


def _methods() -> Finding:
    """Check the registered methods; a server does not start with a plug-in that cannot be imported."""
    names = sorted(entry.name for entry in metadata.entry_points(group=methods.GROUP))
    broken = methods.broken_plugins()
    status = ", ".join(names) + (f"; cannot be imported: {'; '.join(broken)}" if broken else "")
    return Finding("methods", status or "none", bool(names) and not broken, "repair or uninstall the plug-in")


def _egl() -> Finding:
    if util.find_spec("dressage_renderer") is None or util.find_spec("mujoco") is None:
        return Finding("EGL", "not tried: the renderer is not installed", works=False, remedy=_LOCAL)
    from dressage_renderer.probe import probe_egl

    problem = probe_egl(timeout=_SECONDS)
    status = "renders without a display" if problem is None else "does not work"
    return Finding("EGL", status, problem is None, problem or "")


def _sandbox() -> Finding:
    from dressage.sandbox.capabilities import capabilities

    features = capabilities()
    status = f"Landlock ABI {features.landlock_abi or 'none'}, seccomp {'yes' if features.seccomp else 'no'}"
    return Finding("sandbox", status, features.sufficient, features.remedy)


def _video() -> Finding:
    try:
        import av
    except ImportError:
        return Finding("H.264 (PyAV)", "not installed", works=False, remedy=_LOCAL)
    good = "libx264" in av.codecs_available
    return Finding("H.264 (PyAV)", av.__version__, good, "this PyAV lacks libx264: pip install --force-reinstall av")


def _keys(environ: Mapping[str, str]) -> Finding:
    names = [name for name in KEYS if environ.get(name)]
    remedy = "export a provider's key, e.g. OPENAI_API_KEY (optional: template/v1 needs none)"
    return Finding("API keys", ", ".join(names) or "none", bool(names), remedy, required=False)


def _disk(data_dir: Path) -> Finding:
    folder = next(path for path in (data_dir, *data_dir.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    writable = os.access(folder, os.W_OK)
    text = f"{free / 1e9:.1f} GB free at {data_dir}" + ("" if writable else ", not writable")
    return Finding("disk", text, free >= _FREE_BYTES and writable, "free disk space, or choose another --data-dir")


def _database(data_dir: Path, name: str) -> Finding:
    """Read the whole file, without a change; a server may use it meanwhile."""
    path = data_dir / name
    size = path.stat().st_size if path.exists() else None
    with_sessions = next((data_dir / "artifacts" / "sessions").glob("*"), None) is not None
    if not size:
        if not with_sessions:
            return Finding(name, "none yet", works=True)
        status = "missing" if size is None else "empty"
        return Finding(name, f"{status}, although the folder has artifacts of sessions", works=False, remedy=_RESTORE)
    try:
        with closing(
            sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=_LOCK_SECONDS)
        ) as connection:
            problems = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
    except sqlite3.Error as error:
        problems = [str(error)]
    if problems == ["ok"]:
        return Finding(name, f"sound, {size / 1e6:.1f} MB", works=True)
    return Finding(name, "damaged: " + " ".join("; ".join(problems).split())[:200], works=False, remedy=_RESTORE)


def _cores() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Finding("cores", str(usable), usable >= 2, "training needs 2 or more cores to be fast", required=False)


def _server(data_dir: Path) -> Finding:
    from dressage.client.discovery import find_local_server

    running = find_local_server(data_dir)
    if running is None:
        return Finding("server", "not running", works=False, remedy="dressage serve (optional)", required=False)
    return Finding("server", f"{running.address} (process {running.pid})", works=True, required=False)
