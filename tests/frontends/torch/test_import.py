"""Exported programs → graphs → code, against eager."""

from __future__ import annotations

import numpy as np
import torch

import ingot


class Dense(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(8, 4)
        self.w = torch.nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.fc(x))
        return torch.addmm(y, y, self.w, beta=0.5, alpha=2.0) + 1


def test_a_program_of_a_dynamic_batch():
    torch.manual_seed(0)
    model = Dense().eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (torch.randn(3, 8),), dynamic_shapes=({0: batch},))
    exe = ingot.compile(program)
    for rows in (1, 5, 64):
        x = torch.randn(rows, 8)
        (y,) = exe(x.numpy())
        np.testing.assert_allclose(y, model(x).detach().numpy(), rtol=1e-5, atol=1e-5)
