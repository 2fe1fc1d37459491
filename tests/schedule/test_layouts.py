"""transform_layout, pad, storage_align, and index maps."""

import numpy as np
import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.loops import interp, ir, visit
from ingot.loops.build import Build
from ingot.schedule import Schedule, guards
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.index_map import IndexMap, InvertedMap
from tests.refusal import refused
from tests.schedule.common import check_step, conv1d, data, elementwise, f32, matmul, softmax
from tests.schedule.equivalence import assert_everywhere
from tests.schedule.test_caches import extents, refusal

n = arith.Var("n")


def buffer(sch: Schedule, name: str) -> ir.Buffer:
    allocs = (s for s in visit.walk_stmts(sch.kernel.body) if isinstance(s, ir.Alloc))
    return next(s.buffer for s in allocs if s.buffer.name == name)


def shape(sch: Schedule, name: str) -> list[str]:
    return [str(d) for d in buffer(sch, name).shape]


# index maps


def inverted_on(text: str, *sizes: int) -> InvertedMap | str:
    kernel = ir.Kernel("k", (), (), ir.Seq(()))
    return IndexMap.of(text).inverted_on([arith.Const(s) for s in sizes], Analyzer(kernel))


@pytest.mark.parametrize(
    ("text", "sizes", "shape"),
    [
        ("i, k -> i // 6, k, i % 6", (13, 4), (3, 4, 6)),
        ("i, j -> j, i", (3, 5), (5, 3)),
        ("i -> i // 8, i // 2 % 4, i % 2", (21,), (3, 4, 2)),
        ("i, j -> i * 5 + j", (3, 5), (15,)),
        ("i, j -> j // 2, i * 2 + j % 2", (3, 5), (3, 6)),
    ],
)
def test_a_map_and_its_inverse(text, sizes, shape):
    layout = inverted_on(text, *sizes)
    assert isinstance(layout, InvertedMap)
    assert [arith.as_int(d) for d in layout.shape] == list(shape)
    seen = set()
    for flat in range(arith.evaluate(arith.product([arith.Const(s) for s in sizes]), {})):
        point, rest = [], flat
        for size in reversed(sizes):
            rest, digit = divmod(rest, size)
            point.insert(0, digit)
        new = [arith.as_int(e) for e in IndexMap.of(text).apply([arith.Const(p) for p in point])]
        assert all(0 <= a < b for a, b in zip(new, shape)) and tuple(new) not in seen
        seen.add(tuple(new))
        env = dict(zip(layout.point, new))
        assert [arith.evaluate(e, env) for e in layout.inverse] == point


@pytest.mark.parametrize(
    ("text", "sizes", "why"),
    [
        ("i, j -> i + j", (3, 5), "not a sum of digits"),
        ("i, j -> i", (3, 5), "the upper part of j is lost"),
        ("i -> i // 2", (6,), "has a digit twice, or one is missing"),
        ("i -> i, i", (6,), "has a digit twice"),
        ("i -> i + 1", (6,), "does not start at 0"),
        ("i, j -> i * 7 + j % 2, j // 2", (3, 5), "leaves gaps"),
        ("i -> i", (3, 5), "it takes 1 indices, the buffer has 2"),
    ],
)
def test_maps_without_an_inverse(text, sizes, why):
    found = inverted_on(text, *sizes)
    assert isinstance(found, str) and why in found


@pytest.mark.parametrize("text", ["i // 2", "i, i -> i", "i -> j", "i -> 1 +", "2 -> 2"])
def test_invalid_map_texts(text):
    with refused("bad-schedule", where=text, hint="i, k -> i // 6, k, i % 6"):
        IndexMap.of(text)


def test_a_function_and_its_text_are_one_map():
    made = IndexMap.of(lambda i, k: (i // 6, k, i % 6))
    assert made == IndexMap.of(made.text()) and made.text() == "i, k -> i // 6, k, i % 6"


# transform_layout


def test_the_producer_iterates_over_the_new_layout():
    kernel = elementwise(7, 5)
    sch = Schedule(kernel)
    sch.transform_layout(sch.block("S"), "i, j -> i // 4, j, i % 4")
    assert shape(sch, "S") == ["2", "5", "4"] and extents(sch, "S") == [2, 5, 4]
    store = next(visit.stores(sch.at_block(sch.block("S"))))
    assert [str(i) for i in store.indices] == [a.var for a in sch.at_block(sch.block("S")).axes]
    assert_everywhere(kernel, sch)


def test_layout_padding_is_zero():
    """Seen by making the packed buffer an output."""
    kernel = elementwise(7, 5)
    sch = Schedule(kernel)
    sch.transform_layout("S", "i, j -> i // 4, j, i % 4")
    kept, x = buffer(sch, "S"), data(kernel, {})
    alloc = next(s for s in visit.walk_stmts(sch.kernel.body) if isinstance(s, ir.Alloc))
    shown = ir.replace(sch.kernel, params=(*kernel.params, kept), body=alloc.body)
    packed = np.full((2, 5, 4), 99, np.float32)
    interp.run(shown, [*x, packed], {})
    assert (packed[1, :, 3] == 0).all() and (x[0][:4] * 2 == packed[0, :, :].T).all()


def test_a_square_buffer_is_transposed_once():
    kernel = elementwise(5, 5)
    sch = Schedule(kernel)
    sch.transform_layout("S", lambda i, j: (j, i))
    assert_everywhere(kernel, sch)


def test_the_layout_of_an_accumulator():
    kernel = matmul(7, 20, 5)
    sch = Schedule(kernel)
    sch.transform_layout("Y", "i, j -> j // 8, i, j % 8")
    assert shape(sch, "Y") == ["3", "7", "8"] and extents(sch, "Y") == [7, 20, 5]
    assert_everywhere(kernel, sch)


@pytest.mark.parametrize("size", [1, 4, 9])
def test_the_layout_of_a_symbolic_buffer(size):
    kernel = matmul(n, 8, 3, [ir.Size("n")])
    sch = Schedule(kernel)
    a = sch.cache_read(sch.block("Y"), "A", layout="i, k -> i // 4, k, i % 4")
    assert shape(sch, "A_global") == ["(n + 3) // 4", "3", "4"]
    outer, _ = sch.split(sch.loops(sch.block("Y"))[0], None, 4)
    sch.compute_at(a, outer)
    assert_everywhere(kernel, sch, {"n": size})


def test_a_guarded_reader_of_a_new_layout():
    kernel = conv1d(10)
    sch = Schedule(kernel)
    sch.transform_layout("padded", "i -> i % 4, i // 4")
    assert_everywhere(kernel, sch)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("Y", "i, j -> i", "j"),
        ("A", "i, j -> j, i", "A"),
        ("nothing", "i -> i", "nothing"),
    ],
)
def test_transform_layout_refuses(name, text, why):
    error = refusal(Schedule(matmul()), "transform_layout", name, text)
    check_step(error, f"transform_layout('{name}', '{text}')", why)


# pad


def test_a_padded_gemm_has_no_tails():
    kernel = matmul(7, 20, 5)
    sch = Schedule(kernel)
    y = sch.block("Y")
    sch.cache_read(y, "A")
    sch.cache_read(y, "B")
    sch.pad(y, 4, 8, 4)
    assert extents(sch, "Y") == [8, 24, 8]
    assert [shape(sch, b) for b in ("A_global", "B_global", "Y")] == [
        ["8", "8"], ["8", "24"], ["8", "24"],
    ]  # fmt: skip
    sch.split(sch.loops(y)[0], None, 4, tail="none")
    body = sch.at_block(y).body
    assert not any(
        isinstance(e, ir.Select) for e in visit.all_exprs(body)
    )  # zeros contribute nothing
    assert_everywhere(kernel, sch)


def test_padding_that_is_not_needed_changes_nothing():
    sch = Schedule(matmul(8, 16, 4))
    before = sch.kernel
    sch.pad(sch.block("Y"), 4, 8, 2)
    assert sch.kernel == before


def test_padded_reduce_points_contribute_nothing():
    kernel = softmax(3, 5)
    sch = Schedule(kernel)
    top = sch.block("top")
    sch.cache_read(top, "X")
    sch.pad(top, 1, 4)
    assert extents(sch, "top") == [3, 8]
    assert any(isinstance(e, ir.Select) for e in visit.all_exprs(sch.at_block(top).body))
    assert_everywhere(kernel, sch)


@pytest.mark.parametrize("size", [1, 4, 6])
def test_a_symbolic_axis_is_padded(size):
    kernel = matmul(n, 6, 3, [ir.Size("n")])
    sch = Schedule(kernel)
    y = sch.block("Y")
    sch.cache_read(y, "A")
    sch.pad(y, 4, 1, 1)
    sch.split(sch.loops(y)[0], None, 4, tail="none")
    assert_everywhere(kernel, sch, {"n": size})


@pytest.mark.parametrize("multiples", [(4, 1, 1), (1, 8, 1), (4, 8, 1)])
def test_padded_rows_read_the_last_one_again(multiples):
    """An operand that cannot grow is read at its last element: nothing reads the result."""
    sch = Schedule(kernel := matmul(7, 20, 5))
    sch.pad(sch.block("Y"), *multiples)
    i, j, k = sch.loops(sch.block("Y"))
    assert extents(sch, "Y")[:2] == [
        -(-7 // multiples[0]) * multiples[0],
        24 if multiples[1] > 1 else 20,
    ]
    sch.reorder(j, k, i)
    assert_everywhere(kernel, sch)


def bordered(sides: tuple[int, int]) -> ir.Kernel:
    """A map with a border of zeros, whose columns are shifted; rows have one only if padded."""
    b = Build("bordered")
    x = b.param("X", f32, (5, 6))

    def value(i: arith.Expr, j: arith.Expr) -> ir.Expr:
        at = [p - side for p, side in zip((i, j), sides)]
        terms = [
            term
            for p, side, size in zip(at, sides, (5, 6))
            if side
            for term in (guards.nonnegative(p), guards.less(p, arith.Const(size)))
        ]
        return ir.Load(x, tuple(at), mask=guards.conjunction(terms), other=ir.Lit(0.0, f32))

    made = b.compute("P", tuple(n + 2 * side for n, side in zip((5, 6), sides)), value)
    return b.finish([b.compute("Z", (5, 6), lambda i, j: made[i, j] + 1.0)])


@pytest.mark.parametrize("sides", [(1, 2), (0, 1), (2, 0)])
def test_a_copy_with_a_border_of_zeros_is_padded_further(sides):
    """Its own mask keeps it in bounds along a padded axis; where it has none, one is added."""
    sch = Schedule(kernel := bordered(sides))
    sch.pad(sch.block("P"), 16, 16, beyond="zero")
    assert extents(sch, "P") == [16, 16] and shape(sch, "P") == ["16", "16"]
    (load,) = visit.loads(sch.at_block(sch.block("P")).body)
    assert len(guards.conjuncts(load.mask)) == (4 if all(sides) else 3)
    assert_everywhere(kernel, sch)


def test_a_mask_on_another_axis_than_the_padded_one_stays():
    """Rows beyond the end read the last row, under the mask of their columns."""
    sch = Schedule(kernel := bordered((0, 1)))
    sch.pad(sch.block("P"), 16, 1)
    assert extents(sch, "P") == [16, 8]
    assert_everywhere(kernel, sch)


def test_a_mask_that_does_not_bound_the_padded_axis_is_refused():
    b = Build("diagonal")
    x = b.param("X", f32, (5, 6))

    def value(i: arith.Expr, j: arith.Expr) -> ir.Expr:
        mask = guards.less(i + j, arith.Const(8))
        return ir.Load(x, (i, j), mask=mask, other=ir.Lit(0.0, f32))

    made = b.compute("P", (5, 6), value)
    kernel = b.finish([b.compute("Z", (5, 6), lambda i, j: made[i, j] + 1.0)])
    error = refusal(sch := Schedule(kernel), "pad", sch.block("P"), 16, 1)
    check_step(error, "pad(P, 16, 1)", "X", "guarded", hint="reindex")


@pytest.mark.parametrize("multiples", [(1, 8, 1), (4, 8, 1)])
def test_padded_columns_are_zero_where_the_operand_ends(multiples):
    """Masks on its loads, so that vectors of it stay vectors; no guard on the sums."""
    sch = Schedule(kernel := matmul(7, 20, 5))
    sch.pad(sch.block("Y"), *multiples, beyond="zero")
    loads = [x for x in visit.loads(sch.at_block(sch.block("Y"))) if x.buffer.name == "B"]
    assert loads and all(x.mask is not None for x in loads)
    assert not any(isinstance(e, arith.Min) for e in indices(sch.kernel, "B"))
    i, j, k = sch.loops(sch.block("Y"))
    _, lanes = sch.split(j, None, 8, tail="none")
    sch.reorder(k, i, lanes)
    sch.vectorize(lanes)
    assert_everywhere(kernel, sch)


def test_pad_refuses_to_sum_zeros_beyond_an_input():
    error = refusal(sch := Schedule(matmul()), "pad", sch.block("Y"), 1, 8, 4, beyond="zero")
    check_step(error, 'pad(Y, 1, 8, 4, beyond="zero")', "A", hint="cache_read(…, 'A')")


def test_pad_refuses_to_read_anything_else_beyond_a_buffer():
    sch = Schedule(matmul())
    error = refusal(sch, "pad", sch.block("Y"), 1, 8, 1, beyond="first")
    check_step(error, 'pad(Y, 1, 8, 1, beyond="first")', "'first'", hint=("last", "zero"))


def test_a_packed_operand_has_room_for_whole_panels():
    b = Build("packed")
    x, w = b.param("X", f32, (5, 7)), b.param("W", f32, (3, 7, 4))
    y = b.reduce("Y", (5, 10), (7,), "add", lambda i, j, k: x[i, k] * w[j // 4, k, j % 4])
    kernel = b.finish([b.compute("Z", (5, 10), lambda i, j: y[i, j])])
    sch = Schedule(kernel)
    sch.pad(sch.block("Y"), 1, 4, 1)
    assert not any(isinstance(e, arith.Min) for e in indices(sch.kernel, "W"))
    assert_everywhere(kernel, sch)


def indices(kernel: ir.Kernel, name: str) -> list[arith.Expr]:
    loads = [x for x in visit.loads(kernel.body) if x.buffer.name == name]
    return [e for x in loads for i in x.indices for e in arith.walk(i)]


def test_pad_refuses_to_sum_beyond_an_input():
    error = refusal(sch := Schedule(matmul()), "pad", sch.block("Y"), 1, 1, 4)
    check_step(error, "pad(Y, 1, 1, 4)", "A", hint="cache_read(…, 'A')")


def test_pad_refuses_an_output_of_the_kernel():
    error = refusal(sch := Schedule(matmul()), "pad", sch.block("Z"), 4, 1)
    check_step(error, "pad(Z, 4, 1)", "Z")


def test_pad_refuses_sums_of_axes():
    error = refusal(sch := Schedule(conv1d(9)), "pad", sch.block("acc"), 1, 4)
    check_step(error, "pad(acc, 1, 4)", "padded", "vi_2 + vk", "vk", hint="reindex")


def test_pad_refuses_loops_that_are_split():
    sch = Schedule(matmul())
    sch.cache_read(sch.block("Y"), "A")
    sch.split(sch.loops(sch.block("Y"))[1], None, 4)
    error = refusal(sch, "pad", sch.block("Y"), 4, 1, 1)
    check_step(error, "pad(Y, 4, 1, 1)", "Y", hint="pad")


def test_pad_refuses_blocks_of_blocks():
    sch = Schedule(elementwise(3, 4))
    made = sch.blockize(sch.loops(sch.block("S"))[1])
    error = refusal(sch, "pad", made, 2)
    check_step(error, f"pad({made.name}, 2)", made.name, "for", hint="pad")


@pytest.mark.parametrize(
    ("multiples", "step", "why"),
    [((4,), "pad(Y, 4)", ("vi", "vi_2", "vk")), ((4, 1, 0), "pad(Y, 4, 1, 0)", (1,))],
)
def test_pad_refuses_multiples(multiples, step, why):
    sch = Schedule(matmul())
    check_step(refusal(sch, "pad", sch.block("Y"), *multiples), step, *why, hint=1)


# storage_align


@pytest.mark.parametrize(("factor", "offset", "row"), [(32, 8, 40), (8, 0, 24), (4, 1, 21)])
def test_rows_have_the_requested_stride(factor, offset, row):
    kernel = elementwise(6, 20)
    sch = Schedule(kernel)
    sch.storage_align("S", 0, factor, offset)
    assert shape(sch, "S") == ["6", str(row)]
    assert_everywhere(kernel, sch)


def test_a_stride_of_several_dimensions():
    b = Build("cube")
    x = b.param("X", f32, (2, 3, 4))
    s = b.compute("S", (2, 3, 4), lambda i, j, k: x[i, j, k] * 2.0)
    kernel = b.finish([b.compute("Z", (2, 3, 4), lambda i, j, k: s[i, j, k] + 1.0)])
    sch = Schedule(kernel)
    sch.storage_align("S", 0, 16, 4)
    assert shape(sch, "S") == ["2", "5", "4"]
    error = refusal(sch, "storage_align", "S", 0, 16, 5)
    check_step(error, "storage_align('S', 0, 16, 5)", 1)
    assert_everywhere(kernel, sch)


@pytest.mark.parametrize("size", [1, 9])
def test_a_symbolic_stride(size):
    kernel = elementwise(3, n, [ir.Size("n")])
    sch = Schedule(kernel)
    sch.storage_align("S", 0, 8, 1)
    assert_everywhere(kernel, sch, {"n": size})


def test_the_stride_survives_shrinking_to_a_tile():
    kernel = matmul(16, 8, 20)
    sch = Schedule(kernel)
    a = sch.cache_read(sch.block("Y"), "A", "thread")
    outer, _ = sch.split(sch.loops(sch.block("Y"))[0], None, 4)
    sch.compute_at(a, outer)
    sch.storage_align("A_thread", 0, 16, 3)
    legal = assert_everywhere(kernel, sch).split[0].kernels[0]
    held = [s.buffer for s in visit.walk_stmts(legal.body) if isinstance(s, ir.Alloc)]
    assert [arith.as_int(b.shape[0]) for b in held if b.name == "A_thread"] == [4 * 35]


@pytest.mark.parametrize(
    ("args", "step", "why"),
    [
        (("Y", 1, 8), "storage_align('Y', 1, 8, 0)", (1, 2)),
        (("Y", 0, 8, 8), "storage_align('Y', 0, 8, 8)", (0, 8)),
        (("A", 0, 8), "storage_align('A', 0, 8, 0)", ("A",)),
    ],
)
def test_storage_align_refuses(args, step, why):
    check_step(refusal(Schedule(matmul()), "storage_align", *args), step, *why)


def test_integers_are_padded_with_zeros_too():
    b = Build("count")
    x = b.param("X", dtypes.i64, (5,))
    acc = b.reduce("acc", (1,), (5,), "add", lambda i, k: x[k])
    kernel = b.finish([b.compute("Z", (1,), lambda i: acc[i])])
    sch = Schedule(kernel)
    sch.cache_read(sch.block("acc"), "X")
    sch.pad(sch.block("acc"), 1, 4)
    assert_everywhere(kernel, sch)
