"""The adapter to litellm, and the only module that imports it.

litellm sends single requests and computes their price; retries, deadlines, logs and callbacks are part of this service. It is
imported at the first use, in a thread, since the import takes seconds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Mapping
from typing import Any

from dressage.parsing import ONE_PARSER
from dressage.serving.model_names import EXPECTED, is_model_name

from dressage_llm_agent.provider import signatures
from dressage_llm_agent.provider.base import (
    CompletionRequest,
    FaultKind,
    Message,
    ModelDescription,
    ProviderFault,
    Reply,
    ToolCall,
    Usage,
)
from dressage_llm_agent.provider.bounded import bound_replies, too_long
from dressage_llm_agent.provider.redaction import Redactor
from dressage_llm_agent.provider.thinking import thinking_arguments
from dressage_llm_agent.provider.vision import Vision, to_part, vision_support


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


MAX_REPLY_BYTES = 1024 * 1024
_SHOWN_ERROR = 300
_MILLION = 1_000_000
# The client library requires a key even for an address that needs none.
_NO_KEY = "not-needed"
_VERBOSE_LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "openai", "httpx", "httpcore", "anthropic")
_importing = threading.Lock()
_litellm: list[Any] = []
"""The module once it is configured: setting the level of a logger empties the caches of all loggers."""


class LitellmProvider:
    """Sends requests through litellm.

    :param api_base: address of an OpenAI-compatible server, for all models; None: each provider's own.
    :param api_key: key for all models; None: each provider's own variable in the environment.
    :param api_bases: further addresses that requests may name, with their keys; an empty key: the provider's own variable.
    :param deadline: seconds for one request, > 0.
    :param vision: the operator's configuration of vision support.
    """

    def __init__(
        self,
        *,
        api_base: str | None = None,
        api_key: str | None = None,
        api_bases: Mapping[str, str] | None = None,
        deadline: float = 180.0,
        redactor: Redactor,
        vision: Vision | None = None,
    ) -> None:
        self._api_base = api_base
        self._api_key = api_key or (_NO_KEY if api_base else None)
        self._api_bases = dict(api_bases or {})
        self._deadline = deadline
        self._redactor = redactor
        self._vision = vision or Vision()

    async def complete(self, request: CompletionRequest) -> Reply:
        """Send one request once; see `Provider`."""
        litellm = await _module()
        if problem := _name_problem(litellm, request.model):
            raise ProviderFault("bad_request", problem)
        arguments = self._arguments(request, litellm) | thinking_arguments(litellm, request.model, request.thinking)
        try:
            # litellm's own timeout bounds each read; ours bounds the whole.
            async with asyncio.timeout(self._deadline):
                response = await litellm.acompletion(**arguments)
        except TimeoutError:
            raise ProviderFault("timeout", f"the model did not answer within {self._deadline:g} s") from None
        except Exception as error:
            # The client library runs no code of this service: any error is a fault of the provider.
            raise self._fault(error) from None
        return _reply(response, _price(litellm, response, request.model), provider=_provider(litellm, request.model))

    async def describe(self, model: str, api_base: str = "") -> ModelDescription:
        """Return price and configuration from litellm's local tables."""
        litellm = await _module()
        if problem := _name_problem(litellm, model):
            return ModelDescription(model, language_model=True, configured=False, problem=problem)
        try:
            key = self._endpoint(api_base, litellm, model)[1]
        except ProviderFault as fault:
            return ModelDescription(model, language_model=True, configured=False, problem=fault.message)
        input_price, output_price = _prices(litellm, model)
        missing = [] if key else _missing_keys(litellm, model)
        supports_images, supports_video = vision_support(litellm, model, self._vision)
        process = "the process that calls models (`dressage run`, `dressage serve` or llm-agent)"
        problem = f"no key is configured; set {', '.join(missing)} for {process}" if missing else ""
        return ModelDescription(
            model,
            language_model=True,
            configured=not missing,
            input_dollars_per_million=input_price,
            output_dollars_per_million=output_price,
            problem=problem,
            supports_images=supports_images,
            supports_video=supports_video,
        )

    def _endpoint(self, api_base: str, litellm: Any, model: str) -> tuple[str | None, str | None]:
        """The address and the key of a request.

        A caller that could name any address would send the server's key to it, or reach what only the server can.

        :raises ProviderFault: ``bad_request`` for an address that the settings do not allow.
        """
        if api_base in ("", self._api_base):
            return self._api_base, self._api_key
        if api_base not in self._api_bases:
            message = (
                f"api_base: {api_base} is not allowed on this server; expected one of its settings "
                "DRESSAGE_LLM_AGENT_API_BASES. Add the address there"
            )
            raise ProviderFault("bad_request", message)
        return api_base, self._api_bases[api_base] or (_NO_KEY if _missing_keys(litellm, model) else None)

    def _arguments(self, request: CompletionRequest, litellm: Any) -> dict[str, Any]:
        api_base, api_key = self._endpoint(request.api_base, litellm, request.model)
        arguments: dict[str, Any] = {
            "model": request.model,
            "messages": [_to_openai(message) for message in request.messages],
            "timeout": self._deadline,
            # `RetryingProvider` repeats requests; those of the library would be neither counted nor bounded.
            "num_retries": 0,
            "max_retries": 0,
            # Providers lack parameters; thinking, which costs money, is checked before it is dropped (decision 0026).
            "drop_params": True,
            # The caller of the task runs the tools; litellm's own gateway for tools needs a package that is not installed.
            "_skip_mcp_handler": True,
            "api_base": api_base,
            "api_key": api_key,
        }
        if request.tools:
            arguments["tools"] = [
                {
                    "type": "function",
                    "function": {"name": t.name, "description": t.description, "parameters": dict(t.parameters)},
                }
                for t in request.tools
            ]
            arguments["tool_choice"] = "auto" if request.tools_allowed else "none"
        if request.max_output_tokens is not None:
            arguments["max_tokens"] = request.max_output_tokens
        if request.temperature is not None:
            arguments["temperature"] = request.temperature
        return {name: value for name, value in arguments.items() if value is not None}

    def _fault(self, error: Exception) -> ProviderFault:
        if (refusal := too_long(error)) is not None:
            return ProviderFault("too_large", str(refusal))
        status = getattr(error, "status_code", None)
        kind = _kind(type(error).__name__, status if isinstance(status, int) else None)
        if kind == "auth":
            # The provider's message may contain the key.
            return ProviderFault(
                kind, f"the provider refused the API key (status {status}); check the key and its rights"
            )
        details = " ".join(self._redactor.redact(str(error)).split())[:_SHOWN_ERROR]
        headers = getattr(error, "litellm_response_headers", None) or {}
        return ProviderFault(kind, f"the provider failed: {details}", retry_after=_seconds(headers))


def _name_problem(litellm: Any, model: str) -> str:
    """Why a model of this name may not be called; empty: it may.

    litellm takes the addresses of some providers from the name, so a name that came with a session must hold none.
    """
    if not is_model_name(model):
        return f"model: invalid name {model!r}; expected {EXPECTED}"
    # litellm would ask for a login at a terminal before it answers, and hold the event loop meanwhile.
    if litellm.constants.PROVIDERS_THAT_AUTHENTICATE_ON_PROVIDER_INFO & set(model.split("/")[:-1]):
        return f"model: {model!r} needs a login at a terminal; expected a provider with an API key"
    try:
        provider = litellm.get_llm_provider(model)[1]
    except litellm.exceptions.BadRequestError:
        provider = ""
    if not provider:
        return f"model: litellm supports no model {model!r}; expected provider/model"
    return ""


async def _module() -> Any:
    """Return the litellm module, loaded in a thread by the first call."""
    return _litellm[0] if _litellm else await asyncio.to_thread(load_litellm)


def load_litellm() -> Any:
    """Return the litellm module, configured once with local prices and without callbacks and prints."""
    if _litellm:
        return _litellm[0]
    with _importing, ONE_PARSER:
        if _litellm:
            return _litellm[0]
        # The prices of the installed version: by default the import downloads a table.
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        os.environ.setdefault("LITELLM_TELEMETRY", "False")
        os.environ.setdefault("LITELLM_LOG", "ERROR")
        import litellm
        from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

        bound_replies(AsyncHTTPHandler)
        # At debug level these log whole requests, including text of people.
        for name in _VERBOSE_LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        litellm.suppress_debug_info = True
        # Tokens are counted with the tokenizer in the package; others would be downloaded at the first count.
        litellm.disable_hf_tokenizer_download = True
        litellm.turn_off_message_logging = True
        litellm.callbacks = []
        litellm.success_callback = []
        litellm.failure_callback = []
        _litellm.append(litellm)
        return litellm


def _kind(name: str, status: int | None) -> FaultKind:
    if name == "Timeout" or status == 408:
        return "timeout"
    if status in (401, 403):
        return "auth"
    if status == 429:
        return "rate_limited"
    if name == "APIResponseValidationError":
        return "malformed"
    if status is not None and 400 <= status < 500:
        return "bad_request"
    if name in ("APIConnectionError", "ConnectError"):
        return "connection"
    return "server"


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds; a date is rare and treated as absent."""
    try:
        return max(float(headers.get("retry-after", "")), 0.0)
    except (TypeError, ValueError):
        return None


def _to_openai(message: Message) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.attachments:
        text = {"type": "text", "text": message.content}
        plain["content"] = [text, *(to_part(attachment) for attachment in message.attachments)]
    if message.tool_calls:
        plain["content"] = message.content or None
        plain["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
                **signatures.fields(call.opaque),
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        plain["tool_call_id"] = message.tool_call_id
    return plain | signatures.fields(message.opaque)


def _reply(response: Any, dollars: float | None, *, provider: str) -> Reply:
    """The first choice of a response.

    :raises ProviderFault: ``malformed`` without a choice, ``too_large`` above `MAX_REPLY_BYTES`.
    """
    choices = getattr(response, "choices", None)
    if not choices:
        raise ProviderFault("malformed", "the provider's reply holds no choice")
    message = choices[0].message
    text = message.content if isinstance(message.content, str) else ""
    calls = tuple(
        ToolCall(
            call.id or f"call_{index}",
            call.function.name or "",
            call.function.arguments or "",
            signatures.of_call(call),
        )
        for index, call in enumerate(message.tool_calls or ())
    )
    opaque = signatures.of_message(message, provider)
    size = len(text.encode()) + len(opaque.encode()) + sum(len(call.arguments.encode()) for call in calls)
    if size > MAX_REPLY_BYTES:
        raise ProviderFault("too_large", f"the model's reply has {size} bytes, more than {MAX_REPLY_BYTES}")
    usage = getattr(response, "usage", None)
    input_tokens, output_tokens = getattr(usage, "prompt_tokens", 0) or 0, getattr(usage, "completion_tokens", 0) or 0
    return Reply(text, calls, Usage(input_tokens, output_tokens, dollars), choices[0].finish_reason or "stop", opaque)


def _provider(litellm: Any, model: str) -> str:
    """The name of a model's provider in litellm; empty if it is unknown."""
    try:
        return str(litellm.get_llm_provider(model)[1])
    except Exception:
        return ""


def _price(litellm: Any, response: Any, model: str) -> float | None:
    """The price of a response in dollars; None, not 0, if litellm has no price."""
    if _prices(litellm, model) == (None, None):
        return None
    try:
        return float(litellm.completion_cost(completion_response=response, model=model))
    except Exception:
        return None


def _prices(litellm: Any, model: str) -> tuple[float | None, float | None]:
    try:
        info = litellm.get_model_info(model)
    except Exception:
        return None, None
    input_price, output_price = info.get("input_cost_per_token"), info.get("output_cost_per_token")
    # 0 stands for an unknown price, and would make a budget of dollars endless.
    if not input_price and not output_price:
        return None, None
    return (None if input_price is None else input_price * _MILLION), (
        None if output_price is None else output_price * _MILLION
    )


def _missing_keys(litellm: Any, model: str) -> list[str]:
    """Return the variables of keys that are not set. Empty ones leave the environment first: litellm would take them as set."""
    for name in [name for name, value in os.environ.items() if name.endswith("_API_KEY") and not value.strip()]:
        del os.environ[name]
    report = litellm.validate_environment(model=model)
    if report.get("keys_in_environment"):
        return []
    return list(report.get("missing_keys") or ["the provider's key"])
