"""Converters against eager where PyTorch's samples (make conformance-torch) do not reach: dynamic
sizes, recurrent layers, complex numbers, writes through views."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import transformers.integrations.moe  # noqa: F401 registers its operators

from ingot.support.errors import IngotError
from tests.frontends.torch.interpreted import check, compare, imported

# name → (function, the tensors' shapes, their dynamic axes, other shapes)
DYNAMIC = {
    "slice from the end": (lambda x: x[:, -3:-1], [(2, 7)], [(1,)], [(2, 4)]),
    "slice with a step": (lambda x: x[1::2], [(7,)], [(0,)], [(4,)]),
    "roll": (lambda x: x.roll((2, -1), (0, 1)), [(3, 5)], [(0, 1)], [(4, 7)]),
    "flip": (lambda x: x.flip(0, 1), [(3, 5)], [(0,)], [(6, 5)]),
    "reflect": (lambda x: F.pad(x, (2, 1), "reflect"), [(1, 2, 5)], [(2,)], [(1, 2, 9)]),
    "circular": (lambda x: F.pad(x, (2, 1), "circular"), [(1, 2, 5)], [(2,)], [(1, 2, 9)]),
    "crop": (lambda x: F.pad(x, (-1, 2)), [(2, 5)], [(1,)], [(2, 3)]),
    "cat": (lambda x, y: torch.cat([x, y, x], 1), [(2, 3), (2, 4)], [(1,), (1,)], [(2, 6), (2, 2)]),
    "split": (lambda x: x.split([2, x.shape[0] - 2]), [(5,)], [(0,)], [(9,)]),
    "view": (lambda x: x.view(x.shape[0], -1, 2).transpose(0, 1), [(3, 6)], [(0,)], [(5, 6)]),
    "repeat": (lambda x: x.repeat(2, 3), [(2, 3)], [(0,)], [(4, 3)]),
    "range": (lambda x: x + torch.arange(x.shape[0]), [(4,)], [(0,)], [(9,)]),
    "triangle": (lambda x: x.tril(1) + x.triu(-1), [(4, 5)], [(0,)], [(7, 5)]),
    "eye": (lambda x: x @ torch.eye(x.shape[1]), [(2, 4)], [(1,)], [(2, 6)]),
    "mean": (lambda x: x.mean(0) + x.std(0), [(4, 3)], [(0,)], [(9, 3)]),
    "prefix sums": (lambda x: x.cumsum(1), [(2, 4)], [(1,)], [(2, 9)]),
    "sort": (lambda x: x.sort(1), [(2, 6)], [(1,)], [(2, 9)]),
    "norm": (lambda x: F.layer_norm(x, (4,)), [(3, 4)], [(0,)], [(7, 4)]),
    "windows": (lambda x: x.unfold(0, 3, 2), [(7,)], [(0,)], [(11,)]),
    "one mean": (lambda x: F.adaptive_avg_pool2d(x, 1), [(1, 2, 5, 6)], [(2, 3)], [(1, 2, 9, 4)]),
    "pool": (lambda x: F.max_pool2d(x, 2), [(1, 2, 6, 8)], [(2, 3)], [(1, 2, 10, 4)]),
    "double": (lambda x: F.interpolate(x, scale_factor=2), [(1, 2, 3, 4)], [(2,)], [(1, 2, 5, 4)]),
    "bilinear": (
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), [(1, 2, 3, 4)], [(2,)],
        [(1, 2, 5, 4)],
    ),
    "causal attention": (
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), [(1, 2, 5, 4)], [(2,)],
        [(1, 2, 7, 4)],
    ),
    "write rows": (
        lambda x, y: x.slice_scatter(y, 0, 1, 1 + y.shape[0]), [(8, 2), (3, 2)], [(), (0,)],
        [(8, 2), (5, 2)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DYNAMIC)
def test_one_import_serves_other_sizes(name):
    function, shapes, axes, others = DYNAMIC[name]
    torch.manual_seed(0)
    run = imported(function, [torch.randn(s) for s in shapes], axes)
    for sizes in (shapes, others):
        compare(run, function, [torch.randn(s) for s in sizes])


LAYERS = {
    "lstm": (torch.nn.LSTM, {"bidirectional": True, "num_layers": 2}),
    "lstm batch first": (torch.nn.LSTM, {"batch_first": True, "bias": False}),
    "gru": (torch.nn.GRU, {"num_layers": 2, "batch_first": True}),
    "rnn": (torch.nn.RNN, {"bidirectional": True, "nonlinearity": "relu"}),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_recurrent_layer_stays_whole(name):
    torch.manual_seed(0)
    kind, options = LAYERS[name]
    layer = kind(3, 4, **options).eval()
    check(layer, torch.randn(5, 2, 3))


def rotated(x, turns):
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(turns), turns)).flatten(-2)


COMPLEX = {
    "rotary positions": (rotated, [(2, 5, 8), (5, 4)]),
    "size and angle": (lambda x, y: (torch.complex(x, y).abs(), torch.complex(x, y).angle()),
                       [(7,), (7,)]),
    "a spectrum and back": (lambda x: torch.fft.irfft2(torch.fft.rfft2(x, norm="ortho"), x.shape),
                            [(6, 5)]),
    "power": (lambda x: torch.fft.fft(x, 12).abs() ** 2, [(3, 8)]),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_inside_a_model(name):
    function, shapes = COMPLEX[name]
    torch.manual_seed(0)
    check(function, *(torch.randn(s) for s in shapes))


def test_an_operator_without_complex_numbers_says_so():
    with pytest.raises(IngotError, match="complex"):
        imported(lambda x: torch.fft.fft(x).sin().real, [torch.randn(4)])


def test_places_that_are_not_zero_are_as_many_as_the_run_finds():
    run = imported(lambda x: x.nonzero(), [torch.tensor([0, 1, 0, 2])])
    for row in ([0, 1, 0, 2], [3, 0, 0, 0]):
        (found,) = run(torch.tensor(row))
        torch.testing.assert_close(found, torch.tensor(row).nonzero())


def test_a_number_of_the_data_may_be_negative():
    check(lambda x: x * x.sum().item(), torch.tensor([3, -8, 1]))


@pytest.mark.parametrize("bounds", [(-1, 1), (0, 0), (0, 4)])
@pytest.mark.parametrize("x", [torch.linspace(-2, 2, 41), torch.arange(5.0), torch.ones(3)])
def test_histograms(bounds, x):
    check(lambda x: x.histc(4, *bounds), x)


@pytest.mark.parametrize("ends", [[2, 3, 5], [0, 0, 5], [5, 5, 5], [1, 1, 3], [0, 0, 0]])
def test_rows_in_groups_with_a_matrix_each(ends):
    torch.manual_seed(0)
    x, weights = torch.randn(5, 3), torch.randn(3, 3, 4)
    grouped = torch.ops.transformers.grouped_mm_fallback
    run = imported(grouped, [x, weights, torch.tensor([1, 2, 4])])
    compare(run, grouped, [x, weights, torch.tensor(ends)])


def test_rows_in_groups_of_torch():
    torch.manual_seed(0)
    x, weights = torch.randn(5, 16).bfloat16(), torch.randn(2, 16, 8).bfloat16()
    ends = torch.tensor([2, 5], dtype=torch.int32)
    check(lambda x, w: torch._grouped_mm(x, w, offs=ends), x, weights)


def write_through_views(x):
    y = x.clone()
    y[1:, ::2] = 0
    y.diagonal().mul_(2)
    y[y > 1] = -1
    return y


def test_writes_through_views():
    torch.manual_seed(0)
    check(write_through_views, torch.randn(5, 5))
