"""torch.compile(backend="ingot") against eager: graphs, guards, sizes, modes, aliases, mutation."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.testing import assert_close

import ingot
import ingot.torch  # registers the back end, also where the entry point is not installed


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(8, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, k: int):
        self.calls.add_(1)
        return {"y": torch.relu(self.fc(x)) + self.calls, "sizes": [x.shape[0], k * 2]}


def compiled(model, **options):
    """The model with a copy of its parameters, compiled by Ingot."""
    other = copy.deepcopy(model) if isinstance(model, torch.nn.Module) else model
    return torch.compile(other, backend="ingot", **options)


def test_a_module_with_a_buffer_that_it_updates():
    model = Counter().eval()
    fast = compiled(model)
    with torch.no_grad():
        for rows in (4, 6, 7, 4):  # the third is the first with dynamic rows
            x = torch.randn(rows, 8)
            assert_close(fast(x, rows + 3), model(x, rows + 3))
            assert_close(fast.calls, model.calls)


def test_the_entry_point_is_declared():
    import tomllib
    from pathlib import Path

    text = (Path(ingot.__file__).parents[1] / "pyproject.toml").read_text()
    points = tomllib.loads(text)["project"]["entry-points"]["torch_dynamo_backends"]
    assert points == {"ingot": "ingot.torch.backend:ingot"}


def test_graph_breaks_make_several_graphs():
    graphs = []

    def counting(module, inputs):
        graphs.append(module)
        return ingot.torch.ingot(module, inputs)

    def f(x):
        y = torch.relu(x)
        torch._dynamo.graph_break()
        if y.sum().item() > 0:
            return y + 1
        return y + 2

    fast = torch.compile(f, backend=counting)
    for x in (torch.ones(3), -torch.ones(3)):
        assert_close(fast(x), f(x))
    assert len(graphs) >= 2


@pytest.mark.parametrize("batches", [(2, 2, 2), (2, 3, 4)])
def test_rows_of_two_axes_after_a_graph_break(batches):
    """What crosses the break has 2 * s rows, or those of two dynamic axes; s is a number."""

    def f(x, w):
        batch, length, width = x.shape
        y = x.reshape(-1, width) @ w
        torch._dynamo.graph_break()
        return torch.relu(y).reshape(batch, length, -1)

    fast, w = compiled(f), torch.randn(3, 4)
    for batch, length in zip(batches, (5, 7, 9)):
        x = torch.randn(batch, length, 3)
        assert_close(fast(x, w), f(x, w))


def test_as_many_values_as_a_mask_has_elements():
    """The number of values is known when compiling, that of the elements when running."""

    def f(x, mask, values):
        y = x.clone()
        y[mask] = values
        return y

    fast = compiled(f, dynamic=False)
    for count in (0, 1, 3, 5):
        x, mask, values = torch.randn(3, 3), torch.arange(9).view(3, 3) < count, torch.randn(count)
        assert_close(fast(x, mask, values), f(x, mask, values))
    for wrong in (2, 4, 9):
        mask = torch.arange(9).view(3, 3) < wrong
        with pytest.raises(ingot.IngotError, match="too short"):
            fast(torch.randn(3, 3), mask, torch.randn(3))


def test_mark_dynamic_serves_all_sizes_with_one_graph():
    count = []

    def counting(module, inputs):
        count.append(module)
        return ingot.torch.ingot(module, inputs)

    fast = torch.compile(lambda x: torch.relu(x) + x.shape[0], backend=counting)
    for rows in (5, 3, 9):
        x = torch.randn(rows, 4)
        torch._dynamo.mark_dynamic(x, 0)
        assert_close(fast(x), torch.relu(x) + rows)
    assert len(count) == 1


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_gradient_modes(mode):
    model = Counter().eval()
    fast = compiled(model)
    with mode():
        x = torch.randn(2, 8)
        found, wanted = fast(x, 1), model(x, 1)
    assert_close(found, wanted)
    assert found["y"].requires_grad == wanted["y"].requires_grad
    assert found["y"].is_inference() == wanted["y"].is_inference()


def test_backward_is_refused():
    y = compiled(Counter())(torch.randn(2, 8), 1)["y"]
    with pytest.raises(ingot.IngotError, match="no backward"):
        y.sum().backward()


def test_autocast():
    model = torch.nn.Linear(8, 4).eval()
    fast = compiled(model)
    x = torch.randn(3, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found, wanted = fast(x), model(x)
    assert found.dtype is torch.bfloat16
    assert_close(found, wanted)


def test_options():
    x = torch.randn(3)
    fast = torch.compile(torch.relu, backend="ingot", options={"threads": 1, "jobs": 1})
    assert_close(fast(x), torch.relu(x))
    torch._dynamo.reset()
    with pytest.raises(Exception, match="options has no 'thread'"):
        torch.compile(torch.relu, backend="ingot", options={"thread": 1})(x)


def test_an_input_is_updated_in_place():
    def f(x, y):
        x.add_(y)
        return torch.relu(x)

    fast = compiled(f)
    for shape in ((3, 4), (4, 3)):
        a = torch.randn(shape)
        b, y = a.clone(), torch.randn(shape)
        assert_close(fast(a, y), f(b, y))
        assert_close(a, b)
    a, b = torch.randn(4, 3).t(), None  # not in C order
    b = a.clone()
    y = torch.randn(3, 4)
    assert_close(fast(a, y), f(b, y))
    assert_close(a, b)


def test_outputs_that_alias_inputs():
    def f(x):
        return x.view(-1), x, torch.relu(x)

    x = torch.randn(2, 3)
    flat, same, _ = compiled(f)(x)
    assert flat.data_ptr() == x.data_ptr() and same is x
    flat.zero_()
    assert_close(x, torch.zeros(2, 3))


def test_strides_of_inputs_and_outputs():
    def f(x):
        return x + 1

    fast = compiled(f)
    whole = torch.randn(4, 6, 5)
    views = [
        whole,
        whole[::2],
        whole[:, 1:4],
        whole.transpose(0, 2),
        whole[:, :, :1].expand(4, 6, 5),
    ]
    for x in views:
        found, wanted = fast(x), f(x)
        assert_close(found, wanted)
        assert found.stride() == wanted.stride()


def test_train_and_eval():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(1.0))
    fast = torch.compile(model, backend="ingot")
    x = torch.randn(2, 4)
    with torch.no_grad():
        assert_close(fast(x), torch.zeros(2, 4))
        model.eval()
        assert_close(fast(x), model(x))


def test_layers_that_share_code_have_their_own_weights():
    layers = [torch.nn.Linear(4, 4).eval() for _ in range(3)]
    fast = [torch.compile(layer, backend="ingot") for layer in layers]
    x = torch.randn(2, 4)
    with torch.no_grad():
        for _ in range(2):
            for layer, quick in zip(layers, fast):
                assert_close(quick(x), layer(x))


def test_data_is_followed_by_refresh():
    model = torch.nn.Linear(4, 8).eval()
    fast = torch.compile(model, backend="ingot")
    x = torch.randn(3, 4)
    with torch.no_grad():
        fast(x)
        model.weight.data.mul_(2)  # leaves no trace
        ingot.torch.refresh()
        assert_close(fast(x), model(x))


def test_weights_that_change():
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
    ).eval()
    fast = torch.compile(model, backend="ingot")
    x = torch.randn(3, 4)
    with torch.no_grad():
        assert_close(fast(x), model(x))
        model[0].weight.mul_(2)
        assert_close(fast(x), model(x))
        model.load_state_dict({k: torch.randn_like(v) for k, v in model.state_dict().items()})
        assert_close(fast(x), model(x))
        model[2].bias = torch.nn.Parameter(torch.randn(2))
        assert_close(fast(x), model(x))
