"""Inputs: what is taken as it is, what is copied, and what is refused in which words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

import ingot
from ingot import IngotError
from ingot.arith.expr import Const, Var
from ingot.runtime.cpu import loaded
from tests.models.parts import info, model, node
from tests.refusal import Fact, Facts, refused
from tests.runtime.common import CASES, bits, exe, feeds, package


def refused_call(
    call: Callable[[], Any],
    *facts: Fact,
    where: Facts = (),
    hint: bool | Facts = True,
    code: str = "bad-input",
) -> IngotError:
    with refused(code, *facts, where=where, hint=hint) as caught:
        call()
    return caught.value


@pytest.fixture
def rows() -> ingot.Executable:
    return exe("rows")


@pytest.fixture
def given() -> dict[str, np.ndarray]:
    return feeds("rows")


# --- names and counts ---------------------------------------------------------------------------


def test_positions_names_and_run_agree(rows: ingot.Executable, given: dict):
    want = bits(rows.run(None, given))
    assert bits(rows(given["a"], given["b"])) == want
    assert bits(rows(b=given["b"], a=given["a"])) == want


def test_names(rows: ingot.Executable, given: dict):
    ports = ("a: f32[n, 16]", "b: f32[n, 12]")
    refused_call(lambda: rows.run(None, {"a": given["a"]}), where="'b'", hint=ports)
    refused_call(lambda: rows.run(None, {**given, "c": 1}), where="'c'", hint=ports)
    refused_call(lambda: rows(a=given["a"], d=given["b"]), where=("'b'", "'d'"), hint=ports)


@pytest.mark.parametrize("feeds", [[1], None, np.ones(3), "text"])
def test_inputs_by_name_are_a_dict(rows: ingot.Executable, feeds: Any):
    refused_call(lambda: rows.run(None, feeds), "dict", type(feeds).__name__, hint="a: f32[n, 16]")


def test_counts(rows: ingot.Executable, given: dict):
    refused_call(lambda: rows(given["a"]), 1, 2, hint="a, b")
    refused_call(lambda: rows(*given.values(), 1), 3, 2, hint="a, b")
    refused_call(lambda: rows(given["a"], b=given["b"]), 1, "b", hint="a, b")


def test_outputs_by_name(rows: ingot.Executable, given: dict):
    y, h = rows.run(None, given)
    assert bits(rows.run(["h"], given)) == bits([h])
    assert bits(rows.run(["h", "y", "h"], given)) == bits([h, y, h])
    assert bits(rows.run([], given)) == bits([y, h])
    ports = ("y: f32[n, 12]", "h: f32[n, 12]")
    refused_call(lambda: rows.run(["z"], given), where="'z'", hint=ports)


def test_answers_like_onnxruntimes_session(rows: ingot.Executable, given: dict):
    session = onnxruntime.InferenceSession(
        CASES["rows"]()[0].SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for names in (None, [], ["h"], ["h", "y"], ["y", "y"]):
        ours, theirs = rows.run(names, given), session.run(names, given)
        assert type(ours) is type(theirs) is list
        assert [(a.shape, a.dtype) for a in ours] == [(a.shape, a.dtype) for a in theirs]
        assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(ours, theirs))


def test_an_unknown_output_is_refused_before_anything_runs():
    compiled = ingot.Executable(package("kv_cache_scatter"))
    compiled._loaded = None  # type: ignore[assignment]
    refused_call(lambda: compiled.run(["nothing"], feeds("kv_cache_scatter")), where="'nothing'")


# --- types and shapes ---------------------------------------------------------------------------


def test_dtypes(rows: ingot.Executable, given: dict):
    wide = given["a"].astype(np.float64)
    types = ("float64", "float32")
    hint = "a.astype('float32')"
    refused_call(lambda: rows(wide, given["b"]), *types, where="'a'", hint=hint)
    tensor = torch.from_numpy(wide)
    call = lambda: rows(tensor, given["b"])  # noqa: E731
    refused_call(call, *types, where="'a'", hint="a.to(torch.float32)")
    swapped = given["a"].astype(">f4")
    call = lambda: rows(swapped, given["b"])  # noqa: E731
    refused_call(call, ">f4", "big-endian", "float32", where="'a'", hint=hint)
    call = lambda: rows(given["a"] > 0, given["b"])  # noqa: E731
    refused_call(call, "bool", "float32", where="'a'", hint=hint)


def test_ranks_and_shapes(rows: ingot.Executable, given: dict):
    a, b = given["a"], given["b"]
    refused_call(lambda: rows(a[0], b), "[16]", "[n, 16]", 1, 2, where="'a'", hint=False)
    facts = ("[6, 5]", "[n, 16]", "axis 1", 5, 16)
    refused_call(lambda: rows(a[:, :5], b), *facts, where="'a'", hint=False)


def test_sizes_that_contradict_name_both(rows: ingot.Executable, given: dict):
    call = lambda: rows(given["a"], given["b"][:4])  # noqa: E731
    refused_call(call, "'n'", "axis 0", 6, 4, where=("'a'", "'b'"), hint="'n'")


def ranged(**changes: Any) -> ingot.Executable:
    built = package("rows")
    (n,) = built.symbols
    return ingot.Executable(replace(built, symbols=(replace(n, **changes),)))


def test_ranges_and_divisors(given: dict):
    a, b = given["a"], given["b"]
    small = ranged(low=2, high=5)
    place = ("'a'", "axis 0")
    refused_call(lambda: small(a, b), "'n'", 6, 2, 5, where=place, hint="shapes={'n'")
    refused_call(lambda: small(a[:1], b[:1]), "'n'", 1, 2, 5, where=place)
    assert small(a[:5], b[:5])[0].shape == (5, 12)
    refused_call(lambda: ranged(low=7)(a, b), "'n'", 6, 7, where=place)
    refused_call(lambda: ranged(low=1, high=9)(a[:0], b[:0]), "'n'", 0, 1, where=place)
    assert ranged(low=1)(a[:0], b[:0])[0].shape == (0, 12), "no output has an element"
    fours = ranged(divisor=4)
    refused_call(lambda: fours(a, b), "'n'", 6, 4, where=place, hint=8)
    assert fours(a[:4], b[:4])[0].shape == (4, 12)


def test_ranges_given_to_compile(given: dict):
    compiled = ingot.compile(CASES["rows"]()[0], shapes={"n": (1, 4)})
    refused_call(lambda: compiled.run(None, given), "'n'", 6, 1, 4, where="'a'")


def test_a_computed_dimension_is_checked():
    built = package("rows")
    a, b = built.inputs
    shifted = replace(b, shape=(Var("n") + 1, Const(12)))
    compiled = ingot.Executable(replace(built, inputs=(a, shifted)))
    x, y = feeds("rows").values()
    refused_call(lambda: compiled(x, y), "axis 0", 6, 7, "n + 1", where="'b'", hint=False)


def test_an_unsolvable_dimension_is_said():
    built = package("rows")
    inputs = tuple(replace(p, shape=(Var("n") * Var("m"), p.shape[1])) for p in built.inputs)
    compiled = ingot.Executable(replace(built, inputs=inputs))
    call = lambda: compiled(*feeds("rows").values())  # noqa: E731
    refused_call(call, "axis 0", "n * m", where="'a'", hint=False)


# --- memory -------------------------------------------------------------------------------------


def seen(monkeypatch: pytest.MonkeyPatch, rows: ingot.Executable, a: Any, b: Any) -> list[int]:
    """The addresses a call passes to the emitted code."""
    found: list[int] = []

    def watched(array: np.ndarray) -> int:
        found.append(array.__array_interface__["data"][0])
        return found[-1]

    with monkeypatch.context() as patch:
        patch.setattr(loaded, "address_of", watched)
        rows(a, b)
    return found


def test_contiguous_arrays_are_used_where_they_lie(
    rows: ingot.Executable, given: dict, monkeypatch: pytest.MonkeyPatch
):
    fixed = given["b"].copy()
    fixed.flags.writeable = False
    addresses = seen(monkeypatch, rows, given["a"], fixed)
    assert addresses[:2] == [given["a"].ctypes.data, fixed.ctypes.data]


def test_tensors_are_used_where_they_lie(
    rows: ingot.Executable, given: dict, monkeypatch: pytest.MonkeyPatch
):
    a = torch.from_numpy(given["a"].copy()).requires_grad_()
    b = torch.from_numpy(given["b"].copy())
    assert seen(monkeypatch, rows, a, b)[:2] == [a.data_ptr(), b.data_ptr()]
    assert bits(rows(a, b)) == bits(rows(**given))
    assert bits(rows(a * 1.0, b)) == bits(rows(**given)), "not a leaf either"


class Own(np.ndarray):
    """Somebody's own kind of array."""


def misaligned(array: np.ndarray) -> np.ndarray:
    raw = np.zeros(array.nbytes + 1, np.uint8)
    view = np.ndarray(array.shape, array.dtype, raw.data, offset=1)
    view[...] = array
    assert not view.flags.aligned
    return view


@pytest.mark.parametrize(
    "change",
    [
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=1)[:, ::2],
        lambda a: a[::-1][::-1],
        lambda a: np.ascontiguousarray(a[::-1])[::-1],
        misaligned,
        lambda a: a.view(Own),
        lambda a: a.tolist(),
        lambda a: tuple(map(tuple, a)),
        lambda a: torch.from_numpy(a.T.copy()).T,
        lambda a: torch.complex(torch.zeros(a.shape), torch.from_numpy(-a)).conj().imag,
    ],
)
def test_other_arrays_are_copied(rows: ingot.Executable, given: dict, change: Callable):
    assert bits(rows(change(given["a"]), change(given["b"]))) == bits(rows(**given))


@pytest.mark.parametrize(
    "value, fact",
    [
        (None, "NoneType"),
        ("text", "str"),
        (object(), "object"),
        ([[1.0], [2.0, 3.0]], "float32"),
        ([["a"] * 16] * 6, "float32"),
        (torch.ones(6, 16, device="meta"), "meta"),
        (torch.ones(6, 16).to_sparse(), "torch.sparse_coo"),
        (torch.ones(6, 16, dtype=torch.bfloat16), "bfloat16"),
        ({"a": np.ones((6, 16), "f4")}, "exe(**feeds)"),
        (torch.ones(6, 16, dtype=torch.float64), "float64"),
        (np.ma.ones((6, 16), "f4"), "masked"),
        (np.float64(1), "float64"),
    ],
)
def test_what_is_no_array_is_refused(rows: ingot.Executable, given: dict, value: Any, fact: str):
    is_list = isinstance(value, list)  # numpy says what is wrong
    refused_call(lambda: rows(value, given["b"]), fact, where="'a'", hint=not is_list)


def test_numbers_and_lists_take_the_declared_type():
    compiled, x = exe("endless"), feeds("endless")["x"]
    assert bits(compiled(x, 5)) == bits(compiled(x, np.array(5)))
    for number in (2.5, 2**70):
        given = [x, number]
        refused_call(lambda: compiled(*given), "int64", where="'trips'", hint=False)  # noqa: B023
    refused_call(lambda: compiled(x, [5]), "[1]", "[]", 1, 0, where="'trips'", hint=False)


def test_lists_that_do_not_fit_a_narrow_type():
    proto = model("narrow", [node("Neg", "x", "y")], [info("x", [2], 3)], [info("y", [2], 3)])
    compiled = ingot.compile(proto)
    assert compiled([1, -128])[0].tolist() == [-1, -128]
    refused_call(lambda: compiled([1, 300]), "int8", where="'x'", hint=False)


def test_empty_arrays():
    built = package("rows")
    (n,) = built.symbols
    compiled = ingot.Executable(replace(built, symbols=(replace(n, low=0),)))
    y, h = compiled(np.zeros((0, 16), np.float32), np.zeros((0, 12), np.float32))
    assert y.shape == h.shape == (0, 12)


def test_a_model_without_inputs():
    constants = {"k": np.arange(3, dtype=np.float32)}
    proto = model("none", [node("Neg", "k", "y")], [], [info("y", [3])], constants)
    compiled = ingot.compile(proto)
    assert compiled()[0].tolist() == compiled.run(None, {})[0].tolist() == [0, -1, -2]
    refused_call(lambda: compiled(1), 1, 0, hint=False)


def test_inputs_are_never_written():
    for name in ("rows", "transformer_block", "kv_cache_scatter"):
        given = feeds(name)
        before = bits(list(given.values()))
        exe(name).run(None, given)
        assert bits(list(given.values())) == before


# --- what people read ---------------------------------------------------------------------------


def test_ports_say_name_type_and_shape(rows: ingot.Executable):
    assert [str(p) for p in rows.inputs] == ["a: f32[n, 16]", "b: f32[n, 12]"]
    assert [str(p) for p in rows.outputs] == ["y: f32[n, 12]", "h: f32[n, 12]"]
    assert "rows" in repr(rows) and "a: f32[n, 16]" in repr(rows)


def test_memory_before_running():
    fixed = exe("if_true").memory
    assert all(isinstance(v, int) for v in fixed.values()) and fixed["arena main"] > 0
    compiled = exe("transformer_block")
    assert compiled.memory["weights"] == compiled.package.constants.nbytes
    small, large = (compiled.memory_for(batch=2, length=n) for n in (4, 40))
    assert small.keys() == compiled.memory.keys()
    assert small["arena main"] < large["arena main"]
    assert small["weights"] == large["weights"]
    option, sizes = "bad-option", ("batch", "length")
    call = lambda: compiled.memory_for(batch=1)  # noqa: E731
    refused_call(call, "memory_for", where="length", hint=sizes, code=option)
    call = lambda: compiled.memory_for(batch=1, length=2, lenght=3)  # noqa: E731
    refused_call(call, where="'lenght'", hint=sizes, code=option)
    call = lambda: compiled.memory_for(batch=-1, length=2)  # noqa: E731
    refused_call(call, "memory_for", -1, 1, where="'batch'", hint=False, code=option)


def test_a_report_for_sizes_it_does_not_have():
    compiled = exe("transformer_block")
    assert compiled.report(batch=1, length=2)
    call = lambda: compiled.report(lenght=3)  # noqa: E731
    refused_call(call, where="'lenght'", hint=("batch", "length"), code="bad-option")


def test_memory_figures_are_what_a_run_reserves():
    compiled = exe("transformer_block", 1)
    given = feeds("transformer_block")
    compiled.run(None, given)
    batch, length, _ = given["x"].shape
    (context,) = compiled._loaded._free_contexts()
    said = compiled.memory_for(batch=batch, length=length)
    assert context._sizes is not None
    assert context._sizes.arenas == (said["arena main"],)
    assert context._sizes.scratch_bytes == said["scratch per thread"]


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
def test_thread_counts(threads: Any, rows: ingot.Executable):
    fact = f"threads={threads!r}"
    refused_call(lambda: setattr(rows, "threads", threads), fact, hint=1, code="bad-option")
    refused_call(lambda: ingot.Executable(rows.package, threads), fact, hint=1, code="bad-option")
