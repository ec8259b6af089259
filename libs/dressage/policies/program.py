"""The bundle of a program: ``program.txt`` in its language, ``program.py`` for people to read, and ``card.json``.

Loading reads text only. The program is parsed and interpreted by `dressage.programs`, never executed as Python. The card has
what a player or a renderer needs: the task, its profile and the initial states that the score was measured on.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.policies import text_bundle
from dressage.policies.bundle import CARD_FILE
from dressage.policies.card import FORMAT

PROGRAM_FILE = "program.txt"
PYTHON_FILE = "program.py"
PROGRAM = "program"
_FILES = (CARD_FILE, PROGRAM_FILE, PYTHON_FILE)
_MAX_STATES = 10_000


@dataclass(frozen=True)
class ProgramPolicy:
    """A program, and what it was searched for.

    :param program: text in the language of the task.
    :param python: the same program as a Python function, to read; it is not executed.
    :param environment: environment id, such as ``karel/DoorKey``.
    :param profile: rules of the task: ``corrected`` or ``llmgs-v1``.
    :param report_states: numbers of the initial states of its score.
    :param provenance: origin of the program, as plain JSON data.
    """

    program: str = field(repr=False)
    python: str = field(repr=False)
    environment: str
    profile: str
    report_states: tuple[int, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    environment_options: dict[str, Any] = field(default_factory=dict)
    """Always empty: a task has no options."""

    def __post_init__(self) -> None:
        for name in ("program", "environment", "profile"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise InvalidArgument(field=f"card.json {name}", value=value, expected="a text")
        whole = all(isinstance(state, int) and not isinstance(state, bool) for state in self.report_states)
        if not whole or len(self.report_states) > _MAX_STATES:
            expected = f"at most {_MAX_STATES} whole numbers"
            raise InvalidArgument(field="card.json report_states", value=self.report_states[:3], expected=expected)

    @property
    def description(self) -> ProgramPolicy:
        """The program itself: what a policy of another kind has as its card."""
        return self

    def predict(self, observation: object, *_: object, **__: object) -> NoReturn:
        """Refuse: a program perceives tests of its task instead of observations.

        :raises FailedPrecondition: always.
        """
        raise FailedPrecondition(
            f"a program of {self.environment} has no actions for observations; `dressage.evaluate` and "
            "`dressage programs trace` play it",
            reason="NO_OBSERVATIONS",
        )

    @property
    def sha256(self) -> str:
        """SHA-256 of the program's text, in hex."""
        return hashlib.sha256(self.program.encode()).hexdigest()

    @property
    def card(self) -> dict[str, Any]:
        """The contents of ``card.json``."""
        return {
            "format": FORMAT,
            "kind": PROGRAM,
            "environment": {"id": self.environment, "options": {}},
            "profile": self.profile,
            "report_states": list(self.report_states),
            "sha256": self.sha256,
            "provenance": self.provenance,
        }

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the bundle as a folder, or as one file if the name ends in ``.zip``. `load_program` reads both.

        :returns: the folder or the file.
        """
        return text_bundle.save_texts(path, self.files())

    def files(self) -> dict[str, str]:
        """Return the texts of the bundle by file."""
        card = json.dumps(self.card, indent=2, sort_keys=True) + "\n"
        return {PROGRAM_FILE: self.program + "\n", PYTHON_FILE: self.python + "\n", CARD_FILE: card}


def load_program(path: str | os.PathLike[str]) -> ProgramPolicy:
    """Load the bundle of a program.

    :param path: its folder, or a ``.zip`` file.
    :raises NotFound: if a file of the bundle is missing.
    :raises InvalidArgument: if a file is damaged, or the card is that of another kind.
    """
    place = Path(path)
    if place.suffix == ".zip" and place.is_file():
        return program_from_bytes(place.read_bytes(), name=str(place))
    return _decode(text_bundle.read_folder(place, _FILES), place)


def program_from_bytes(data: bytes, *, name: str = "policy.zip") -> ProgramPolicy:
    """Load the contents of a ``.zip`` file.

    :param name: how errors name it.
    :raises InvalidArgument: where it is no such file, or is damaged.
    """
    return _decode(text_bundle.read_zip(data, _FILES, name=name, kind="program"), Path(name))


def is_program(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is the bundle of a program: its folder, one of its files, or a ``.zip`` file."""
    return text_bundle.has_file(path, PROGRAM_FILE)


def is_program_bytes(data: bytes) -> bool:
    """Return whether these are the contents of a ``.zip`` file of a program."""
    return text_bundle.zip_has_file(data, PROGRAM_FILE)


def _decode(contents: list[bytes], place: Path) -> ProgramPolicy:
    try:
        values, program, python = json.loads(contents[0]), contents[1].decode().strip(), contents[2].decode().rstrip()
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{place}: damaged ({error})", field=CARD_FILE) from error
    seen = (values.get("format"), values.get("kind")) if isinstance(values, Mapping) else None
    if seen != (FORMAT, PROGRAM):
        raise InvalidArgument(field="card.json format, kind", value=seen, expected=f"{FORMAT} and {PROGRAM}")
    try:
        policy = ProgramPolicy(
            program=program,
            python=python,
            environment=values["environment"]["id"],
            profile=values["profile"],
            report_states=tuple(values.get("report_states", ())),
            provenance=dict(values.get("provenance", {})),
        )
        card_sha256 = values["sha256"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidArgument(f"card.json: an entry is missing or malformed ({error!r})", field="card.json") from error
    if card_sha256 != policy.sha256:
        expected = f"{policy.sha256}, that of {PROGRAM_FILE}"
        raise InvalidArgument(field="card.json sha256", value=card_sha256, expected=expected)
    return policy
