"""The description of a plug-in: all that services know of it, as data.

It comes from a sandboxed process that runs the plug-in's code, hence `Description.from_dict` checks form, sizes and values of
everything. Nothing in it is executed: the prompt is a template of named parts, without expressions.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dressage.errors import InvalidArgument
from dressage.programs.engine import trees
from dressage.programs.engine.grammar import Grammar
from dressage.programs.languages.grammars import MAX_WEIGHT, check_grammar
from dressage.programs.languages.plugin import STATEMENTS, Plugin, Productions
from dressage.programs.syntax import Language
from dressage.programs.tasks_text import LanguageText, TaskText

FORMAT = 1
COMPILED, STEPPED = "compiled", "stepped"
PROMPT_PARTS = ("world", "reply", "task")
"""Parts of a prompt's template: the description of the language, the form of the reply, the task."""
MAX_CALLS = 10_000
MAX_ACTIONS, MAX_TESTS, MAX_TASKS, _MAX_ARGUMENTS = 16, 31, 64, 31
_MAX_TEXT, _MAX_PROMPT = 4_000, 20_000
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}", re.ASCII)
_TASK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}", re.ASCII)
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*){0,9}", re.ASCII)


@dataclass(frozen=True)
class Code:
    """Where the code of a plug-in is.

    :param module: module to import.
    :param attribute: name of the `Plugin` in it.
    :param copied: whether the module is a copy in the folder of the language; otherwise it is installed.
    :param version: digest of the copy, or version of the installed package.
    """

    module: str
    attribute: str = "PLUGIN"
    copied: bool = True
    version: str = ""

    @classmethod
    def from_dict(cls, values: Any) -> Code:
        """Return the place of such values.

        :raises InvalidArgument: for values of another form.
        """
        row = _mapping(values, "code", ("module", "attribute", "copied", "version"))
        for name in ("module", "attribute"):
            if not isinstance(row[name], str) or not _MODULE.fullmatch(row[name]):
                raise InvalidArgument(field=f"code.{name}", value=row[name], expected="a name of Python")
        copied = row["copied"] is True
        return cls(row["module"], row["attribute"], copied, _text(row["version"], "code.version", most=100))


@dataclass(frozen=True)
class Description:
    """A language and its tasks as data.

    :param engine: ``compiled`` or ``stepped``.
    :param own: what the plug-in has besides: ``neighbour``, ``read_reply``.
    :param prompt: template of a prompt, or empty.
    """

    name: str
    code: Code
    language: Language
    text: LanguageText
    tasks: Mapping[str, TaskText]
    grammar: Grammar
    max_calls: int
    engine: Literal["compiled", "stepped"]
    own: tuple[str, ...] = ()
    prompt: str = ""

    @property
    def note(self) -> str:
        """What a user must know of its speed; empty: nothing."""
        if self.engine == STEPPED:
            return "its environment is stepped in Python, by one thread; compiled rules are thousands of times as fast"
        if "neighbour" in self.own:
            return "its neighbours are drawn in Python, by one thread; those of the grammar are drawn in compiled code"
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Return the description as JSON values."""
        grammar = asdict(self.grammar)
        del grammar["language"]
        return {
            "format": FORMAT,
            "name": self.name,
            "code": asdict(self.code),
            "actions": {name: self.text.actions[name] for name in self.language.actions},
            "tests": {name: self.text.tests[name] for name in self.language.tests},
            "arguments": {name: list(values) for name, values in self.language.tests.items() if values},
            "world": self.text.world,
            "execution": self.text.execution,
            "tasks": {
                name: {part: getattr(task, part) for part in _TASK_PARTS} | {"intent": task.intent}
                for name, task in self.tasks.items()
            },
            "grammar": {name: list(value) if isinstance(value, tuple) else value for name, value in grammar.items()},
            "max_calls": self.max_calls,
            "engine": self.engine,
            "own": list(self.own),
            "prompt": self.prompt,
        }

    @classmethod
    def from_dict(cls, values: Any) -> Description:
        """Return the description of such values.

        :raises InvalidArgument: naming the first part that is wrong.
        """
        row = _mapping(values, "description", _PARTS)
        if row["format"] != FORMAT:
            raise InvalidArgument(
                field="description.format", value=row["format"], expected=f"{FORMAT}", remedy="Register it again."
            )
        name = row["name"]
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidArgument(field="name", value=name, expected="letters, digits, '_' and '-', 40 at most")
        language, text = _language(name, row)
        tasks = _texts(row["tasks"], "tasks", most=MAX_TASKS, names=_TASK_NAME, parts=(*_TASK_PARTS, "intent"))
        if not tasks:
            raise InvalidArgument(field="tasks", problem="there are none", expected="at least one task")
        max_calls, own = row["max_calls"], row["own"]
        if not isinstance(max_calls, int) or isinstance(max_calls, bool) or not 1 <= max_calls <= MAX_CALLS:
            raise InvalidArgument(field="max_calls", value=max_calls, expected=f"a whole number, 1 to {MAX_CALLS}")
        if row["engine"] not in (COMPILED, STEPPED):
            raise InvalidArgument(field="engine", value=row["engine"], expected=f"{COMPILED} or {STEPPED}")
        if not isinstance(own, list) or not {str(part) for part in own} <= {"neighbour", "read_reply"}:
            raise InvalidArgument(field="own", value=own, expected="neighbour, read_reply or nothing")
        return cls(
            name=name,
            code=Code.from_dict(row["code"]),
            language=language,
            text=text,
            tasks={
                task: TaskText(task, language, **{part: words[part] for part in (*_TASK_PARTS, "intent")})
                for task, words in tasks.items()
            },
            grammar=_grammar(row["grammar"], language),
            max_calls=max_calls,
            engine=row["engine"],
            own=tuple(dict.fromkeys(own)),
            prompt=_prompt(row["prompt"]),
        )


@dataclass(frozen=True)
class DescribedFamily:
    """The part of a plug-in's `Family` that its description states, whether or not its code is loaded."""

    description: Description

    @property
    def name(self) -> str:
        return self.description.name

    @property
    def language(self) -> Language:
        return self.description.language

    @property
    def text(self) -> LanguageText:
        return self.description.text

    @property
    def tasks(self) -> Mapping[str, TaskText]:
        return self.description.tasks

    @property
    def grammar(self) -> Grammar:
        return self.description.grammar

    @property
    def note(self) -> str:
        return self.description.note

    @property
    def own(self) -> tuple[str, ...]:
        return self.description.own

    @property
    def prompt(self) -> str:
        return self.description.prompt


_PARTS = (
    "format", "name", "code", "actions", "tests", "arguments", "world", "execution", "tasks", "grammar", "max_calls",
    "engine", "own", "prompt",
)  # fmt: skip
_TASK_PARTS = ("map", "start", "goal", "returns")
_GRAMMAR_LISTS = ("statements", "actions", "tests", "negation")
_GRAMMAR_NUMBERS = ("counts", "max_height", "max_statements", "max_tokens")


def description_of(plugin: Plugin, code: Code) -> Description:
    """Return the description of a plug-in. In its own process only: it reads what the plug-in's code made.

    :raises InvalidArgument: naming the part of the plug-in that is wrong.
    """
    if not isinstance(plugin, Plugin):
        raise InvalidArgument(
            field=f"{code.module}.{code.attribute}",
            value=plugin,
            expected="a dressage.programs.languages.plugin.Plugin",
        )
    if plugin.compiled is None and plugin.environment is None:
        expected = "compiled rules or a Gymnasium environment"
        raise InvalidArgument(field="compiled, environment", problem="neither is given", expected=expected)
    for name in ("compiled", "environment", "neighbour", "read_reply"):
        value = getattr(plugin, name)
        if value is not None and not callable(value):
            raise InvalidArgument(field=name, value=value, expected="a function, or None")
    if not isinstance(plugin.productions, Productions):
        raise InvalidArgument(field="productions", value=plugin.productions, expected="Productions")
    values = {
        "format": FORMAT,
        "name": plugin.name,
        "code": asdict(code),
        "actions": _plain(plugin.actions, "actions"),
        "tests": _plain(plugin.tests, "tests"),
        "arguments": {name: list(words) for name, words in _plain(plugin.arguments, "arguments").items()},
        "world": plugin.world,
        "execution": plugin.execution,
        "tasks": {
            name: {part: getattr(task, part, None) for part in (*_TASK_PARTS, "intent")}
            for name, task in _plain(plugin.tasks, "tasks").items()
        },
        "max_calls": plugin.max_calls,
        "engine": COMPILED if plugin.compiled is not None else STEPPED,
        "own": [name for name in ("neighbour", "read_reply") if getattr(plugin, name) is not None],
        "prompt": plugin.prompt,
    }
    language, _ = _language(str(plugin.name), values)
    return Description.from_dict({**values, "grammar": _weights(plugin.productions, language)})


def _plain(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidArgument(field=name, value=value, expected="a dict by name")
    return dict(value)


def _weights(productions: Productions, language: Language) -> dict[str, Any]:
    """Return the whole numbers that the sampler uses for probabilities."""
    tests = [f"{test.name} {test.argument}".strip() for test in trees.tests_of(language)]
    negation = productions.negation
    if not isinstance(negation, int | float) or not 0 <= negation <= 1:
        raise InvalidArgument(field="productions.negation", value=negation, expected="a probability, 0 to 1")
    return {
        "statements": _scale(productions.statements, STATEMENTS, "statements", missing=0.0),
        "actions": _scale(productions.actions or dict.fromkeys(language.actions, 1.0), language.actions, "actions"),
        "tests": _scale(productions.tests or dict.fromkeys(tests, 1.0), tests, "tests"),
        "negation": [round((1 - negation) * MAX_WEIGHT), round(negation * MAX_WEIGHT)],
        **{name: getattr(productions, name) for name in _GRAMMAR_NUMBERS},
    }


def _scale(
    probabilities: Mapping[str, float], names: tuple[str, ...] | list[str], part: str, *, missing: float = 0.0
) -> list[int]:
    values = _plain(probabilities, f"productions.{part}")
    if unknown := [name for name in values if name not in names]:
        raise InvalidArgument(
            field=f"productions.{part}", problem="unknown name", value=unknown[0], expected=f"one of {', '.join(names)}"
        )
    good = all(isinstance(v, int | float) and 0 <= v < float("inf") for v in values.values())
    largest = max(values.values(), default=0.0) if good else 0.0
    if names and not largest > 0:
        expected = "probabilities, none negative and at least one positive"
        raise InvalidArgument(field=f"productions.{part}", value=values, expected=expected)
    return [round(values.get(name, missing) / largest * MAX_WEIGHT) for name in names]


def _language(name: str, row: Mapping[str, Any]) -> tuple[Language, LanguageText]:
    actions = _texts(row["actions"], "actions", most=MAX_ACTIONS)
    tests = _texts(row["tests"], "tests", most=MAX_TESTS)
    arguments = row["arguments"]
    whole = isinstance(arguments, dict) and all(
        isinstance(words, list) and words and len(words) <= _MAX_ARGUMENTS and all(isinstance(w, str) for w in words)
        for words in arguments.values()
    )
    if not whole or not set(arguments) <= set(tests):
        raise InvalidArgument(field="arguments", value=arguments, expected="lists of words by the name of a test")
    language = Language(name, tuple(actions), {test: tuple(arguments.get(test, ())) for test in tests})
    if len(trees.tests_of(language)) > MAX_TESTS:
        expected = f"at most {MAX_TESTS} tests, each argument counted"
        raise InvalidArgument(field="tests", value=len(trees.tests_of(language)), expected=expected)
    world, execution = (_text(row[part], part) for part in ("world", "execution"))
    return language, LanguageText(world=world, actions=actions, tests=tests, execution=execution)


def _grammar(values: Any, language: Language) -> Grammar:
    row = _mapping(values, "grammar", (*_GRAMMAR_LISTS, *_GRAMMAR_NUMBERS))
    for name in _GRAMMAR_LISTS:
        if not isinstance(row[name], list) or len(row[name]) > MAX_TESTS:
            raise InvalidArgument(field=f"grammar.{name}", value=row[name], expected="a list of weights")
    parts: dict[str, Any] = {name: tuple(row[name]) for name in _GRAMMAR_LISTS}
    grammar = Grammar(language, **parts, **{name: row[name] for name in _GRAMMAR_NUMBERS})
    check_grammar(grammar)
    return grammar


def _prompt(value: Any) -> str:
    text = _text(value, "prompt", most=_MAX_PROMPT)
    template = string.Template(text)
    unknown = [name for name in template.get_identifiers() if name not in PROMPT_PARTS]
    if not template.is_valid() or unknown:
        expected = f"only {', '.join(f'${part}' for part in PROMPT_PARTS)} as parts; $$ is a dollar sign"
        raise InvalidArgument(field="prompt", value=unknown[0] if unknown else text, expected=expected)
    if text and "task" not in template.get_identifiers():
        raise InvalidArgument(field="prompt", problem="it has no task", expected="a template with $task")
    return text


def _mapping(values: Any, name: str, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(values, dict) or set(values) != set(keys):
        got = sorted(map(str, values))[:20] if isinstance(values, dict) else values
        raise InvalidArgument(field=name, value=got, expected=f"the entries {', '.join(keys)}")
    return values


def _texts(
    values: Any, name: str, *, most: int, names: re.Pattern[str] | None = None, parts: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return texts, or entries of texts, by name."""
    if not isinstance(values, dict) or len(values) > most:
        got = f"{len(values)} entries" if isinstance(values, dict) else values
        raise InvalidArgument(field=name, value=got, expected=f"at most {most} entries by name")
    for key in values:
        if not isinstance(key, str) or (names is not None and not names.fullmatch(key)):
            raise InvalidArgument(
                field=name, problem="invalid name", value=key, expected="letters, digits, '_' and '-'"
            )
    if not parts:
        return {key: _text(value, f"{name}.{key}") for key, value in values.items()}
    return {
        key: {part: _text(_mapping(value, f"{name}.{key}", parts)[part], f"{name}.{key}.{part}") for part in parts}
        for key, value in values.items()
    }


def _text(value: Any, name: str, *, most: int = _MAX_TEXT) -> str:
    if not isinstance(value, str) or len(value) > most:
        got = f"{len(value)} characters" if isinstance(value, str) else value
        raise InvalidArgument(field=name, value=got, expected=f"a text of at most {most} characters")
    return value
