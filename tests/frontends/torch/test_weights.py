"""Weights that change after compilation, and buffers that calls update, against eager."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

import ingot


@pytest.fixture
def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
    ).eval()


X = torch.randn(3, 8)


def test_in_place_update(model, remakes):
    exe = ingot.compile(model, (X,))
    assert_close(exe(X), model(X))
    with torch.no_grad():
        model[0].weight.add_(1)
    assert_close(exe(X), model(X))
    assert_close(exe(X), model(X))
    assert remakes == ["same code"]


@pytest.mark.parametrize("assign", [False, True])
def test_load_state_dict(model, remakes, assign):
    exe = ingot.compile(model, (X,))
    other = {name: torch.randn_like(t) for name, t in model.state_dict().items()}
    model.load_state_dict(other, assign=assign)
    assert_close(exe(X), model(X))
    model.load_state_dict({name: t * 2 for name, t in other.items()}, assign=assign)
    assert_close(exe(X), model(X))
    assert remakes[-1] == "same code"


def test_data_is_followed_by_refresh(model):
    exe = ingot.compile(model, (X,))
    model[0].weight.data.add_(1)  # leaves no trace
    exe.refresh()
    assert_close(exe(X), model(X))
    model[0].weight.data = torch.randn(16, 8)  # other memory: seen
    assert_close(exe(X), model(X))


def test_inference_tensors_are_followed_by_refresh():
    with torch.inference_mode():
        model = torch.nn.Linear(8, 4).eval()
    exe = ingot.compile(model, (X,))
    with torch.inference_mode():
        model.weight.add_(1)
        exe.refresh()
        assert_close(exe(X), model(X))


def test_a_weight_that_folds_into_the_graph(remakes):
    """A scale of ones may vanish; when it is no longer one, the graph is another."""
    norm = torch.nn.BatchNorm2d(3).eval()
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1, bias=False), norm)
    x = torch.randn(1, 3, 4, 4)
    exe = ingot.compile(model, (x,))
    with torch.no_grad():
        norm.weight.mul_(2), norm.running_mean.add_(1)
    assert_close(exe(x), model(x))


def test_another_type_is_an_error(model):
    exe = ingot.compile(model, (X,))
    model.double()
    for _ in range(2):
        with pytest.raises(ingot.IngotError, match=r"0\.weight.*float64"):
            exe(X)
    model.float()
    assert_close(exe(X), model(X))


class Running(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.count.add_(1)
        self.mean.add_(x)
        return self.mean + self.count


def test_buffers_are_those_of_the_module():
    model, twin = Running(), Running()
    exe = ingot.compile(model, (torch.ones(4),))
    for _ in range(3):
        x = torch.randn(4)
        assert_close(exe(x), twin(x))
        assert_close(dict(model.named_buffers()), dict(twin.named_buffers()))
    model.mean.zero_(), twin.mean.zero_()
    model.count, twin.count = torch.tensor(10), torch.tensor(10)
    x = torch.randn(4)
    assert_close(exe(x), twin(x))
    assert model.count.item() == 11


def test_threads_are_kept(model):
    exe = ingot.compile(model, (X,), threads=1)
    with torch.no_grad():
        model[0].weight.add_(1)
    exe(X)
    assert exe.threads == 1


class Cache(torch.nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how
        self.register_buffer("rows", torch.zeros(1, 2, 1024, 16))

    def forward(self, x, at):
        if self.how == "index_copy":
            self.rows.index_copy_(2, at, x)
        elif self.how == "index_put":
            self.rows[:, :, at] = x
        else:
            self.rows[:, :, 10 : 10 + x.shape[2]] = x
        return self.rows[:, :, :16].sum(-1)


@pytest.mark.parametrize("how", ["index_copy", "index_put", "slice"])
def test_a_cache_is_written_where_it_is(how):
    model, twin = Cache(how), Cache(how)
    x, at = torch.randn(1, 2, 1, 16), torch.tensor([11])
    exe = ingot.compile(model, (x, at))
    assert_close(exe(x, at), twin(x, at))
    assert_close(model.rows, twin.rows)
    used = sum(v for name, v in exe.memory_for().items() if name.startswith("arena"))
    assert used < model.rows.nbytes  # no copy of it
    assert [port.name for port in exe.inputs] == ["x", "at"] and len(exe.outputs) == 1


def test_arrays_by_name():
    model, twin = Cache("slice"), Cache("slice")
    x, at = torch.randn(1, 2, 1, 16), torch.tensor([11])
    exe = ingot.compile(model, (x, at), profile=True)
    feeds = {"x": x.numpy(), "at": at.numpy()}
    (found,) = exe.run(None, feeds)
    assert_close(torch.from_numpy(found), twin(x, at))
    assert len(exe.profile(feeds, runs=2).rows) > 0
