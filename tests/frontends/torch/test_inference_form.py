"""inference_form: what is functional already is not traced again, and what is not is decomposed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ingot.frontends.torch.program import decomposed, of_program
from tests.frontends.torch.interpreted import Interpreted

X = torch.linspace(-2, 3, 2 * 4 * 6 * 6).reshape(2, 4, 6, 6)


class Block(nn.Module):
    """A residual block as vision models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.norm.running_mean.uniform_(-1, 1)  # type: ignore[union-attr]
        self.norm.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
        self.drop = nn.Dropout(0.5, inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv(x))
        y += x
        return self.drop(nn.functional.relu(y, inplace=True)) + 0.5


def exported(module: nn.Module | Callable, *args: Tensor) -> torch.export.ExportedProgram:
    if not isinstance(module, nn.Module):
        function = module

        class Function(nn.Module):
            def forward(self, *given: Tensor) -> Tensor:
                return function(*given)

        module = Function()
    return torch.export.export(module, args)


def agrees(program: torch.export.ExportedProgram, *args: Tensor) -> None:
    want = program.module()(*(a.clone() for a in args))
    model = Interpreted(of_program(program))
    found = model._run([a.clone().numpy() for a in args], None)
    torch.testing.assert_close(torch.from_numpy(found[0]), want, rtol=1e-5, atol=1e-5)


def test_a_residual_block_is_not_traced_again() -> None:
    program = exported(Block().eval(), X)
    assert any(str(n.target).endswith("_.Tensor") for n in program.graph.nodes)
    same, module = decomposed(program)
    assert same is program and module is not program.graph_module
    targets = {str(n.target) for n in module.graph.nodes}
    assert "aten.add.Tensor" in targets and "aten.batch_norm.default" not in targets
    assert any(str(n.target) == "aten.batch_norm.default" for n in program.graph.nodes)
    agrees(program, X)


class Conversions(nn.Module):
    """What exported models of transformers have besides."""

    def forward(self, x: Tensor) -> Tensor:
        mask = (x > 0) & (x.to(torch.int32) < 2) | (x.to("cpu") < -1)
        rows = nn.functional.dropout(x.flatten(1), 0.5, self.training, inplace=True)
        return rows.to(torch.float64).to(torch.float32) * mask.flatten(1).to(x.dtype)


def test_conversions_are_not_traced_again() -> None:
    program = exported(Conversions().eval(), X)
    same, module = decomposed(program)
    assert same is program
    assert not any(str(n.target).startswith("aten.to.") for n in module.graph.nodes)
    agrees(program, X)


def test_a_result_that_is_the_argument_is_traced() -> None:
    program = exported(lambda x: nn.functional.dropout(x, 0.5, False), X)
    same, _ = decomposed(program)
    assert same is not program


def written_after_a_conversion(x: Tensor) -> Tensor:
    y = x * 2
    same = y.to(torch.float32)
    same.add_(1)
    return y + same


def late_reader(x: Tensor) -> Tensor:
    y = x * 2
    z = y.add_(1)
    return z + y  # export reads z twice


def through_a_view(x: Tensor) -> Tensor:
    y = x * 2
    row = y[0]
    y.mul_(3)
    return row + y


def of_a_view(x: Tensor) -> Tensor:
    y = x * 2
    y.reshape(-1).add_(1)
    return y + 0.5


def of_itself(x: Tensor) -> Tensor:
    y = x + 1
    return y.mul_(y)


def filled(x: Tensor) -> Tensor:
    y = x * 2
    return y.copy_(torch.ones(6)) + x


def of_an_argument(x: Tensor) -> Tensor:
    return x.add_(1) * 2


@pytest.mark.parametrize("function", [late_reader, filled], ids=lambda f: f.__name__)
def test_what_nothing_else_sees_is_not(function: Callable) -> None:
    program = exported(function, X)
    same, _ = decomposed(program)
    assert same is program
    agrees(program, X)


@pytest.mark.parametrize(
    "function", [through_a_view, of_a_view, of_itself, written_after_a_conversion],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_what_others_see_is_decomposed(function: Callable) -> None:
    program = exported(function, X)
    same, _ = decomposed(program)
    assert same is not program
    agrees(program, X)


def test_an_argument_that_is_updated_is_decomposed() -> None:
    program = exported(of_an_argument, X)
    same, _ = decomposed(program)
    assert same is not program and len(of_program(program).outputs) == 2


def test_training_is_decomposed() -> None:
    program = exported(Block().train(), X)
    same, module = decomposed(program)
    assert same is not program
    assert all("batch_norm.default" not in str(n.target) for n in module.graph.nodes)
