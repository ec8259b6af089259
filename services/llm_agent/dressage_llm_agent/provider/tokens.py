"""Counts tokens of text, without a request and without a download."""

from __future__ import annotations

from dressage_llm_agent.provider.litellm_provider import load_litellm


def count_tokens(text: str, *, model: str) -> int:
    """Return the number of tokens of a text, by litellm's tokenizer for a model.

    The tokenizers that litellm would download are switched off (`load_litellm`); for their models, as for unknown ones, the
    count is that of the tokenizer in litellm's package. Counts of very long texts are extrapolated from samples.

    :param model: the litellm name; recordings are counted as an unknown model.
    """
    if not text:
        return 0
    litellm = load_litellm()
    return int(litellm.token_counter(model=model, text=text))
