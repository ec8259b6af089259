"""How much a model thinks, in its provider's own words; off means off, or a clear refusal.

litellm translates ``reasoning_effort`` for each provider, and where it knows no translation it sends nothing: a model that
thinks by default would go on thinking, and be paid for it. So what it would send is looked at before it is sent.
"""

from __future__ import annotations

import re
from typing import Any

from dressage_llm_agent.provider.base import ProviderFault

OFF = "off"
# Providers whose models think only when they are asked to: nothing sent is off.
_SILENT_UNLESS_ASKED = frozenset({"anthropic", "bedrock", "vertex_ai_anthropic"})
# Models of which the provider's documentation says that thinking cannot be turned off, only down.
_ALWAYS = re.compile(r"(^|/)(o[134](-|$)|gemini-2\.5-pro|gemini-3|deepseek-r1)", re.IGNORECASE)
_SWITCHES = ("reasoning_effort", "thinking", "think", "thinkingConfig", "extra_body")


def thinking_arguments(litellm: Any, model: str, effort: str) -> dict[str, Any]:
    """What is added to a request's arguments.

    :param effort: ``off``, ``low``, ``medium``, ``high``, or empty for the model's own.
    :raises ProviderFault: ``bad_request`` where ``off`` is asked of a model that cannot stop thinking.
    """
    if not effort:
        return {}
    if effort != OFF:
        return {"reasoning_effort": effort}
    name, provider = _names(litellm, model)
    if provider == "hosted_vllm":
        # vLLM passes this to the chat template; Qwen's and others' know it.
        return {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}
    if provider in _SILENT_UNLESS_ASKED:
        return {}
    if _thinks(litellm, model) and not _can_stop(name, provider):
        message = f"{model} cannot stop thinking; ask for low, or choose another model for this role"
        raise ProviderFault("bad_request", message)
    return {"reasoning_effort": "none"}


def _names(litellm: Any, model: str) -> tuple[str, str]:
    try:
        name, provider, *_ = litellm.get_llm_provider(model)
    except Exception:
        return model, ""
    return str(name), str(provider)


def _thinks(litellm: Any, model: str) -> bool:
    try:
        return bool(litellm.supports_reasoning(model)) or _ALWAYS.search(model) is not None
    except Exception:
        return False


def _can_stop(name: str, provider: str) -> bool:
    """Whether litellm sends something that switches thinking off."""
    if _ALWAYS.search(name):
        return False
    from litellm.utils import get_optional_params

    try:
        sent = get_optional_params(model=name, custom_llm_provider=provider, reasoning_effort="none", drop_params=True)
    except Exception:
        return False
    return any(sent.get(switch) for switch in _SWITCHES) or sent.get("think") is False
