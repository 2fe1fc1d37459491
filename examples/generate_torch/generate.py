"""Greedy generation by a Llama from transformers, with a static KV cache: 64 tokens from eight.

    python examples/generate_torch/generate.py

One exported program serves the prompt and the single tokens after it. The cache is in buffers of
the module, which every call updates in place; the tokens are compared with those of eager PyTorch.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

import ingot

PROMPT, STEPS, LENGTH = 8, 64, 128
CONFIG = LlamaConfig(
    vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=LENGTH,
)  # fmt: skip


class Decoder(torch.nn.Module):
    """The logits of the last token. `positions`: those of the tokens, counted from 0. The cache's
    tensors are buffers, so that torch.export sees what is updated."""

    def __init__(self, model: LlamaForCausalLM, length: int):
        super().__init__()
        config, self.model = model.config, model
        self.cache = StaticCache(config, max_cache_len=length)
        heads, size = config.num_key_value_heads, config.head_dim
        self.cache.early_initialization(1, heads, size, model.dtype, torch.device("cpu"))
        for i, layer in enumerate(self.cache.layers):
            self.register_buffer(f"keys_{i}", layer.keys, persistent=False)
            self.register_buffer(f"values_{i}", layer.values, persistent=False)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        for i, layer in enumerate(self.cache.layers):
            layer.keys, layer.values = getattr(self, f"keys_{i}"), getattr(self, f"values_{i}")
            layer.cumulative_length = positions[0].clone()
        return self.model(tokens, past_key_values=self.cache, use_cache=True).logits[:, -1]


Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def generate(step: Step, tokens: torch.Tensor, count: int) -> list[int]:
    made, start = list[int](), 0
    for _ in range(count):
        end = start + tokens.shape[1]
        logits = step(tokens, torch.arange(start, end))
        tokens, start = logits.argmax(-1, keepdim=True), end
        made.append(int(tokens))
    return made


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(CONFIG).eval()
    decoder, prompt = Decoder(model, LENGTH), torch.randint(0, CONFIG.vocab_size, (1, PROMPT))
    count = torch.export.Dim.DYNAMIC
    shapes = {"tokens": {1: count}, "positions": {0: count}}
    exe = ingot.compile(decoder, (prompt, torch.arange(PROMPT)), dynamic_shapes=shapes)
    generate(exe, prompt, 2)  # warm-up
    start = time.perf_counter()
    made = generate(exe, prompt, STEPS)
    each_us = (time.perf_counter() - start) / STEPS * 1e6
    assert made == generate(Decoder(model, LENGTH), prompt, STEPS), "they differ from eager's"
    print(" ".join(map(str, made)))
    print(f"{STEPS} tokens, {len(set(made))} different ones, {each_us:.0f} µs each; they agree")


if __name__ == "__main__":
    main()
