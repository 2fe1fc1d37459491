"""Inputs of architectures: functions from a model's configuration to its keyword arguments.

Sizes are awkward on purpose: batches of two, odd lengths, masks with padding. Called by the tables
of text.py, vision.py and audio.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Inputs = Callable[[Any], dict[str, Any]]
VOCABULARY = 90  # token ids are below it, in every configuration


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (batch, length))


def padded(batch: int, length: int) -> torch.Tensor:
    """A mask of which row i has 2 * i tokens of padding at its end."""
    return torch.tensor(
        [[int(k < length - 2 * row) for k in range(length)] for row in range(batch)]
    )


def text(batch: int = 2, length: int = 9, mask: bool = True, **others: Any) -> Inputs:
    def make(config: Any) -> dict[str, Any]:
        found: dict[str, Any] = {"input_ids": tokens(batch, length), **others}
        if mask:
            found["attention_mask"] = padded(batch, length)
        return found

    return make


def with_prompt(first: Inputs, length: int = 7) -> Inputs:
    """Inputs of an encoder, and the tokens of its decoder."""

    def make(config: Any) -> dict[str, Any]:
        found = first(config)
        rows = next(v for v in found.values() if isinstance(v, torch.Tensor)).shape[0]
        return {**found, "decoder_input_ids": tokens(rows, length)}

    return make


def images(batch: int = 2, side: int | tuple[int, int] = 0, **others: Any) -> Inputs:
    """Images of the configuration's size, or of another."""

    def make(config: Any) -> dict[str, Any]:
        known = side or _vision(config).image_size
        height, width = known if isinstance(known, tuple | list) else (known, known)
        return {"pixel_values": torch.randn(batch, channels(config), height, width), **others}

    return make


def channels(config: Any) -> int:
    own = _vision(config)
    return getattr(own, "num_channels", getattr(own, "in_channels", 3))


def _vision(config: Any) -> Any:
    return getattr(config, "vision_config", config)


def video(frames: int, batch: int = 2) -> Inputs:
    def make(config: Any) -> dict[str, Any]:
        side = config.image_size
        return {"pixel_values": torch.randn(batch, frames, config.num_channels, side, side)}

    return make


def text_and_images(length: int = 7, batch: int = 2) -> Inputs:
    def make(config: Any) -> dict[str, Any]:
        return {**text(batch, length)(config), **images(batch)(config)}

    return make


def waves(samples: int = 2001, batch: int = 2, mask: bool = True) -> Inputs:
    def make(config: Any) -> dict[str, Any]:
        found = {"input_values": torch.randn(batch, samples)}
        if mask:
            short = torch.arange(samples) < torch.tensor([[samples], [samples - 700]])[:batch]
            found["attention_mask"] = short.long()
        return found

    return make


def tensors(**shapes: tuple[int, ...]) -> Inputs:
    """Floats of these shapes, by name."""
    return lambda config: {name: torch.randn(shape) for name, shape in shapes.items()}
