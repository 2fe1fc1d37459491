"""Modules around models: a part of one, or two calls with a KV cache between them."""

from __future__ import annotations

from typing import Any

import torch


class Wrapped(torch.nn.Module):
    def __init__(self, model: Any):
        super().__init__()
        self.model, self.config = model, model.config


class Cached(Wrapped):
    """A prompt, then two steps with the cache that it left."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> Any:
        cache, found, start = None, [], 0
        length = input_ids.shape[1]
        for end in (length - 3, length - 1, length):
            mask = None if attention_mask is None else attention_mask[:, :end]
            made = self.model(
                input_ids[:, start:end],
                attention_mask=mask,
                past_key_values=cache,
                use_cache=True,
            )
            cache, start = made.past_key_values, end
            found.append(made.logits)
        return torch.cat(found, 1)


class Encoder(Wrapped):
    def forward(self, **given: Any) -> Any:
        return self.model.get_encoder()(**given)


class ImageEncoder(Wrapped):
    """The vision encoder of SAM."""

    def forward(self, pixel_values: torch.Tensor) -> Any:
        return self.model.vision_encoder(pixel_values)
