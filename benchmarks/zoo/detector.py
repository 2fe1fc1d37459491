"""A small detector of the YOLO family in PyTorch: a backbone of split-and-concat blocks, pooling at
several sizes, a pyramid that goes up and down, and heads with sigmoids at three scales. Used by
exported.py.

Out: for each place of the three maps, the distances to the four sides of a box and the classes'
probabilities; no selection of boxes, which is not a part of the network.
"""

from __future__ import annotations

import torch
from torch import nn

WIDTHS = (16, 32, 64, 128, 256)  # channels at strides 2, 4, 8, 16, 32


class ConvSilu(nn.Sequential):
    def __init__(self, channels: int, width: int, size: int = 3, stride: int = 1):
        super().__init__(
            nn.Conv2d(channels, width, size, stride, size // 2, bias=False),
            nn.BatchNorm2d(width),
            nn.SiLU(),
        )


class Residual(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.block = nn.Sequential(ConvSilu(width, width), ConvSilu(width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.block(x)


class SplitBlock(nn.Module):
    """Half of the channels pass through residual blocks; all stages are concatenated."""

    def __init__(self, channels: int, width: int, depth: int):
        super().__init__()
        self.enter = ConvSilu(channels, width, 1)
        self.blocks = nn.ModuleList(Residual(width // 2) for _ in range(depth))
        self.leave = ConvSilu((2 + depth) * width // 2, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = list(self.enter(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        return self.leave(torch.cat(parts, 1))


class PooledPyramid(nn.Module):
    """Max pools of 5, 9 and 13, as three of 5 in a row."""

    def __init__(self, width: int):
        super().__init__()
        self.enter, self.leave = ConvSilu(width, width // 2, 1), ConvSilu(2 * width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [self.enter(x)]
        for _ in range(3):
            parts.append(nn.functional.max_pool2d(parts[-1], 5, 1, 2))
        return self.leave(torch.cat(parts, 1))


class Head(nn.Module):
    def __init__(self, width: int, classes: int):
        super().__init__()
        self.boxes = nn.Sequential(ConvSilu(width, 32), ConvSilu(32, 32), nn.Conv2d(32, 4, 1))
        self.classes = nn.Sequential(
            ConvSilu(width, 64), ConvSilu(64, 64), nn.Conv2d(64, classes, 1), nn.Sigmoid()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.boxes(x).relu(), self.classes(x)], 1).flatten(2)


class Detector(nn.Module):
    def __init__(self, classes: int = 80):
        super().__init__()
        levels = zip((3, *WIDTHS), WIDTHS)
        self.down = nn.ModuleList(ConvSilu(a, b, 3, 2) for a, b in levels)
        self.stages = nn.ModuleList(
            SplitBlock(width, width, depth) for width, depth in zip(WIDTHS[1:], (1, 2, 2, 1))
        )
        self.pooled = PooledPyramid(WIDTHS[-1])
        small, middle, large = WIDTHS[2:]
        self.up = nn.ModuleList(
            [SplitBlock(large + middle, middle, 1), SplitBlock(middle + small, small, 1)]
        )
        self.again = nn.ModuleList([ConvSilu(small, small, 3, 2), ConvSilu(middle, middle, 3, 2)])
        self.joined = nn.ModuleList(
            [SplitBlock(small + middle, middle, 1), SplitBlock(middle + large, large, 1)]
        )
        self.heads = nn.ModuleList(Head(width, classes) for width in (small, middle, large))

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        x, maps = self.down[0](pixel_values), []
        for down, stage in zip(self.down[1:], self.stages):
            x = stage(down(x))
            maps.append(x)
        c3, c4, c5 = maps[1], maps[2], self.pooled(maps[3])
        p4 = self.up[0](torch.cat([_twice(c5), c4], 1))
        p3 = self.up[1](torch.cat([_twice(p4), c3], 1))
        n4 = self.joined[0](torch.cat([self.again[0](p3), p4], 1))
        n5 = self.joined[1](torch.cat([self.again[1](n4), c5], 1))
        return torch.cat([head(m) for head, m in zip(self.heads, (p3, n4, n5))], 2)


def _twice(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
