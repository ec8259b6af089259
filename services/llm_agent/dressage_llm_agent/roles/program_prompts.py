"""The parts of prompts and replies that the roles of programs share.

Programs are described and read by `dressage.programs`; a reply's Python is never executed.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.errors import InvalidArgument, NotFound
from dressage.programs.families import FAMILIES, ProgramTask, program_task
from dressage.programs.from_reply import MAX_REPLY, Candidate, from_reply
from dressage.programs.pretty import to_python
from dressage.programs.repairs import LARGEST_COUNT
from dressage.programs.syntax import Action, Condition, IfElse, Language, Program, Repeat, Test, parse, to_text
from dressage.programs.tasks_text import LanguageText, TaskText

from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import ReplyProblem

PYTHONIC = "pythonic"
_FORMS = {"python": "Python", "dsl": "DSL text"}
_PARTS = {"world": "language", "reply": "reply", "task": "task"}
"""Parts of a registered language's template, and their files."""
_MAX_OWN_REPLY = 65_536
"""Characters of a reply that a plug-in reads."""
_MAX_REJECTED = 16
_MAX_REASON = 500
MAX_SHOWN = 48
"""Programs of earlier rounds in a prompt."""
MAX_SHOWN_CHARACTERS = 48_000
"""Characters of these programs."""


def task_of(task: str) -> ProgramTask:
    """Return a task by the id of its environment.

    :raises InvalidArgument: for an unknown task.
    """
    try:
        return program_task(task)
    except NotFound as error:
        raise InvalidArgument(
            field="task", problem="unknown program task", value=task, expected=f"a known one ({error.message})"
        ) from error


def prompt_values(task: str, form: str, brief: agent_pb.Brief) -> dict[str, Any]:
    """Return the values of the templates that describe the language, the task and the form of the reply.

    :raises InvalidArgument: for an unknown task.
    """
    chosen = task_of(task)
    language = chosen.language
    return {
        "brief": brief,
        "task": task,
        "text": chosen.text,
        "form": form,
        "grid": chosen.family.name in FAMILIES,
        "language": _language(language, chosen.family.text, form),
        "largest_count": LARGEST_COUNT,
        "rules": _rules(language, form),
        "arguments": any(language.tests.values()),
        "example": _example(language),
    }


def own_prompt(task: str, values: Mapping[str, Any]) -> str:
    """Return the prompt of a registered language with a template of its own; empty: it has none.

    The template has named parts and no expressions: nothing of a plug-in is executed here.
    """
    template = task_of(task).family.prompt
    if not template:
        return ""
    parts = {part: prompts.render(f"shared/program_{file}.j2", **values) for part, file in _PARTS.items()}
    return string.Template(template).substitute(parts)


def _language(language: Language, text: LanguageText, form: str) -> SimpleNamespace:
    actions = [{"call": _call(name, (), form), "meaning": text.actions[name]} for name in language.actions]
    tests = [
        {"call": _call(name, arguments, form), "meaning": text.tests[name]}
        for name, arguments in language.tests.items()
    ]
    return SimpleNamespace(world=text.world, actions=actions, tests=tests, execution=text.execution)


def _call(name: str, arguments: tuple[str, ...], form: str) -> str:
    """Return how an action or a test is written, as Markdown."""
    if not arguments:
        return f"`{name}`" if form == "dsl" else f"`{name}()`"
    call, quote = (f"`{name} h( x h)`", "") if form == "dsl" else (f"`{name}(x)`", '"')
    return f"{call} with x one of " + ", ".join(f"`{quote}{value}{quote}`" for value in arguments)


def _rules(language: Language, form: str) -> list[tuple[str, str]]:
    """Return what each construct is in the DSL: (Python or meaning, DSL)."""
    action = language.actions[0]
    plain = next((f"{name}()" for name, arguments in language.tests.items() if not arguments), "")
    rules = [
        ("`def run():` A", "the function", "DEF run m( A m)"),
        (f"`{action}()`", "an action", action),
        ("statements on lines of their own", "one after another", "A B"),
        ("`for i in range(n):` A", "n times A", "REPEAT R=n r( A r)"),
        ("`while C:` A", "A as long as C holds", "WHILE c( C c) w( A w)"),
        ("`if C:` A", "A if C holds", "IF c( C c) i( A i)"),
        ("`if C:` A `else:` B", "A if C holds, otherwise B", "IFELSE c( C c) i( A i) ELSE e( B e)"),
        (
            "`if C:` A `elif D:` B",
            "A if C holds, otherwise B if D holds",
            "IFELSE c( C c) i( A i) ELSE e( IF c( D c) i( B i) e)",
        ),
        *([(f"`{plain}`", "a test", plain.removesuffix("()"))] if plain else []),
        *(
            (f'`{name}("{arguments[0]}")`', "a test with an argument", f"{name} h( {arguments[0]} h)")
            for name, arguments in language.tests.items()
            if arguments
        ),
        ("`not C`", "C does not hold", "not c( C c)"),
        ("`C and D`", "both hold", "and c( C c) c( D c)"),
        ("`C or D`", "one of them holds", "or c( C c) c( D c)"),
    ]
    return [(meaning if form == "dsl" else python, dsl) for python, meaning, dsl in rules]


def _example(language: Language) -> SimpleNamespace:
    first, second = (*language.actions, *language.actions)[:2]
    if not language.tests:
        only = Program((Repeat(2, (Action(first), Action(second))), Action(second)))
        return SimpleNamespace(python=to_python(only).text, dsl=to_text(only))
    name, arguments = list(language.tests.items())[-1]
    test: Condition = Test(name, arguments[0] if arguments else "")
    program = Program((Repeat(2, (IfElse(test, (Action(first),), (Action(second),)),)), Action(second)))
    return SimpleNamespace(python=to_python(program).text, dsl=to_text(program))


def result_of(reply: str, task: str, *, form: str = PYTHONIC) -> agent_pb.Programs:
    """Return the programs of a reply, or the reply itself if the code of the task's language reads replies.

    :raises ReplyProblem: see `programs_of`.
    """
    chosen = task_of(task)
    if "read_reply" in chosen.family.own:
        return agent_pb.Programs(reply=reply[:_MAX_OWN_REPLY])
    return programs_of(reply, chosen.text, form=form)


def programs_of(reply: str, text: TaskText, *, form: str = PYTHONIC) -> agent_pb.Programs:
    """Return the programs of a reply, each once, and the reasons why other texts are none.

    :param form: what the model was asked for; ``python`` and ``dsl`` leave out the programs in the other form.
    :raises ReplyProblem: with these reasons, if the reply has no program.
    """
    programs: dict[str, None] = {}
    rejected: list[str] = []
    if len(reply) > MAX_REPLY:
        rejected.append(
            f"the reply has {len(reply)} characters; only the first {MAX_REPLY} were read. Give one short program"
        )
    for candidate in from_reply(reply, text.language):
        if form != PYTHONIC and candidate.form != form:
            rejected.append(f"line {candidate.line} of the reply: {_FORMS[candidate.form]} was not asked for")
        elif candidate.program is None:
            rejected.append(_reason(candidate, reply))
        else:
            programs[to_text(candidate.program)] = None
    if not programs:
        raise ReplyProblem(*(rejected[:_MAX_REJECTED] or [_absent(form)]))
    return agent_pb.Programs(programs=list(programs), rejected=rejected[:_MAX_REJECTED])


def _reason(candidate: Candidate, reply: str) -> str:
    """Return why a text is no program, with its place and its first line in the reply."""
    place = f"the {_FORMS[candidate.form]} that begins on line {candidate.line} of the reply"
    return f"{place}: {candidate.problem[:_MAX_REASON]}"


def _absent(form: str) -> str:
    expected = {
        "python": "a function run() in a block that begins with ```python",
        "dsl": "DEF run m( … m) in a code block",
    }.get(form, "a function run() in a block that begins with ```python, and DEF run m( … m) in a second block")
    return f"there is no program in the reply; give {expected}"


def shown_programs(
    trials: Sequence[agent_pb.ProgramTrial], language: Language, *, best_first: bool
) -> tuple[list[SimpleNamespace], int]:
    """Return distinct programs as Python with their mean returns, and how many more do not fit.

    :param best_first: sort by return; otherwise the order is kept.
    :raises InvalidArgument: for a program that is not one of the language.
    """
    distinct = {trial.program: trial.mean_return for trial in reversed(trials)}
    rows = list(reversed(distinct.items()))
    if best_first:
        rows.sort(key=lambda row: -row[1])
    programs: list[SimpleNamespace] = []
    room = MAX_SHOWN_CHARACTERS
    for program, mean_return in rows[:MAX_SHOWN]:
        text = to_python(_parse(program, language)).text
        room -= len(text)
        if room < 0:
            break
        programs.append(SimpleNamespace(text=text, mean_return=f"{mean_return:.4g}"))
    return programs, len(rows) - len(programs)


def _parse(program: str, language: Language) -> Program:
    try:
        return parse(program, language)
    except InvalidArgument as error:
        raise InvalidArgument(
            field="trials", problem=error.message, value=program, expected="canonical texts of programs"
        ) from None
