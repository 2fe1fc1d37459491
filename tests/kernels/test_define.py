"""@ingot.kernel: what a function may say, and where its errors point."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import ingot
from ingot import dtypes
from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.script_parse import parse
from ingot.script import *
from tests.kernels.samples import floats, mm_relu
from tests.refusal import check, is_told, refused

N, HALF, SLOPE = 8, 0.5, np.float32(0.25)
SHAPE = (3, 8)
KIND = f64
CONFIG = SimpleNamespace(width=4, scale=2.0, kind=np.float16)
HERE = Path(__file__)


def relu(x):
    """Helpers may have a docstring."""
    return max(x, 0.0)


def leaky(x, slope):
    return select(x > 0, x, x * slope)


def clamp(at, n):
    return max(0, min(at, n - 1))


def around(A, at):
    return A[clamp(at - 1, N)] + A[at] + A[clamp(at + 1, N)]


def endless(x):
    return endless(x)


def two_steps(x):
    y = x * 2
    return y


def position(of: str, word: str) -> str:
    """file:line:column of `word` in the line of this file that ends in the comment `of`."""
    for number, line in enumerate(HERE.read_text().splitlines(), 1):
        if line.endswith(f"# {of}"):
            return f"{number}:{line.index(word) + 1}"
    raise AssertionError(of)


def assert_at(error: ingot.IngotError, of: str, word: str, code: str = "bad-text") -> None:
    assert error.code == code
    file, _, place = error.where.partition(".py:")
    assert file.endswith("test_define") and place == position(of, word)
    quoted, mark = error.why.split("\n")[:2]
    assert quoted.endswith(f"# {of}") or word in quoted
    assert quoted[mark.index("^") - 9 :].startswith(word)


# --- numbers, types and helpers -------------------------------------------------------------------


def test_numbers_of_the_enclosing_scope():
    @ingot.kernel
    def k(A: f32[N // 2, SHAPE[1]], B: f32[N // 2, SHAPE[1]]):
        for i, j in grid(N // 2, SHAPE[-1]):
            B[i, j] = A[i, j] * HALF + A[i, j] * SLOPE + math.pi / 2 + 1 / N

    assert k.ir.params[0].shape == (4, 8)
    x = floats(4, 8)
    np.testing.assert_allclose(k(x), x * 0.75 + math.pi / 2 + 1 / 8, rtol=1e-6)


def test_numbers_of_an_enclosing_function():
    def make(width: int, add: float):
        @ingot.kernel
        def k(A: f32[width], B: f32[width]):
            for i in serial(B_SIZE):
                B[i] = A[i] + add

        return k

    B_SIZE = 5
    x = floats(5)
    np.testing.assert_allclose(make(5, 1.5)(x), x + np.float32(1.5))
    assert make(5, 1.5) == make(5, 1.5) != make(5, 2.5)


def test_element_types_have_many_spellings():
    @ingot.kernel
    def k(A: KIND[N], B: CONFIG.kind[N], C: dtypes.i32[N], D: "u8[N]"):
        for i in serial(N):
            B[i] = CONFIG.kind(A[i])
            C[i] = cast(A[i], i32)
            D[i] = u8(CONFIG.width)

    assert [p.dtype.name for p in k.ir.params] == ["f64", "f16", "i32", "u8"]


def test_helpers_are_written_out():
    @ingot.kernel
    def k(A: f32[N], B: f32[N]):
        def twice(x):
            return x * 2.0

        for i in serial(N):
            B[i] = leaky(relu(twice(around(A, i))), SLOPE)

    x = floats(N)
    padded = np.pad(x, 1, mode="edge")
    want = np.maximum((padded[:-2] + x + padded[2:]) * 2, 0)
    np.testing.assert_allclose(k(x), want, rtol=1e-6)
    np.testing.assert_allclose(k.interpret(x), want, rtol=1e-6)


def test_a_helper_reads_its_own_scope():
    @ingot.kernel
    def k(HALF: f32[N], SLOPE: f32[N]):
        for N_2 in serial(N):
            SLOPE[N_2] = scaled(HALF[N_2])

    x = floats(N)
    np.testing.assert_allclose(k(x), x * 0.5)


def scaled(x):
    return x * HALF


def test_constants_fold_and_words_stay():
    @ingot.kernel
    def k(A: f32[N], B: f32[N]):
        for i in serial(0 * N, N - 2**1):
            B[i + (N - N)] = A[i + 4 // 2] * (1.0 / 4)

    assert isinstance(k.ir.body, ir.For) and k.ir.body.stop == 6
    store = next(visit.stores(k.ir.body))
    assert store.indices == (arith.Var("i"),)
    assert store.value.b == ir.Lit(0.25, dtypes.f32)


# --- names ----------------------------------------------------------------------------------------


def test_names_may_be_used_again():
    assert str(mm_relu).count("for i, j, q in grid(n, m, k)") == 1
    assert "for i_2, j_2 in grid(n, m)" in str(mm_relu)


def test_a_value_may_be_bound_again_in_its_suite():
    @ingot.kernel
    def k(A: f32[N], B: f32[N]):
        for i in serial(N):
            x = A[i]
            x = x * x
            x = x + 1.0
            B[i] = x

    x = floats(N)
    np.testing.assert_allclose(k(x), x * x + 1, rtol=1e-6)


def test_axes_may_be_called_as_their_loops():
    @ingot.kernel
    def k(A: f32[N, N], B: f32[N, N]):
        for i, j in grid(N, N):
            with block("B", spatial=(j, i)) as (i, j):
                B[i, j] = A[j, i]

    x = floats(N, N)
    np.testing.assert_array_equal(k(x), x.T)


def test_a_name_of_an_outer_suite_is_not_bound_again():
    with pytest.raises(ingot.IngotError) as caught:

        @ingot.kernel
        def k(A: f32[N], B: f32[1]):
            total = f32(0.0)
            for i in serial(N):
                total = total + A[i]  # rebinding
            B[0] = total

    assert_at(caught.value, "rebinding", "total")
    check(caught.value, "bad-text", where="total", hint="alloc(f32[1])")


def test_nested_loops_need_names_of_their_own():
    with refused("bad-text", where=("test_define.py", "i")):

        @ingot.kernel
        def k(A: f32[N]):
            for i in serial(N):
                for i in serial(N):
                    A[i] = 0.0


# --- errors ---------------------------------------------------------------------------------------


def test_an_error_points_at_line_and_column():
    with pytest.raises(ingot.IngotError) as caught:

        @ingot.kernel
        def k(A: f32[N], B: f32[N]):
            for i in serial(N):
                B[i] = A[i] + nothing(A[i])  # unknown word

    assert_at(caught.value, "unknown word", "nothing(A[i])")
    assert is_told("nothing", caught.value.what)
    assert caught.value.text().splitlines()[-1].rstrip().endswith("^" * len("nothing(A[i])"))


def test_columns_count_characters():
    with pytest.raises(ingot.IngotError) as caught:

        @ingot.kernel
        def k(α: f32[N], β: f32[N]):
            for i in serial(N):
                β[i] = α[i] + missing  # greek

    assert_at(caught.value, "greek", "missing")


def test_an_error_in_a_helper_points_into_the_helper():
    with pytest.raises(ingot.IngotError) as caught:

        @ingot.kernel
        def k(A: f32[N]):
            A[0] = broken(A[1])

    assert_at(caught.value, "in the helper", "lost")


def broken(x):
    return x + lost  # in the helper


def test_an_argument_of_a_helper_is_read_where_the_call_stands():
    with pytest.raises(ingot.IngotError) as caught:

        @ingot.kernel
        def k(A: f32[N]):
            A[0] = relu(absent)  # at the call

    assert_at(caught.value, "at the call", "absent")


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        ("endless(A[0])", ["endless"]),
        ("two_steps(A[0])", ["two_steps"]),
        ("relu(A[0], A[1])", ["relu", 1, "x"]),
        ("relu(x=A[0])", ["relu", 1, "x"]),
        ("len(A)", ["len"]),
        ("A[0] if A[0] > 0 else A[1]", ["select(condition, a, b)"]),
        ("A[0] ** 2", ["pow(x, y)"]),
        ("1 // 0", ["1 // 0"]),
        ("A[1.5]", [1.5]),
        ("A[0] + np", ["np"]),
        ("A[0] + SHAPE[5]", [5, 2]),
        ("A", ["A", "A[i]"]),
    ],
)
def test_words(call, facts, tmp_path, monkeypatch):
    file = tmp_path / "case.py"
    file.write_text(
        "from tests.kernels.test_define import *\nfrom tests.kernels.test_define import np\n"
        f"@ingot.kernel\ndef k(A: f32[8]):\n    A[3] = {call}\n"
    )
    monkeypatch.chdir(tmp_path)
    with refused("bad-text", hint=False) as caught:
        exec(compile(file.read_text(), str(file), "exec"), {})
    told = f"{caught.value.what}\n{caught.value.hint}"  # why is the line itself
    assert all(is_told(fact, told) for fact in facts), told
    if call[:3] not in ("end", "two"):  # these two are wrong where they stand
        assert caught.value.where.startswith("case.py:5:")


def test_a_broken_law_points_at_the_statement():
    with pytest.raises(ingot.IngotError) as caught:

        @ingot.kernel
        def k(A: f32[N], B: f64[N]):
            for i in serial(N):
                B[i] = A[i]  # mixed types

    assert_at(caught.value, "mixed types", "B[i] = A[i]", code="bad-loops")
    check(caught.value, "bad-loops", where=("f32", "B", "f64"), hint=False)


def test_a_block_sees_its_axes_only():
    with pytest.raises(ingot.IngotError) as caught:

        @ingot.kernel
        def k(A: f32[N], B: f32[N]):
            for i in serial(N):
                with block("B", spatial=(i,)) as vi:
                    B[i] = A[vi]  # outer loop

    assert_at(caught.value, "outer loop", "B[i] = A[vi]", code="bad-loops")
    check(caught.value, "bad-loops", where="i", hint=False)


def test_parameters_need_types():
    with refused("bad-text", "f32[128, 64]", "size", where="A", hint=False):

        @ingot.kernel
        def k(A):
            A[0] = 0.0

    with refused("bad-text", why="def k2(A: f32[N], *, B: f32[N]):", hint=False):

        @ingot.kernel
        def k2(A: f32[N], *, B: f32[N]):
            A[0] = 0.0


def test_what_is_no_def_is_refused():
    with refused("bad-text", "@ingot.kernel", "SimpleNamespace", hint=False):
        ingot.kernel(SimpleNamespace())
    with refused("bad-text", where=("test_define.py", "<lambda>"), hint="ingot.kernels.parse"):
        ingot.kernel(lambda A: A)
    made: dict = {}
    exec("def from_nowhere(A: f32[4]):\n    A[0] = 0.0", made)
    with refused("bad-text", where=("<string>", "from_nowhere"), hint="ingot.kernels.parse"):
        ingot.kernel(made["from_nowhere"])


def test_words_outside_a_kernel_do_nothing():
    with refused("bad-text", "@ingot.kernel", where="grid", hint=False):
        grid(1, 2)
    with refused("bad-text", "@ingot.kernel", where="f32(…)", hint=False):
        f32(1.0)


# --- text -----------------------------------------------------------------------------------------


def test_print_parses_back_and_runs():
    again = ingot.kernels.parse(str(mm_relu))
    assert again == mm_relu and str(again) == str(mm_relu)
    a, b = floats(3, 4), floats(4, 5, seed=1)
    np.testing.assert_array_equal(again(a, b), mm_relu(a, b))


def test_a_printed_kernel_is_a_script(tmp_path, monkeypatch):
    file = tmp_path / "printed.py"
    head = "from __future__ import annotations\nimport ingot\nfrom ingot.script import *\n"
    file.write_text(head + str(mm_relu))
    monkeypatch.syspath_prepend(tmp_path)
    import printed  # type: ignore[import-not-found]

    assert printed.mm_relu == mm_relu


def test_parse_takes_constants():
    k = ingot.kernels.parse(
        "def k(A: f32[M]):\n    for i in serial(M):\n        A[i] = c", M=3, c=2
    )
    np.testing.assert_array_equal(k(), [2, 2, 2])


def test_options_name_the_kernel():
    @ingot.kernel(name="other", origin="node 'a'", family="conv")
    def k(A: f32[1]):
        A[0] = 0.0

    assert (k.name, k.ir.origin, k.ir.family) == ("other", "node 'a'", "conv")
    assert parse(str(k)).origin == "node 'a'"


def test_every_word_of_the_language_is_in_the_module():
    import ingot.script as words
    from ingot.loops import script_print, script_print_values

    builtin = {"min", "max", "abs", "round", "pow"}
    asked = {*ir.MATH, *ir.UNARY, *ir.BINARY} - set(script_print_values.INFIX)
    asked -= set(script_print_values.UNARY)
    asked |= set(script_print.LOOPS.values()) | set(script_print.AXES.values())
    assert asked - builtin <= set(words.__all__)
    assert not builtin & set(words.__all__), "the user's Python goes on working"
    assert {d for d in dtypes.TABLE if d in words.__all__} >= {"f32", "bf16", "i64", "u8"}
