"""The parts of prompts and replies that the parameter proposer and the critic share.

A reply has a vector of parameters: one JSON array, or lines ``params[i]: value``. Each parameter must be given exactly once
in a reply. A reply that gives one twice is ambiguous: neither the first nor the last value is taken, the reply is sent back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.roles.base import ReplyProblem
from dressage_llm_agent.roles.replies import Block, blocks, outside_blocks, prose, sections

REMEDY = (
    "choose a language model, and set its provider's key where models are called, "
    "or search without a model, with the setting search=cma_es"
)
"""What to do without a language model."""
_PROMPT_DIGITS = 3
_EXAMPLE = 4


def format_values(values: Iterable[float], form: agent_pb.ParameterForm) -> str:
    """Return parameters as they are written in prompts: integers, or rounded to the form's significant digits."""
    if form.choices:
        return ", ".join(f"{value:g}" for value in values)
    digits = form.digits or _PROMPT_DIGITS
    # Adding 0 turns -0 into 0.
    return ", ".join(
        f"{float(f'{value:.{digits}g}') + 0:g}" if digits <= 6 else f"{value:.{digits}g}" for value in values
    )


def trial(entry: agent_pb.ParameterTrial, form: agent_pb.ParameterForm) -> dict[str, object]:
    """Return an evaluated vector as the templates show it."""
    return {
        "values": format_values(entry.values, form),
        "mean_return": f"{entry.mean_return:.2f}",
        "episodes": entry.episodes,
        "iteration": entry.iteration,
        "warmup": entry.iteration == 0,
        "rollout": entry.rollout,
    }


def trials(history: Sequence[agent_pb.ParameterTrial], form: agent_pb.ParameterForm) -> list[dict[str, object]]:
    """Return a history as the templates show it."""
    return [trial(entry, form) for entry in history]


def example(form: agent_pb.ParameterForm) -> str:
    """Return the example of a reply's array, of the length that fits a line."""
    pattern = ("1", "0", "1", "0") if form.choices else ("0.5", "-1.2", "0", "2.3")
    values = ", ".join(pattern[: min(form.size, _EXAMPLE)])
    return f"[{values}{', …' if form.size > _EXAMPLE else ''}]"


def structure(form: agent_pb.ParameterForm, card: EnvironmentCard) -> str:
    """Return how a policy acts, and what each of its parameters is, in words."""
    outputs = card.num_actions or card.action_size
    decision = (
        f"the action with the highest of {outputs} scores is taken"
        if card.num_actions
        else f"the {outputs} outputs are the action, clipped to its bounds"
    )
    if form.kind == "table":
        return f"A table: params[s] is the action that is taken where the observation is s, from 0 to {form.size - 1}."
    if form.kind == "linear":
        return f"Linear: outputs = W·observation{' + b' if form.bias else ''}; {decision}.\n" + _rows(
            form, outputs, card.observation_size, "observation component"
        )
    if form.kind == "random_features":
        features = max((form.size - (outputs if form.bias else 0)) // outputs, 1)
        return (
            f"{features} fixed random features of the observation, each between -1 and 1 (tanh of a fixed linear map), "
            f"and a linear output on them: outputs = W·features{' + b' if form.bias else ''}; {decision}.\n"
            + _rows(form, outputs, features, "feature")
        )
    if form.kind == "projected_mlp":
        return (
            f"A small tanh network; {decision}. The parameters are not its weights: each layer's weights are fixed random "
            "linear combinations of that layer's share of the parameters, the first layer's share first."
        )
    return f"A tanh network; {decision}. The parameters are its weights, layer by layer, each row by row and then its biases."


def _rows(form: agent_pb.ParameterForm, outputs: int, inputs: int, noun: str) -> str:
    """The order of the parameters of a matrix and a bias."""
    lines = [
        f"  params[{row * inputs}] to params[{(row + 1) * inputs - 1}]: output {row}, one weight for each {noun}"
        for row in range(outputs)
    ]
    if form.bias:
        first = outputs * inputs
        lines.append(f"  params[{first}] to params[{first + outputs - 1}]: the bias of each output")
    return "\n".join(lines)


_ASSIGNMENT = re.compile(r"\bparams?\s*\[([^\]\n]{0,40})\]\s*(?:[*`]{0,3})\s*[:=](?!=)\s*([^\s,;]*)", re.IGNORECASE)
_NUMBER = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[.`*)\]]*")
_INDEX = re.compile(r"\s*([0-9]{1,9})\s*")
# Minus signs that models write in place of the hyphen.
_MINUS = str.maketrans("\u2212\u2013\u2010\u2011", "----")
_LARGEST = (2 - 2**-23) * 2.0**127
_SHOWN = 60
_SHOWN_ENTRIES = 12


def read_parameters(reply: str, form: agent_pb.ParameterForm) -> list[float]:
    """Return the parameters of a reply, in order.

    :raises ReplyProblem: naming every problem: no vector or two, parameters that are missing, doubled or unknown, values that
        are no finite numbers, and, if the form is enforced, values beyond its limits.
    """
    arrays = [block for block in blocks(reply) if _is_array(block)]
    lines = _assignments(reply, arrays)
    if not arrays and not lines and reply.lstrip().startswith(("[", "{")):
        arrays = [Block("json", reply)]
    if arrays and lines:
        names = _join(f"params[{name}]" for name, _ in lines)
        raise ReplyProblem(
            f"the parameters are given as a JSON block and again as {names}; give each exactly once, and write p3 for "
            "params[3] in the explanation"
        )
    if len(arrays) > 1:
        raise ReplyProblem(f"there are {len(arrays)} JSON blocks; give the parameters in exactly one")
    problems: list[str] = []
    if arrays:
        values = _from_array(arrays[0].text, form, problems)
    elif lines:
        values = _from_lines(lines, form, problems)
    else:
        raise ReplyProblem(_missing_parameters(reply, form))
    problems += _limit_problems(values, form)
    if problems:
        raise ReplyProblem(*problems)
    return [values[index] for index in range(form.size)]


def read_explanation(reply: str) -> str:
    """Return the explanation of a reply without its parameters: the JSON object's entry, its section, or all of the prose."""
    for block in blocks(reply):
        if _is_array(block) and (text := _json_explanation(block.text)):
            return text
    text = sections(reply).get("explanation") or prose(reply)
    lines = [line for line in text.splitlines() if not _ASSIGNMENT.match(line.lstrip(" \t*`-"))]
    return "\n".join(lines).strip()


def _is_array(block: Block) -> bool:
    return block.language == "json" or (block.language == "" and block.text.lstrip().startswith(("[", "{")))


def _assignments(reply: str, arrays: Sequence[Block]) -> list[tuple[str, str]]:
    """Index and value of each ``params[i]: value``, as text; those within JSON blocks are none."""
    text = outside_blocks(reply, keep=lambda block: block not in arrays).translate(_MINUS)
    return [(match[1], match[2]) for match in _ASSIGNMENT.finditer(text)]


def _from_array(text: str, form: agent_pb.ParameterForm, problems: list[str]) -> dict[int, float]:
    try:
        data = json.loads(text, object_pairs_hook=_single_entries)
    except RecursionError:
        raise ReplyProblem("the JSON is nested too deep; give one array of numbers") from None
    except ValueError as error:
        raise ReplyProblem(f"the JSON cannot be read ({error}); give one array of {form.size} numbers") from None
    if isinstance(data, dict):
        if "params" not in data:
            raise ReplyProblem(f"the JSON object has no entry 'params'; give one array of {form.size} numbers")
        data = data["params"]
    if not isinstance(data, list):
        raise ReplyProblem(f"the JSON is a {type(data).__name__}; give one array of {form.size} numbers")
    if len(data) != form.size:
        more = "missing" if len(data) < form.size else "too many"
        problems.append(
            f"the array has {len(data)} numbers; expected {form.size}, so {abs(form.size - len(data))} are {more}"
        )
    values: dict[int, float] = {}
    wrong: list[str] = []
    for index, entry in enumerate(data):
        value = _finite(entry)
        if value is None:
            wrong.append(f"params[{index}] is {json.dumps(entry)[:_SHOWN]}; it must be a finite number")
        else:
            values[index] = value
    problems += _shorten(wrong)
    return values


def _single_entries(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ValueError(f"the entry {doubled[0][:_SHOWN]!r} is given twice")
    return dict(pairs)


def _json_explanation(text: str) -> str:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    entry = data.get("explanation") if isinstance(data, dict) else None
    return entry.strip() if isinstance(entry, str) else ""


def _from_lines(
    lines: Sequence[tuple[str, str]], form: agent_pb.ParameterForm, problems: list[str]
) -> dict[int, float]:
    texts_by_index: dict[int, list[str]] = {}
    unknown: list[str] = []
    for name, value in lines:
        index = _INDEX.fullmatch(name)
        if index is None or int(index[1]) >= form.size:
            unknown.append(f"params[{name}]")
        else:
            texts_by_index.setdefault(int(index[1]), []).append(value)
    if unknown:
        problems.append(f"there is no {_join(unknown)}; the parameters are params[0] to params[{form.size - 1}]")
    missing = [f"params[{index}]" for index in range(form.size) if index not in texts_by_index]
    if missing:
        problems.append(f"{_join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    values: dict[int, float] = {}
    wrong: list[str] = []
    for place, texts in sorted(texts_by_index.items()):
        if len(texts) > 1:
            quotes = ", ".join(text[:_SHOWN] for text in texts[:4])
            wrong.append(f"params[{place}] is given {len(texts)} times ({quotes}); give it exactly once")
            continue
        match = _NUMBER.fullmatch(texts[0])
        number = _finite(float(match[1])) if match else None
        if number is None:
            wrong.append(f"params[{place}] is {texts[0][:_SHOWN]!r}; it must be a finite number")
        else:
            values[place] = number
    problems += _shorten(wrong)
    return values


def _finite(value: Any) -> float | None:
    """The number, or None if it is none that a policy can store, in single precision."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Compared before the conversion: an integer of the reply may be too large for a float.
    return float(value) if -_LARGEST <= value <= _LARGEST else None


def _limit_problems(values: dict[int, float], form: agent_pb.ParameterForm) -> list[str]:
    """Problems with the limits of an enforced form."""
    if not form.enforced:
        return []
    if form.choices:
        expected = f"an integer from 0 to {form.choices - 1}"
        wrong = [index for index, value in values.items() if value != int(value) or not 0 <= value < form.choices]
    elif form.range:
        expected = f"between {-form.range:g} and {form.range:g}"
        wrong = [index for index, value in values.items() if abs(value) > form.range]
    else:
        return []
    return _shorten([f"params[{index}] is {values[index]:.17g}; it must be {expected}" for index in wrong])


def _missing_parameters(reply: str, form: agent_pb.ParameterForm) -> str:
    if reply.count("```") % 2:
        return f"a code block was opened and not closed; give all {form.size} parameters in one block"
    return f"there are no parameters; give all {form.size} as one JSON array in a block that begins with ```json"


def _join(names: Iterable[str]) -> str:
    entries = list(names)
    text = ", ".join(entry[:_SHOWN] for entry in entries[:_SHOWN_ENTRIES])
    rest = len(entries) - _SHOWN_ENTRIES
    return f"{text} and {rest} more" if rest > 0 else text


def _shorten(problems: Sequence[str]) -> list[str]:
    """The problems of single parameters, at most a dozen of them."""
    rest = len(problems) - _SHOWN_ENTRIES
    return [*problems[:_SHOWN_ENTRIES], *([f"{rest} more parameters have such a problem"] if rest > 0 else [])]
