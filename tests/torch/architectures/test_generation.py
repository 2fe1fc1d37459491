"""`model.generate` of transformers with a forward that Ingot compiles: the tokens are eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ingot.torch import ingot as ingot_backend
from tests.torch.architectures.cases import TABLE


def generated(model: Any, prompt: torch.Tensor, **options: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, eos_token_id=None,
            pad_token_id=0, **options,
        )  # fmt: skip


def check(name: str, size: str, most_graphs: int, **options: Any) -> None:
    graphs = []

    def counting(module: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(module)
        return ingot_backend(module, inputs)

    model: Any = TABLE[name].build(size)
    prompt = torch.randint(3, 90, (2, 9))
    wanted = generated(model, prompt, **options)
    model.forward = torch.compile(model.forward, backend=counting)
    assert torch.equal(generated(model, prompt, **options), wanted)
    assert wanted.shape == (2, 9 + options["max_new_tokens"]) and len(wanted.unique()) > 20
    assert 0 < len(graphs) <= most_graphs


def test_a_static_cache():
    """Graphs: the prompt's, and one or two of a token."""
    check("llama", "small", 3, max_new_tokens=64, cache_implementation="static")


@pytest.mark.long
@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3", "gemma2", "mistral"])
@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("cache", ["static", "dynamic"])
def test_caches(name, size, cache):
    """A dynamic cache grows by a token each step: its length becomes a dynamic dimension."""
    options = {"cache_implementation": "static"} if cache == "static" else {}
    check(name, size, 6, max_new_tokens=64 if size == "small" else 32, **options)
