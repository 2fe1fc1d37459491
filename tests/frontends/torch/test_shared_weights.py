"""Weights that the code reads where the module has them: no copy, no refresh, against eager."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

import ingot
import ingot.torch
from ingot.support import options

ROWS, WIDTH = 2000, 32
I = torch.randint(0, ROWS, (2, 5))  # noqa: E741


class Tagger(torch.nn.Module):
    """Two tables that a gather reads, and a matrix that is packed."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(ROWS, WIDTH)
        self.tags = torch.nn.Embedding(ROWS, WIDTH)
        self.out = torch.nn.Linear(WIDTH, 8)

    def forward(self, i):
        return self.out(self.words(i) + self.tags(i))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Tagger().eval()


def names(exe) -> set[str]:
    return {name for _, name, is_free in exe.package.borrowed if is_free}


def test_tables_are_not_copied(model):
    exe = ingot.compile(model, (I,))
    assert names(exe) == {"p_words_weight", "p_tags_weight"}
    assert exe.memory["weights"] < model.words.weight.nbytes / 4
    assert [port.name for port in exe.inputs] == ["i"]
    used = {array.ctypes.data for _, array in exe._held.values()}
    assert used == {model.words.weight.data_ptr(), model.tags.weight.data_ptr()}
    assert_close(exe(I), model(I))
    (by_name,) = exe.run(None, {"i": I.numpy()})
    assert_close(torch.from_numpy(by_name), model(I))


def test_changes_need_no_refresh(model, remakes):
    exe = ingot.compile(model, (I,))
    exe(I)
    with torch.no_grad():
        model.words.weight.mul_(2)
    model.tags.weight.data.add_(1)  # leaves no trace
    assert_close(exe(I), model(I))
    model.tags.load_state_dict({"weight": torch.randn(ROWS, WIDTH)})
    assert_close(exe(I), model(I))
    assert remakes == []
    with torch.no_grad():
        model.out.weight.mul_(2)  # a packed copy
    assert_close(exe(I), model(I))
    assert_close(exe(I), model(I))
    assert remakes == ["same code"]


def test_another_tensor_in_its_place(model, remakes):
    exe = ingot.compile(model, (I,))
    model.words.load_state_dict({"weight": torch.randn(ROWS, WIDTH)}, assign=True)
    assert_close(exe(I), model(I))
    assert remakes == ["same code"]
    model.words.weight = torch.nn.Parameter(torch.randn(WIDTH, ROWS).t())  # not C-contiguous
    assert_close(exe(I), model(I))
    with torch.no_grad():
        model.words.weight.mul_(2)
    assert_close(exe(I), model(I))


def test_the_model_cache(tmp_path):
    """Another module with the same weights has the code, and its own tables."""
    first, second = (torch.manual_seed(1) and Tagger().eval() for _ in "ab")
    with options.override(cache_dir=str(tmp_path), cache_models=True):
        ingot.compile(first, (I,))
        exe = ingot.compile(second, (I,))
    assert list(exe.times_s) == ["cache"]
    with torch.no_grad():
        second.words.weight.mul_(2)
    assert_close(exe(I), second(I))


def test_a_saved_plan_has_copies(model, tmp_path):
    exe = ingot.compile(model, (I,))
    wanted = model(I)
    exe.save(tmp_path / "model.ingot")
    with torch.no_grad():
        model.words.weight.zero_()
    loaded = ingot.load(tmp_path / "model.ingot")
    for _ in range(2):
        assert_close(loaded(I), wanted)


class Tied(torch.nn.Module):
    def __init__(self, is_tied: bool):
        super().__init__()
        self.words = torch.nn.Embedding(ROWS, WIDTH)
        self.out = torch.nn.Linear(WIDTH, ROWS, bias=False)
        if is_tied:
            self.out.weight = self.words.weight

    def forward(self, i):
        return self.out(self.words(i))


def test_a_table_that_is_also_packed(remakes):
    model = Tied(True).eval()
    exe = ingot.compile(model, (I,))
    exe(I)
    with torch.no_grad():
        model.words.weight.mul_(2)
    assert_close(exe(I), model(I))
    assert remakes == ["same code"]


@pytest.mark.parametrize("changed", ["words", "out"])
def test_equal_contents_that_differ_later(changed, tmp_path):
    """Also where the model cache has the code for one tensor in both places."""
    tied, model = Tied(True).eval(), Tied(False).eval()
    with options.override(cache_dir=str(tmp_path), cache_models=True):
        assert_close(ingot.compile(tied, (I,))(I), tied(I))
        model.load_state_dict(tied.state_dict())
        exe = ingot.compile(model, (I,))
    assert_close(exe(I), model(I))
    with torch.no_grad():
        getattr(model, changed).weight.mul_(3)
    assert_close(exe(I), model(I))


def test_equal_tables():
    model = Tagger().eval()
    model.tags.load_state_dict(model.words.state_dict())
    exe = ingot.compile(model, (I,))
    for table in (model.tags, model.words):
        assert_close(exe(I), model(I))
        with torch.no_grad():
            table.weight.mul_(3)
        assert_close(exe(I), model(I))


def test_torch_compile(remakes):
    """Modules that share code have their own tables."""
    torch._dynamo.reset()
    models = [torch.nn.Sequential(torch.nn.Embedding(ROWS, WIDTH), torch.nn.Tanh()) for _ in "ab"]
    fast = [torch.compile(model, backend="ingot") for model in models]
    with torch.no_grad():
        for _ in range(2):
            for model, quick in zip(models, fast):
                assert_close(quick(I), model(I))
                model[0].weight.data.mul_(2)
                assert_close(quick(I), model(I))
        assert remakes == []
        models[0][0].weight = torch.nn.Parameter(torch.randn(ROWS, WIDTH))
        assert_close(fast[0](I), models[0](I))


def test_a_tie_that_is_broken():
    model = Tied(True).eval()
    exe = ingot.compile(model, (I,))
    model.out.weight = torch.nn.Parameter(torch.randn(ROWS, WIDTH))
    for _ in range(2):
        with pytest.raises(ingot.IngotError, match="were one tensor"):
            exe(I)
    model.out.weight = model.words.weight
    assert_close(exe(I), model(I))
