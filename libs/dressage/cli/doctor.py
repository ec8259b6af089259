"""`dressage doctor`: what is installed, what works here, what is missing and how to get it.

Every finding comes from trying: a version is read from the installed package, EGL draws in a child process, the kernel
is asked for its sandbox. API keys are named, never shown.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata, util
from pathlib import Path

from dressage.cli import output
from dressage.sdk import methods

_LOCAL = "pip install 'dressage[local]'"
_SB3 = "pip install 'dressage[sb3]' (optional)"
_FREE_BYTES = 5 * 10**9
_SECONDS = 60.0

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
    """What was found of one component."""

    component: str
    found: str
    works: bool
    remedy: str = ""
    required: bool = True


def doctor(data_dir: Path, *, as_json: bool) -> int:
    """Prints the findings; returns 1 if something that one machine needs is missing."""
    findings = examine(data_dir, os.environ)
    healthy = all(finding.works for finding in findings if finding.required)
    if as_json:
        output.print_json({"ok": healthy, "findings": [asdict(finding) for finding in findings]})
    else:
        rows = [(each.component, each.found, _mark(each), "" if each.works else each.remedy) for each in findings]
        output.print_table(("component", "found", "works", "how to get it"), rows)
        print("\nready" if healthy else "\nnot ready: see what is marked 'no'")
    return 0 if healthy else 1


def _mark(finding: Finding) -> str:
    return "yes" if finding.works else ("no" if finding.required else "–")


def examine(data_dir: Path, environ: Mapping[str, str]) -> list[Finding]:
    """All findings, in the order in which they are shown. A check that breaks is itself a finding."""
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
    return [_tried(check) for check in checks]


def _tried(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:  # the doctor reports what breaks; it does not break with it
        name = getattr(check, "__name__", "check").strip("_")
        return Finding(name, f"{type(error).__name__}: {error}"[:200], works=False, remedy="please report this")


def _python() -> Finding:
    return Finding("python", platform.python_version(), sys.version_info >= (3, 11), "install Python 3.11 or newer")


def _uv() -> Finding:
    remedy = "https://docs.astral.sh/uv/ (optional)"
    path = shutil.which("uv")
    if path is None:
        return Finding("uv", "not installed", works=False, remedy=remedy, required=False)
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    return Finding("uv", " ".join(done.stdout.split()[1:2]), done.returncode == 0, remedy, required=False)


def _package(name: str, remedy: str, *, least: tuple[int, ...] = (), required: bool = True) -> Finding:
    """A Python package by its metadata; it is not imported, since some take seconds."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, "not installed", works=False, remedy=remedy, required=required)
    numbers = tuple(int(part) for part in version.split(".")[: len(least)] if part.isdigit())
    return Finding(name, version, numbers >= least, remedy, required)


def _methods() -> Finding:
    """The methods that are registered; a plug-in that cannot be imported would keep a server from starting."""
    names = sorted(entry.name for entry in metadata.entry_points(group=methods.GROUP))
    broken = methods.broken_plugins()
    found = ", ".join(names) + (f"; cannot be imported: {'; '.join(broken)}" if broken else "")
    return Finding("methods", found or "none", bool(names) and not broken, "repair or uninstall the plug-in")


def _egl() -> Finding:
    if util.find_spec("dressage_renderer") is None or util.find_spec("mujoco") is None:
        return Finding("EGL", "not tried: the renderer is not installed", works=False, remedy=_LOCAL)
    from dressage_renderer.probe import probe_egl

    fault = probe_egl(timeout=_SECONDS)
    return Finding("EGL", "draws without a display" if fault is None else "does not work", fault is None, fault or "")


def _sandbox() -> Finding:
    from dressage.sandbox.capabilities import capabilities

    found = capabilities()
    shown = f"Landlock ABI {found.landlock_abi or 'none'}, seccomp {'yes' if found.seccomp else 'no'}"
    return Finding("sandbox", shown, found.sufficient, found.remedy)


def _video() -> Finding:
    try:
        import av
    except ImportError:
        return Finding("H.264 (PyAV)", "not installed", works=False, remedy=_LOCAL)
    good = "libx264" in av.codecs_available
    return Finding("H.264 (PyAV)", av.__version__, good, "this PyAV lacks libx264: pip install --force-reinstall av")


def _keys(environ: Mapping[str, str]) -> Finding:
    found = [name for name in KEYS if environ.get(name)]
    remedy = "export a provider's key, e.g. OPENAI_API_KEY (optional: template/v1 needs none)"
    return Finding("API keys", ", ".join(found) or "none", bool(found), remedy, required=False)


def _disk(data_dir: Path) -> Finding:
    folder = next(path for path in (data_dir, *data_dir.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    writable = os.access(folder, os.W_OK)
    shown = f"{free / 1e9:.1f} GB free at {data_dir}" + ("" if writable else ", not writable")
    return Finding("disk", shown, free >= _FREE_BYTES and writable, "free some space, or choose another --data-dir")


def _cores() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Finding("cores", str(usable), usable >= 2, "2 or more make training pleasant", required=False)


def _server(data_dir: Path) -> Finding:
    from dressage.client.discovery import find_local_server

    running = find_local_server(data_dir)
    if running is None:
        return Finding("server", "none runs", works=False, remedy="dressage serve (optional)", required=False)
    return Finding("server", f"{running.address} (process {running.pid})", works=True, required=False)
