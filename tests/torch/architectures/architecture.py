"""What an architecture is: a class of `transformers`, configurations, inputs. Rows of the tables in
text.py, vision.py and audio.py; built by cases.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers

from tests.torch.architectures.inputs import Inputs


@dataclass(frozen=True)
class Architecture:
    """`small` and `large` are arguments of the class's configuration. `large` is the size that
    transformers takes by default where that has fewer than 200 M parameters, else 4 layers of
    width 512. `wrap`: a module of wrappers.py around the model. `autocast`: to bf16."""

    model: str
    small: Mapping[str, Any]
    large: Mapping[str, Any]
    inputs: Inputs
    wrap: str = ""
    autocast: bool = False

    def build(self, size: str) -> torch.nn.Module:
        """The model with random weights of a scale at which activations neither vanish nor grow;
        statistics and scales are not those of initialisation, which would hide mistakes."""
        from tests.torch.architectures import wrappers

        given = self.large if size == "large" else self.small
        kind = getattr(transformers, self.model)
        torch.manual_seed(0)
        made = {k: v() if callable(v) else v for k, v in given.items()}
        model = kind(kind.config_class(**made)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                _draw(parameter)
            for name, buffer in model.named_buffers():
                if name.endswith("running_mean"):
                    buffer.normal_(0, 0.1)
                if name.endswith("running_var"):
                    buffer.uniform_(0.5, 1.5)
        return getattr(wrappers, self.wrap)(model).eval() if self.wrap else model

    def arguments(self, model: torch.nn.Module) -> dict[str, Any]:
        torch.manual_seed(1)
        return self.inputs(model.config)


def _draw(parameter: torch.Tensor) -> None:
    if parameter.dim() >= 2:
        parameter.normal_(0, 0.7 * parameter[0].numel() ** -0.5)
    else:
        parameter.add_(torch.randn_like(parameter) * 0.1)
