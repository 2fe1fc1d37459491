"""The native fast path: calls like the one before skip Python, and give the same outputs."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest
from onnx import TensorProto as P

import ingot
from ingot.runtime.cpu import fast_path
from ingot.runtime.cpu.loaded import LoadedCpuModule
from ingot.support import options
from ingot.support.errors import IngotError
from tests.models.parts import info, model, node
from tests.refusal import Fact, refused
from tests.runtime.common import CASES, assert_clean, bits, exe, feeds, script

PLAIN = [name for name in CASES if name in ("relu", "rows", "lookup", "residual_cnn", "wide_lstm")]


def ready(name: str, threads: int = 2) -> tuple[ingot.Executable, list[np.ndarray]]:
    """An executable whose next call of the same kind takes the fast path."""
    compiled, given = exe(name, threads), list(feeds(name).values())
    for _ in range(2):
        compiled(*given)
    assert len(compiled._loaded._fast_paths) == 1 and not compiled._loaded._idle
    return compiled, given


@pytest.fixture
def by_python(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A word for every call that Python code prepares."""
    words: list[str] = []
    run = LoadedCpuModule.run

    def watched(*given):
        words.append("prepared")
        return run(*given)

    monkeypatch.setattr(LoadedCpuModule, "run", watched)
    return words


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", PLAIN)
def test_answers_are_those_of_other_calls(name: str, threads: int, by_python: list[str]):
    compiled, given = ready(name, threads)
    want = bits(exe(name, threads)(*given))
    by_python.clear()
    first, second = compiled(*given), compiled.run(None, dict(zip(feeds(name), given)))
    assert not by_python
    assert bits(first) == bits(second) == want
    assert not any(np.shares_memory(a, b) for a, b in zip(first, second))
    assert type(first) is list and all(a.flags.owndata and a.flags.writeable for a in first)


def test_new_values_in_the_same_and_in_other_arrays(by_python: list[str]):
    compiled, (x,) = ready("relu")
    by_python.clear()
    for seed in range(20):
        x[:] = np.random.default_rng(seed).standard_normal(8)
        other = -x
        assert np.array_equal(compiled(x)[0], np.maximum(x, 0))
        assert np.array_equal(compiled(other)[0], np.maximum(other, 0))
    assert not by_python


class Own(np.ndarray):
    pass


OTHERS: dict[str, Callable[[np.ndarray], object]] = {
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "every second": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "subclass": lambda x: x.view(Own),
    "list": lambda x: x.tolist(),
    "dtype of its own": lambda x: x.view(np.dtype("f4", metadata={"unit": "m"})),
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_other_arrays_are_left_to_python(change: Callable, by_python: list[str]):
    compiled, given = ready("rows")
    want = bits(compiled(*given))
    by_python.clear()
    for _ in range(3):
        assert bits(compiled(*map(change, given))) == want
    assert len(by_python) == 3
    assert len(compiled._loaded._free_contexts()) == 1, "no second context for these"


WRONG: dict[str, tuple[Callable[[list[np.ndarray]], list], tuple[Fact, ...]]] = {
    "dtype": (lambda g: [g[0].astype(np.float64), g[1]], ("'a'", "float64", "float32")),
    "shape": (lambda g: [g[0][:, :-1].copy(), g[1]], ("'a'", "[6, 15]", "[n, 16]")),
    "rank": (lambda g: [g[0][None], g[1]], ("'a'", "[1, 6, 16]", 3, 2)),
    "count": (lambda g: g[:1], (1, 2)),
    "none": (lambda g: [], (0, 2)),
    "no array": (lambda g: [g[0], object()], ("'b'", "object")),
    "bytes swapped": (lambda g: [g[0].astype(">f4"), g[1]], ("'a'", "big-endian")),
}


@pytest.mark.parametrize(("change", "facts"), WRONG.values(), ids=WRONG)
def test_wrong_arrays_are_refused_as_before(change: Callable, facts: tuple[Fact, ...]):
    compiled, given = ready("rows")
    want = bits(compiled(*given))
    for fresh in (exe("rows"), compiled):
        with refused("bad-input", *facts, hint=False):
            fresh(*change(given))
    assert bits(compiled(*given)) == want


def test_other_sizes_take_the_same_memory(by_python: list[str]):
    compiled, (a, b) = ready("rows")
    wide = [np.concatenate([a, a]), np.concatenate([b, b])]
    want, wide_want = bits(exe("rows")(a, b)), bits(exe("rows")(*wide))
    for _ in range(4):
        for _ in range(4):
            assert bits(compiled(*wide)) == wide_want
        for _ in range(4):
            assert bits(compiled(a, b)) == want
    assert len(compiled._loaded._free_contexts()) == 1
    by_python.clear()
    compiled(a, b)
    assert not by_python


@pytest.mark.parametrize("rows", [0, 2])
def test_sizes_of_nothing_and_of_no_axis(rows: int):
    scalars = model(
        "scalars", [node("Add", "x s", "y")], [info("x", [rows, 3]), info("s", [])],
        [info("y", [rows, 3])],
    )  # fmt: skip
    compiled, one = ingot.compile(scalars), np.array(1, np.float32)
    x = np.ones((rows, 3), np.float32)
    for _ in range(4):
        assert np.array_equal(compiled(x, one)[0], x + 1)
    assert len(compiled._loaded._fast_paths) == 1


def test_a_model_without_inputs_and_one_with_two_outputs():
    twice = model(
        "two", [node("Relu", "x", "y"), node("Neg", "x", "z")], [info("x", [3], P.INT64)],
        [info("y", [3], P.INT64), info("z", [3], P.INT64)],
    )  # fmt: skip
    compiled, x = ingot.compile(twice), np.array([-1, 0, 5])
    for _ in range(4):
        y, z = compiled(x)
        assert y.tolist() == [0, 0, 5] and z.tolist() == [1, 0, -5]
    constant = model("k", [node("Neg", "c", "y")], [], [info("y", [2])], {"c": np.ones(2, "f4")})
    compiled = ingot.compile(constant)
    for _ in range(4):
        assert compiled()[0].tolist() == [-1, -1]


def test_a_failing_run_names_the_node_and_keeps_the_fast_path():
    compiled, (where,) = ready("lookup")
    want = bits(compiled(where))
    bad = where.copy()
    bad[3] = 99
    for _ in range(3):
        with refused("run-failed", 99, 10, where="'Gather_picked'", hint=False):
            compiled(bad)
        assert bits(compiled(where)) == want
    assert len(compiled._loaded._fast_paths) == 1


def test_nothing_is_leaked():
    compiled, given = ready("lookup")
    bad = given[0] + 1000
    watched = [np.dtype(np.int64), np.dtype(np.float32), given[0], np.empty]

    def turn():
        for _ in range(500):
            compiled(*given)
            with pytest.raises(IngotError):
                compiled(bad)

    turn()
    gc.collect()
    before = [sys.getrefcount(x) for x in watched], len(gc.get_objects())
    turn()
    gc.collect()
    after = [sys.getrefcount(x) for x in watched], len(gc.get_objects())
    assert all(abs(a - b) < 50 for a, b in zip(after[0], before[0]))
    assert abs(after[1] - before[1]) < 200


def test_many_threads_at_once():
    compiled = exe("rows")
    a, b = feeds("rows").values()
    inputs = [(a + i, b * i) for i in range(8)]
    want = [bits(exe("rows")(*each)) for each in inputs]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(300):
            if bits(compiled(*inputs[i])) != want[i]:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_threads_and_out_are_heeded():
    compiled, given = ready("residual_cnn", 1)
    want = bits(compiled(*given))
    for threads in (2, 1):
        compiled.threads = threads
        for _ in range(4):
            assert bits(compiled(*given)) == want
        assert compiled._loaded._free_contexts()[-1].threads_used == threads
    outs = [np.zeros_like(x) for x in compiled(*given)]
    assert compiled(*given, out=outs)[0] is outs[0] and bits(outs) == want


def test_threads_that_change_while_a_call_is_under_way(monkeypatch: pytest.MonkeyPatch):
    """The fast path that this call makes is for the old count: no later call may use it."""
    compiled, given = exe("residual_cnn", 2), list(feeds("residual_cnn").values())
    compiled(*given)
    run, context = LoadedCpuModule.run, LoadedCpuModule._context

    def changed_after(self, *details):
        results = run(self, *details)
        self.threads = 1
        return results

    def changed_meanwhile(self, *details):
        self.threads = 1
        return context(self, *details)

    for name, change in (("_context", changed_meanwhile), ("run", changed_after)):
        compiled.threads = 2
        with monkeypatch.context() as patch:
            patch.setattr(LoadedCpuModule, name, change)
            compiled(*given)
        for _ in range(4):
            compiled(*given)
            assert compiled._loaded._free_contexts()[-1].threads_used == 1


def test_the_builtin_may_outlive_its_fast_path():
    code = """
import gc
e = exe("rows")
a, b = feeds("rows").values()
kept = []
for rows in range(1, 60):
    x, y = (np.ascontiguousarray(np.resize(z, (rows, z.shape[1])), np.float32) for z in (a, b))
    for _ in range(3):
        e(x, y)
    kept.append(e._loaded._fast_paths[0].call)
del e
gc.collect()
assert {f.__name__ for f in kept} == {"fast_path"}
"""
    assert_clean(script(code, "rows"))


def test_it_can_be_switched_off():
    with options.override(off={"fast_path"}):
        compiled = exe("relu")
    for _ in range(4):
        compiled(*feeds("relu").values())
    assert not compiled._loaded._fast_paths


def test_this_python_and_these_arrays_are_known():
    assert fast_path.is_supported()


def test_a_forked_child_makes_its_own():
    code = """
e, given = exe("residual_cnn"), [x.astype("f4") for x in feeds("residual_cnn").values()]
want = bits(e(*given))
e(*given); e(*given)
assert len(e._loaded._fast_paths) == 1
pid = os.fork()
if not pid:
    for _ in range(4):
        assert bits(e(*given)) == want
    assert len(e._loaded._fast_paths) == 1 and e._loaded._fast_paths[0].context.threads_used == 2
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert bits(e(*given)) == want
"""
    assert_clean(script(code, "residual_cnn"))


def test_exit_while_a_daemon_thread_is_inside():
    code = """
e, given = exe("endless", 2), list(feeds("endless").values())
def work():
    while True:
        e(*given)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
"""
    for _ in range(3):
        assert_clean(script(code, "endless"))
