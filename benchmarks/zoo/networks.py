"""Small networks in PyTorch, and GPT-2 with its KV cache as plain tensors. Used by exported.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves


class ByPosition(nn.Module):
    """A module with positional inputs and plain tensor outputs, so that callers need neither names
    nor the classes of `transformers`."""

    def __init__(self, module: nn.Module, names: list[str], arguments: Callable[[dict], dict]):
        super().__init__()
        self.module, self.names, self.arguments = module, names, arguments

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs = self.module(**self.arguments(dict(zip(self.names, inputs))))
        return tuple(leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor))


class CachedGpt2(nn.Module):
    """One decoding step of GPT-2: the KV cache in, logits and the longer KV cache out."""

    def __init__(self) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        super().__init__()
        self.model = GPT2LMHeadModel(GPT2Config(attn_implementation="eager"))

    def forward(
        self, input_ids: torch.Tensor, past: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        from transformers import DynamicCache

        cache: Any = DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[f"past_{layer}_key"], past[f"past_{layer}_value"], layer)
        outputs = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
        present = [
            x for layer in outputs.past_key_values.layers for x in (layer.keys, layer.values)
        ]
        return outputs.logits, *present


class Tagger(nn.Module):
    """A tag for each token: an embedding, a bidirectional LSTM, a linear layer."""

    def __init__(self, vocabulary: int = 1000, width: int = 64, hidden: int = 96, tags: int = 17):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, hidden, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * hidden, tags)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(input_ids))[0])


class UNet(nn.Module):
    """Three levels down, three up, with skip connections by concat."""

    def __init__(self, width: int = 16, classes: int = 4):
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(_double(a, b) for a, b in zip([3, *widths], widths))
        self.bottom = _double(widths[-1], 8 * width)
        above = [8 * width, *widths[:0:-1]]
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in zip(above, widths[::-1]))
        self.join = nn.ModuleList(_double(2 * w, w) for w in widths[::-1])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        x, levels = pixel_values, []
        for block in self.down:
            levels.append(block(x))
            x = nn.functional.max_pool2d(levels[-1], 2)
        x = self.bottom(x)
        for up, join, level in zip(self.up, self.join, levels[::-1]):
            x = join(torch.cat([up(x), level], 1))
        return self.head(x)


def _double(channels: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
    )  # fmt: skip


class Images(nn.Sequential):
    """A chain whose input is called `pixel_values`."""

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return super().forward(pixel_values)


class Rows(nn.Sequential):
    """A chain whose input is called `x`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)


def vgg16(classes: int = 1000) -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    head = [nn.Linear(25088, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU()]
    return Images(*layers, nn.Flatten(), *head, nn.Linear(4096, classes))


def tiny_mlp() -> nn.Module:
    return Rows(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def tiny_cnn() -> nn.Module:
    return Images(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 64, 10),
    )  # fmt: skip
