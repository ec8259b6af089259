"""Request arguments that set a model's reasoning effort; ``off`` switches it off or is refused.

litellm translates ``reasoning_effort`` for each provider. Without a translation it sends nothing, so that a model which reasons
by default would continue to do so, at a cost. The arguments that litellm would send are therefore checked first.
"""

from __future__ import annotations

import re
from typing import Any

from dressage_llm_agent.provider.base import EFFORTS, ProviderFault

OFF = "off"
# Providers whose models reason only on request.
_OPT_IN = frozenset({"anthropic", "bedrock", "vertex_ai_anthropic"})
# Models whose reasoning can be reduced but not switched off, according to their documentation.
_ALWAYS_ON = re.compile(r"(^|/)(o[134](-|$)|gemini-2\.5-pro|gemini-3|deepseek-r1)", re.IGNORECASE)
# Every model that reasons offers these, unless the tables deny one.
_USUAL = ("low", "medium", "high")
_SWITCHES = ("reasoning_effort", "thinking", "think", "thinkingConfig", "extra_body")


def thinking_arguments(litellm: Any, model: str, effort: str) -> dict[str, Any]:
    """Return the additional arguments of a request.

    :param effort: ``off``, ``minimal`` to ``max`` (`EFFORTS`), or empty for the model's default. An effort that the model does
        not offer becomes the next lower one that it does; below those it offers, the lowest.
    :raises ProviderFault: ``bad_request`` for ``off`` with a model that cannot stop thinking.
    """
    if not effort:
        return {}
    if effort != OFF:
        return {"reasoning_effort": _nearest_effort(litellm, model, effort)}
    name, provider = _names(litellm, model)
    if provider == "hosted_vllm":
        # vLLM passes this to the chat template; Qwen's and others support it.
        return {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}
    if provider in _OPT_IN:
        return {}
    if _thinks(litellm, model) and not _can_stop(name, provider):
        message = f"thinking: {model} cannot stop thinking; use low, or another model for this role"
        raise ProviderFault("bad_request", message)
    return {"reasoning_effort": "none"}


def _nearest_effort(litellm: Any, model: str, effort: str) -> str:
    """Return the effort, or the nearest one that the model offers."""
    index = EFFORTS.index(effort)
    for level in (*reversed(EFFORTS[: index + 1]), *EFFORTS[index + 1 :]):
        if _offers(litellm, model, level):
            return level
    return effort


def _offers(litellm: Any, model: str, level: str) -> bool:
    """Whether a model offers an effort: according to litellm's tables, or as a number of tokens to think."""
    name, provider = _names(litellm, model)
    try:
        flag = litellm.get_model_info(model).get(f"supports_{level}_reasoning_effort")
    except Exception:
        flag = None
    if flag is not None:
        return bool(flag)
    if level in _USUAL:
        return True
    return provider in _OPT_IN and _accepts(name, provider, level)


def _accepts(name: str, provider: str, level: str) -> bool:
    """Whether litellm translates an effort for a model of a provider that takes a number of tokens."""
    from litellm.utils import get_optional_params

    try:
        parameters = get_optional_params(
            model=name, custom_llm_provider=provider, reasoning_effort=level, drop_params=True
        )
    except Exception:
        return False
    return "budget_tokens" in (parameters.get("thinking") or {})


def _names(litellm: Any, model: str) -> tuple[str, str]:
    try:
        name, provider, *_ = litellm.get_llm_provider(model)
    except Exception:
        return model, ""
    return str(name), str(provider)


def _thinks(litellm: Any, model: str) -> bool:
    try:
        return bool(litellm.supports_reasoning(model)) or _ALWAYS_ON.search(model) is not None
    except Exception:
        return False


def _can_stop(name: str, provider: str) -> bool:
    """Whether litellm sends something that switches thinking off."""
    if _ALWAYS_ON.search(name):
        return False
    from litellm.utils import get_optional_params

    try:
        parameters = get_optional_params(
            model=name, custom_llm_provider=provider, reasoning_effort="none", drop_params=True
        )
    except Exception:
        return False
    return any(parameters.get(switch) for switch in _SWITCHES) or parameters.get("think") is False
