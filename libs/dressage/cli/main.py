"""`dressage`: the application, and the mapping of errors to messages and exit codes.

Exit codes: 0 success, 1 error, 2 wrong usage, 3 a score below `--fail-below`, 130 interrupted by Ctrl-C, 143 ended by
SIGTERM. A traceback is shown only with DRESSAGE_DEBUG=1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated

import typer

from dressage.cli import commands, output, programs, resources, runs, sessions
from dressage.errors import DressageError, FailedPrecondition, InvalidArgument
from dressage.installation import install_command
from dressage.machine_errors import machine_error
from dressage.places import FOLDERS
from dressage.sdk.argument_names import CLIENT
from dressage.terminal import PrintableStream

_INTERRUPTED = 130

app = typer.Typer(
    name="dressage",
    help="Describe a behaviour in words; get a trained policy.",
    epilog='Start with:  dressage run "run forward fast" --env HalfCheetah-v5',
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    # Plain help, because importing rich takes half a second.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
commands.register(app)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"dressage {metadata.version('dressage')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit."),
    ] = False,
) -> None:
    """Describe a behaviour in words; get a trained policy."""


app.add_typer(sessions.app, name="sessions")
app.add_typer(runs.app, name="runs")
app.add_typer(resources.environments, name="envs")
app.add_typer(resources.artifacts, name="artifacts")
app.add_typer(resources.benchmarks, name="benchmarks")
app.add_typer(programs.app, name="programs")


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: run a command line and exit with its code."""
    sys.exit(invoke(sys.argv[1:] if arguments is None else arguments))


def invoke(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code. Control characters in its output are escaped."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = PrintableStream(sys.stdout), PrintableStream(sys.stderr)  # type: ignore[assignment]
    try:
        return _invoke(arguments)
    finally:
        sys.stdout, sys.stderr = streams


def _invoke(arguments: Sequence[str]) -> int:
    as_json = "--json" in arguments
    unset = [variable for variable in FOLDERS if not os.environ.get(variable)]
    try:
        code = typer.main.get_command(app).main(list(arguments), prog_name="dressage", standalone_mode=False)
    except DressageError as error:
        if _debugging():
            raise
        if isinstance(error, InvalidArgument):
            error.rename(lambda field: CLIENT.get(field, field))
        output.fail(error, as_json=as_json)
        return 1
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ModuleNotFoundError as error:
        if _debugging() or not error.name or error.name.partition(".")[0] == "dressage":
            raise
        output.fail(_missing(error), as_json=as_json)
        return 1
    except Exception as error:
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # a usage error of any version of click
            return output.fail_usage(error, as_json=as_json)
        if _debugging():
            raise
        converted = machine_error(error)
        if converted is not None:
            output.fail(converted, as_json=as_json)
        else:
            output.fail_unexpected(error, as_json=as_json)
        return 1
    finally:
        for variable in unset:  # a command set it, see `options.DataDir`
            os.environ.pop(variable, None)
    return code if isinstance(code, int) else 0


def _missing(error: ModuleNotFoundError) -> DressageError:
    """Return the error of a command that needs a package which an extra installs."""
    package = str(error.name).partition(".")[0]
    message = f"this command needs {package}, which is not installed: {install_command('local')}"
    return FailedPrecondition(message, reason="MISSING_EXTRA", metadata={"package": package})


def _debugging() -> bool:
    return os.environ.get("DRESSAGE_DEBUG", "") not in ("", "0")


if __name__ == "__main__":
    main()
