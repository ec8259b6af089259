"""The template author's parser against the wordings written before it."""

from __future__ import annotations

import string

import pytest
from dressage.errors import InvalidArgument
from dressage_llm_agent.template.abilities import ABILITIES
from dressage_llm_agent.template.assembly import kind_of
from dressage_llm_agent.template.intents import ParsedIntent
from dressage_llm_agent.template.parser import describe_known, parse
from hypothesis import given
from hypothesis import strategies as st
from paraphrases import CHEETAH, DECLINED, KNOWN, Declined, Known


def test_the_lists_are_as_long_as_claimed() -> None:
    assert len({(k.environment, k.text) for k in KNOWN}) == len(KNOWN) >= 100
    assert len({(d.environment, d.text) for d in DECLINED}) == len(DECLINED) >= 40
    assert {k.environment for k in KNOWN} <= set(ABILITIES)


@pytest.mark.parametrize("environment", ABILITIES)
def test_every_behaviour_of_an_environment_is_understood(environment: str) -> None:
    for behaviour in ABILITIES[environment].behaviours:
        kind = kind_of(behaviour)
        gait, _, way = behaviour.partition(" ")
        intent = ParsedIntent(environment, kind, gait if kind == "move" else "", way)
        assert parse(intent.words, environment).behaviour == behaviour


@pytest.mark.parametrize("case", KNOWN, ids=lambda case: f"{case.environment}: {case.text}")
def test_known_intents_are_understood(case: Known) -> None:
    intent = parse(case.text, case.environment)
    assert (intent.behaviour, intent.qualities, intent.speed) == (case.behaviour, case.qualities, case.speed)


@pytest.mark.parametrize("case", DECLINED, ids=lambda case: f"{case.environment}: {case.text}")
def test_unknown_intents_are_declined_with_what_is_known(case: Declined) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse(case.text, case.environment)
    assert caught.value.reason == "TEMPLATE_UNKNOWN_INTENT"
    for behaviour in ABILITIES[case.environment].behaviours:
        assert behaviour in caught.value.message
    assert caught.value.metadata["known"] == describe_known(case.environment)


def test_another_environment_is_declined_in_a_few_lines() -> None:
    with pytest.raises(InvalidArgument, match="no behaviour of this environment") as caught:
        parse("walk forward", "mjcf:dog")
    assert len(caught.value.message) < 500
    assert "HalfCheetah-v5" in caught.value.message and "name a language model" in caught.value.message


@given(text=st.text(max_size=300), environment=st.sampled_from((*ABILITIES, "Nothing-v0")))
def test_any_text_is_parsed_or_declined(text: str, environment: str) -> None:
    outcome = parsed_or_declined(text, environment)
    if isinstance(outcome, InvalidArgument):
        assert outcome.reason == "TEMPLATE_UNKNOWN_INTENT"
        assert len(outcome.message) < 2000
    else:
        assert outcome.behaviour in ABILITIES[environment].behaviours


def parsed_or_declined(text: str, environment: str) -> ParsedIntent | InvalidArgument:
    try:
        return parse(text, environment)
    except InvalidArgument as declined:
        return declined


@given(case=st.sampled_from(KNOWN), word=st.text(string.ascii_lowercase, min_size=9, max_size=12), at=st.integers(0, 9))
def test_one_unknown_word_anywhere_declines(case: Known, word: str, at: int) -> None:
    words = case.text.split()
    words.insert(min(at, len(words)), f"zq{word}")
    with pytest.raises(InvalidArgument, match="does not understand"):
        parse(" ".join(words), case.environment)


def test_an_unknown_environment_is_declined_with_the_known_ones() -> None:
    with pytest.raises(InvalidArgument, match="HalfCheetah-v5"):
        parse("run forward", "Nothing-v0")


def test_speed_in_kilometres_per_hour() -> None:
    assert parse("run forward at 7.2 km/h", CHEETAH).speed == pytest.approx(2.0)
