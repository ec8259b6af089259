"""Names of models hold no address."""

from __future__ import annotations

import pytest
from dressage.serving.model_names import is_model_name
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    "name",
    [
        "openai/gpt-4.1",
        "gpt-4.1",
        "template/v1",
        "recorded/low_crawl",
        "ollama/llama3:8b",
        "ft:gpt-4o-mini:org::id",
        "bedrock/arn:aws:bedrock:us-east-1:1234:inference-profile/us.anthropic.claude-v1:0",
        "cloudflare/@cf/meta/llama-2-7b",
        "vertex_ai/claude-3-5-sonnet@20240620",
        "hosted_vllm/Qwen/Qwen3-8B",
    ],
)
def test_names_of_models_pass(name):
    assert is_model_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "oobabooga/http://127.0.0.1:1",
        "huggingface/https://example.org",
        "HTTP://example.org",
        "oobabooga/http:/responses//127.0.0.1",
        "oobabooga/http:/example.org",
        "http:/x",
        "oobabooga//example.org",
        "openai/../../etc",
        "openai/x?y=z",
        "openai/x#y",
        "openai/x y",
        "openai/x\n",
        "openai/\u2100",
        "/x",
        "x/",
    ],
)
def test_addresses_and_paths_are_no_names(name):
    assert not is_model_name(name)


@given(st.text(alphabet="ahtps:/.@", max_size=24))
def test_nothing_that_is_left_of_a_name_is_an_address(name):
    if is_model_name(name):
        for part in ("a/", "responses/", "v2/"):
            assert "//" not in name.replace(part, "")
