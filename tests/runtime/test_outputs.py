"""Outputs: new arrays, the caller's own, states updated in place, sizes known only afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import ingot
from ingot.runtime.package import Package
from tests.models.build import kv_cache
from tests.runtime.common import bits, exe, feeds
from tests.runtime.test_inputs import misaligned, refused_call


@pytest.fixture
def rows() -> ingot.Executable:
    return exe("rows")


@pytest.fixture
def given() -> dict[str, np.ndarray]:
    return feeds("rows")


def empty() -> np.ndarray:
    return np.full((6, 12), np.nan, np.float32)


def test_every_call_has_its_own_outputs(rows: ingot.Executable, given: dict):
    first = rows(**given)[0]
    kept = first.copy()
    rows(given["a"] * 2, given["b"])
    assert np.array_equal(first, kept) and first.flags.writeable and first.flags.owndata


def test_out_as_list_dict_and_array(rows: ingot.Executable, given: dict):
    want = bits(rows(**given))
    y, h = empty(), empty()
    got = rows(**given, out=[y, h])
    assert got[0] is y and got[1] is h and bits(got) == want
    h = empty()
    got = rows.run(None, given, out={"h": h})
    assert got[1] is h and bits(got) == want
    y = empty()
    got = rows(given["a"], given["b"], out=(y, None))
    assert got[0] is y and bits(got) == want
    one, x = exe("relu"), feeds("relu")["x"]
    y = np.empty(8, np.float32)
    assert one(x, out=y)[0] is y and np.array_equal(y, np.maximum(x, 0))


def test_out_as_a_tensor(rows: ingot.Executable, given: dict):
    h = torch.full((6, 12), float("nan"))
    want = rows(**given)[1]
    rows(**given, out={"h": h})
    assert np.array_equal(h.numpy(), want)


def read_only() -> np.ndarray:
    array = empty()
    array.flags.writeable = False
    return array


FITS = "np.empty((6, 12), 'float32')"


@pytest.mark.parametrize(
    "array, facts, hint",
    [
        (np.empty((6, 12)), ("float64", "float32"), FITS),
        (np.empty((6, 11), "f4"), ("[6, 11]", "[6, 12]"), FITS),
        (np.empty((72,), "f4"), ("[72]", "[6, 12]"), FITS),
        (read_only(), ("read-only",), FITS),
        (np.asfortranarray(empty()), ("C-contiguous",), FITS),
        (misaligned(empty()), ("aligned",), FITS),
        ("text", ("str", "DLPack"), True),
        (3, ("int", "DLPack"), True),
        (torch.empty(6, 12, dtype=torch.float64), ("float64", "float32"), FITS),
    ],
)
def test_out_that_does_not_fit(rows: ingot.Executable, given: dict, array: Any, facts, hint):
    call = lambda: rows(**given, out={"h": array})  # noqa: E731
    refused_call(call, *facts, where=("out=", "'h'"), hint=hint)


def test_out_that_is_not_understood(rows: ingot.Executable, given: dict):
    refused_call(lambda: rows(**given, out=empty()), 1, 2, where="out=", hint="y, h")
    refused_call(lambda: rows(**given, out=[empty()] * 3), 3, 2, where="out=", hint="y, h")
    refused_call(lambda: rows(**given, out={"z": empty()}), where="'z'", hint="y: f32[n, 12]")
    refused_call(lambda: rows(**given, out=3), "int", where="out=")
    refused_call(lambda: rows(**given, out="yh"), "str", where="out=")


def test_out_that_shares_memory(rows: ingot.Executable, given: dict):
    y, hint = empty(), "state={input: output}"
    refused_call(lambda: rows(**given, out=[y, y]), where=("out=", "'h'"), hint=hint)
    place = ("out=", "'y'")
    refused_call(lambda: rows(given["a"], y, out={"y": y}), where=place, hint=hint)
    both = np.zeros((8, 12), np.float32)
    call = lambda: rows(given["a"], both[:6], out={"y": both[2:]})  # noqa: E731
    refused_call(call, where=place, hint=hint)
    pair = np.zeros((12, 12), np.float32)
    rows(given["a"], pair[:6], out={"y": pair[6:]})


def test_outputs_whose_size_the_run_decides():
    compiled, given = exe("nonzero_gather"), feeds("nonzero_gather")
    y, count = compiled.run(None, given)
    assert y.shape == (5, 5) and count.tolist() == [5]
    mine = np.empty((5, 5), np.float32)
    call = lambda: compiled.run(None, given, out={"y": mine})  # noqa: E731
    refused_call(call, where=("out=", "'y'"), hint="out=")
    assert compiled.run(None, given, out={"count": np.empty(1, np.int64)})[1].tolist() == [5]
    for kept in (0, 8, 3):
        score = np.where(np.arange(8) < kept, 1, -1).astype(np.float32)
        y, count = compiled(given["x"], score)
        assert y.shape == (kept, 5) and count.tolist() == [kept]


def test_loop_results_of_any_length():
    compiled, given = exe("loop"), feeds("loop")
    for trips in (4, 0, 300, 1, 50):
        last, steps = compiled(given["x"], np.array([trips, 0]))
        assert steps.shape == (trips, 2, 4)
        if trips:
            assert np.array_equal(steps[-1], last)
            assert np.array_equal(steps[0], compiled(given["x"], np.array([1, 0]))[0])


# --- state --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cache() -> Package:
    pairs = {"past_k": "present_k", "past_v": "present_v"}
    return ingot.compile(kv_cache(0)[0], state=pairs).package


def state_feeds() -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in kv_cache(0)[1].items()}


def test_state_is_updated_in_place(cache: Package):
    given, plain = state_feeds(), state_feeds()
    want = exe("kv_cache_scatter").run(None, plain)
    got = ingot.Executable(cache).run(None, given)
    assert bits(got) == bits(want)
    names = [port.name for port in cache.outputs]
    assert got[names.index("present_k")] is given["past_k"]
    assert got[names.index("present_v")] is given["past_v"]


def test_state_must_be_writeable_and_contiguous(cache: Package):
    compiled = ingot.Executable(cache)
    given = state_feeds()
    given["past_k"].flags.writeable = False
    hint = "np.ascontiguousarray"
    refused_call(lambda: compiled.run(None, given), "read-only", where="'past_k'", hint=hint)
    given = state_feeds()
    given["past_k"] = np.asfortranarray(given["past_k"])
    refused_call(lambda: compiled.run(None, given), "C-contiguous", where="'past_k'", hint=hint)
    given["past_k"] = given["past_k"].tolist()  # a list becomes an array nobody else holds
    assert compiled.run(None, given)


def test_states_must_not_share_memory(cache: Package):
    compiled = ingot.Executable(cache)
    given = state_feeds()
    given["past_v"] = given["past_k"]
    refused_call(lambda: compiled.run(None, given), "'past_v'", where="'past_k'")
    given = state_feeds()
    given["q"] = given["past_k"].reshape(-1)[:8].reshape(1, 2, 1, 4)
    refused_call(lambda: compiled.run(None, given), "'q'", where="'past_k'")
    both = np.zeros((2, *given["past_k"].shape), np.float32)
    given = {**state_feeds(), "past_k": both[0], "past_v": both[1]}
    compiled.run(None, given)


def test_out_for_a_state(cache: Package):
    compiled, given = ingot.Executable(cache), state_feeds()
    other = np.empty_like(given["past_k"])
    call = lambda: compiled.run(None, given, out={"present_k": other})  # noqa: E731
    refused_call(call, "state", where=("out=", "'present_k'"), hint=False)
    compiled.run(None, given, out={"present_k": given["past_k"]})


def test_a_tensor_as_state(cache: Package):
    compiled, given = ingot.Executable(cache), state_feeds()
    want = exe("kv_cache_scatter").run(None, state_feeds())
    tensors = {name: torch.from_numpy(a) for name, a in given.items()}
    assert bits(compiled.run(None, tensors)) == bits(want)
    names = [port.name for port in cache.outputs]
    assert np.array_equal(tensors["past_k"].numpy(), want[names.index("present_k")])
