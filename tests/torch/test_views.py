"""Results that share memory with arguments or with each other, against eager: values, strides,
offsets, and what a later write to one of them changes; with fixed and with dynamic sizes."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

import ingot.torch  # registers the back end, also where the entry point is not installed

assert ingot.torch


def written_view(x):
    v = x.narrow(-1, 0, x.shape[-1] - 1)
    v[0] = 3
    return v


def views_of_an_updated_argument(x):
    x.add_(1)
    return x.view(-1), x[0], x.t()


def written_through_a_view(x):
    v = x.view(-1)
    v[1] = 1
    return v, x.t()


def a_copy_of_what_is_written(x):
    y = x + 1
    x.copy_(y)
    return y.view(-1)


def a_result_and_its_views(x):
    y = x + 1
    return y, y.view(-1), y.t(), y[1:]


def views_of_no_result(x):
    y = x * 2
    return y.view(-1), y.t()


def separate_views(x):
    y = x * 2
    return y[:1], y[1:]


def views_or_copies(x):
    return x.reshape(-1), x.contiguous(), x.to(torch.float32), x.expand(2, *x.shape), x[..., ::2]


def one_result_twice(x):
    y = torch.relu(x)
    return y, y


CASES = [
    written_view, views_of_an_updated_argument, written_through_a_view, a_copy_of_what_is_written,
    a_result_and_its_views, views_of_no_result, separate_views, views_or_copies, one_result_twice,
]  # fmt: skip
ARGUMENTS = {
    "dense": lambda rows: torch.randn(rows, 6),
    "transposed": lambda rows: torch.randn(6, rows).t(),
    "with an offset": lambda rows: torch.randn(rows + 1, 6)[1:],
    "with gaps": lambda rows: torch.randn(rows, 12)[:, ::2],
}


def whole(x: torch.Tensor) -> torch.Tensor:
    """All of a tensor's storage."""
    return torch.as_strided(x, (x.untyped_storage().size() // x.element_size(),), (1,), 0)


def copied(x: torch.Tensor) -> torch.Tensor:
    return torch.as_strided(whole(x).clone(), x.shape, x.stride(), x.storage_offset())


def listed(results) -> list[torch.Tensor]:
    return [results] if isinstance(results, torch.Tensor) else list(results)


# of x.view(-1), which eager has for a dense argument only; TensorIterator keeps the order of axes
NEEDS_DENSE = {
    written_through_a_view, views_of_an_updated_argument, a_copy_of_what_is_written,
    a_result_and_its_views, views_of_no_result,
}  # fmt: skip


@pytest.mark.parametrize("f", CASES)
def test_views(f):
    for name in ["dense"] if f in NEEDS_DENSE else ARGUMENTS:
        torch._dynamo.reset()
        fast = torch.compile(f, backend="ingot")
        for rows in (4, 4, 5, 7):  # from the third on with dynamic rows
            a = ARGUMENTS[name](rows)
            b = copied(a)
            with torch.no_grad():
                found, wanted = listed(fast(a)), listed(f(b))
                _compare(found, wanted, a, b)
                found[0].add_(10), wanted[0].add_(10)
                _compare(found, wanted, a, b)


def _compare(found, wanted, a, b):
    assert_close(whole(a), whole(b))
    for x, y in zip(found, wanted, strict=True):
        assert_close(x, y)
        assert _shares(x, a) == _shares(y, b)
        if _shares(y, b):
            assert (x.stride(), x.storage_offset()) == (y.stride(), y.storage_offset())


def _shares(x, y):
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def test_a_write_after_a_graph_break():
    def f(x):
        y = x + 1
        z = y.view(-1)
        torch._dynamo.graph_break()
        y.mul_(2)
        return z

    x = torch.randn(3, 4)
    with torch.no_grad():
        assert_close(torch.compile(f, backend="ingot")(x), f(x))


def test_complex_arguments_updated_in_place():
    def f(z):
        z.mul_(2)
        return z + 1

    fast = torch.compile(f, backend="ingot")
    for view in (lambda z: z, lambda z: z.t()):
        a = torch.randn(3, 4, dtype=torch.complex64)
        b = a.clone()
        assert_close(fast(view(a)), f(view(b)))
        assert_close(a, b)
