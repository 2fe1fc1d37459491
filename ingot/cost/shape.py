"""What the decisions need to know of a contraction block: sizes and roles of its axes, operands.

schedule/decide/analysis.py reads it off a block; the files of this package decide from it. Axes are
numbered by their position in the block. A size is None where it is dynamic.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.cost import contraction as cost
from ingot.cost.dot_products import DotRow
from ingot.dtypes import DType

PARALLEL_WORK = 16 << 10  # elements; with fewer, waking threads costs more than it saves; heuristic
Strides = tuple[tuple[tuple[int, int], ...], ...]  # for each index of a load: (axis, stride) pairs


@dataclass(frozen=True)
class Given:
    """What graph passes have decided for a kernel, from the types and attributes of its group."""

    panels: tuple[tuple[str, int], ...] = ()  # parameters that are packed, with their panel width
    k_blocks: tuple[tuple[str, int], ...] = ()  # those packed for dot products, with their k-block
    tile_block: tuple[int, ...] | None = (
        None  # Winograd tiles of a block: rows, columns; or a count
    )
    is_sequence: bool = False  # rows are the steps of one sequence: there may be few
    max_rows: int | None = None  # the plan is a variant for at most so many rows


@dataclass(frozen=True)
class Operand:
    """The operand that vectors are loaded from."""

    source: str  # "param", "copy" (a nest of the kernel copies parameters into it), "other"
    panel: int | None = None  # width of its panels, if it is packed
    size: int | None = None  # elements
    may_pack: bool = False
    dense_columns: int | None = None  # of rows that are adjacent along k: a sequence of panels


@dataclass(frozen=True)
class Window:
    """The sliding operand of a depthwise convolution."""

    loads: tuple[Strides, ...]  # of all operands
    sliding: Strides | None  # of the one that moves with rows and lanes; None unless it is alone
    is_padded_copy: bool  # an element-wise nest of the kernel makes it
    down: tuple[int, ...]  # axes of the last loop outside the tile
    widens: bool = False  # the copy converts bytes to the type that is computed with


@dataclass(frozen=True)
class Contraction:
    """A reduction with lanes along one spatial axis and rows along another."""

    dtype: DType
    extents: tuple[int | None, ...]  # of the block's axes
    likely: tuple[int | None, ...]  # the same, with the likely values of dynamic sizes
    lanes: int
    rows: int | None  # None: no axis reuses a loaded vector
    k: tuple[int, ...]  # the reduce axes, in the order of their loops
    separate_k: tuple[int, ...]  # those along which rows share no elements
    outer: tuple[int | None, ...]  # extents of the loops outside the tile, those over a batch first
    batch_loops: int  # how many are over a batch: they share no operand
    operand: Operand
    window: Window | None  # set where each row loads its own vectors, without operand reuse
    is_contiguous: bool  # vectors are loaded with stride 1; or strided loads are worth it
    is_grouped: bool  # an operand depends on the group of a grouped convolution only
    is_contraction: bool  # each element of some operand is used by many outputs
    is_gemm: bool  # two operands, indexed by plain axes, B contiguous along the lanes
    is_float_sum: bool
    is_column_sum: bool = False  # one array reduced to one row
    max_rows: int | None = None  # it is planned for at most so many rows of a dynamic number
    dot: DotRow | None = None  # the instruction that the operand is packed for

    @property
    def row_count(self) -> int | None:
        """The rows, or how many are likely; None where nothing is known."""
        if self.max_rows is not None:
            return self.max_rows
        return 1 if self.rows is None else self.likely[self.rows]

    @property
    def assumed_rows(self) -> int:
        return cost.ASSUMED_EXTENT if self.row_count is None else self.row_count

    @property
    def columns(self) -> int | None:
        return self.extents[self.lanes]

    @property
    def k_order(self) -> tuple[int, ...]:
        """The reduce axes for a plan, which names them only where there are several."""
        return self.k if len(self.k) > 1 else ()

    @property
    def k_extents(self) -> list[int | None]:
        """Iterations of the loops of k: an instruction takes a group of terms."""
        return self.k_iterations(self.k)

    def k_iterations(self, axes: tuple[int, ...]) -> list[int | None]:
        """Iterations of those of the loops of k. With a dot product each takes `group` terms, whose
        bytes are those of one element of the sum."""
        sizes = {axis: self.extents[axis] for axis in axes}
        last = self.k[-1] if self.k else None
        if self.dot is not None and last in sizes and (size := sizes[last]) is not None:
            sizes[last] = -(-size // self.dot.group)
        return list(sizes.values())


def product(extents: list[int | None]) -> int | None:
    total = 1
    for n in extents:
        if n is None:
            return None
        total *= n
    return total
