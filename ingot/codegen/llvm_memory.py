"""Loads → LLVM instructions: plain, strided, gathered, masked, or under a branch.

Between llvm_indices.py and llvm_values.py. No load touches memory that its mask excludes.
"""

from __future__ import annotations

from functools import reduce

from ingot.arith import expr as arith
from ingot.codegen.llvm_indices import IndexPrinter
from ingot.codegen.llvm_text import intrinsic_suffix, memory_type, splat, value_type, vector
from ingot.dtypes import DType
from ingot.loops import ir, visit
from ingot.support.stack import segmented


class LoadPrinter(IndexPrinter):
    """Emits addresses and loads."""

    def pointer(self, buffer: ir.Buffer, index: arith.Expr) -> str:
        """The address as a chain of GEPs: the loop-invariant terms, the others, the constant.

        LLVM hoists the first GEP out of the innermost loop, reuses it, and folds the constant into
        addressing modes. Given one long sum it keeps partial sums in registers and spills.
        """
        address = self.pointers[buffer.name]
        for term in _split_by_loop(index, self.loops[-1:]):
            offset = self.index(term)
            kind = memory_type(buffer.dtype)
            address = self.fn.op(f"getelementptr {kind}, ptr {address}, i64 {offset}")
        return address

    def load(self, e: ir.Load) -> str:
        if e.mask is None:
            is_dense = e.width == 1 or arith.is_const(e.stride, 1)
            return self._plain_load(e) if is_dense else self._strided_load(e)
        uniform, rest = _split_mask(e.mask)
        if uniform is None:
            return self._masked_load(e)
        return self._guarded_load(
            ir.replace(e, mask=rest, other=rest and e.other), uniform, e.other
        )

    def _plain_load(self, e: ir.Load) -> str:
        type, align = vector(memory_type(e.dtype), e.width), e.dtype.storage_bytes
        address = self.pointer(e.buffer, e.indices[0])
        loaded = self.fn.op(f"load {type}, ptr {address}, align {align}")
        return self.from_memory(loaded, e.dtype, e.width)

    def _guarded_load(self, e: ir.Load, mask: ir.Expr, otherwise: ir.Expr | None) -> str:
        """A branch around the load, for a mask that is uniform over the lanes. A masked load of no
        lanes from an unmapped page would take 50 ns (measured)."""
        fn, type = self.fn, value_type(e.dtype, e.width)
        assert otherwise is not None
        holds, other = self.value(mask), self.value(otherwise)
        before, inside, after = fn.block, fn.label("guard"), fn.label("join")
        fn.branch_if(holds, inside, after)
        fn.start(inside)
        loaded = self.load(e)
        last = fn.block
        fn.branch(after)
        fn.start(after)
        return fn.op(f"phi {type} [{loaded}, %{last}], [{other}, %{before}]")

    def _masked_load(self, e: ir.Load) -> str:
        if not arith.is_const(e.stride, 1):
            return self._gather(e)
        fn, type = self.fn, vector(memory_type(e.dtype), e.width)
        address, align = self.pointer(e.buffer, e.indices[0]), e.dtype.storage_bytes
        assert e.mask is not None and e.other is not None
        mask, other = self.value(e.mask), self.to_memory(self.value(e.other), e.dtype, e.width)
        name = f"llvm.masked.load.{memory_suffix(e.dtype, e.width)}.p0"
        fn.declares[f"declare {type} @{name}(ptr, i32 immarg, <{e.width} x i1>, {type})"] = None
        loaded = fn.op(
            f"call {type} @{name}(ptr {address}, i32 {align}, <{e.width} x i1> {mask}, "
            f"{type} {other})"
        )
        return self.from_memory(loaded, e.dtype, e.width)

    def _strided_load(self, e: ir.Load) -> str:
        type, align = memory_type(e.dtype), e.dtype.storage_bytes
        items = []
        for address in self.lane_pointers(e.buffer, e.indices[0], e.stride, e.width):
            items.append(self.fn.op(f"load {type}, ptr {address}, align {align}"))
        return self.from_memory(self.lanes(items, type), e.dtype, e.width)

    def _gather(self, e: ir.Load) -> str:
        fn, type, width = self.fn, vector(memory_type(e.dtype), e.width), e.width
        assert e.mask is not None and e.other is not None
        mask, other = self.value(e.mask), self.to_memory(self.value(e.other), e.dtype, width)
        addresses = self.lane_addresses(e.buffer, e.indices[0], e.stride, width)
        name = f"llvm.masked.gather.{memory_suffix(e.dtype, width)}.v{width}p0"
        fn.declares[
            f"declare {type} @{name}(<{width} x ptr>, i32 immarg, <{width} x i1>, {type})"
        ] = None
        loaded = fn.op(
            f"call {type} @{name}(<{width} x ptr> {addresses}, i32 {e.dtype.storage_bytes}, "
            f"<{width} x i1> {mask}, {type} {other})"
        )
        return self.from_memory(loaded, e.dtype, width)

    def lanes(self, items: list[str], type: str) -> str:
        wide, total = vector(type, len(items)), "poison"
        for lane, item in enumerate(items):
            total = self.fn.op(f"insertelement {wide} {total}, {type} {item}, i32 {lane}")
        return total

    def lane_pointers(
        self, buffer: ir.Buffer, index: arith.Expr, stride: arith.Expr, width: int
    ) -> list[str]:
        first, step, type = (
            self.pointer(buffer, index),
            self.index(stride),
            memory_type(buffer.dtype),
        )
        found = [first]
        for lane in range(1, width):
            offset = self.fn.op(f"mul i64 {step}, {lane}")
            found.append(self.fn.op(f"getelementptr {type}, ptr {first}, i64 {offset}"))
        return found

    def lane_addresses(
        self, buffer: ir.Buffer, index: arith.Expr, stride: arith.Expr, width: int
    ) -> str:
        offsets = self.value(ir.Ramp(arith.Const(0), stride, width))
        first = self.pointer(buffer, index)
        return self.fn.op(
            f"getelementptr {memory_type(buffer.dtype)}, ptr {first}, <{width} x i64> {offsets}"
        )

    def from_memory(self, value: str, dtype: DType, lanes: int) -> str:
        if not dtype.is_bool:
            return value
        zero = splat("i8", "0", lanes)
        return self.fn.op(f"icmp ne {vector('i8', lanes)} {value}, {zero}")

    def to_memory(self, value: str, dtype: DType, lanes: int) -> str:
        if not dtype.is_bool:
            return value
        return self.fn.op(f"zext {vector('i1', lanes)} {value} to {vector('i8', lanes)}")


def memory_suffix(dtype: DType, lanes: int) -> str:
    return "v" + str(lanes) + ("i8" if dtype.is_bool else intrinsic_suffix(dtype, 1))


def _split_by_loop(index: arith.Expr, innermost: list[str]) -> list[arith.Expr]:
    """Up to three sums: terms without the innermost variable, terms with it, the constant."""
    groups: list[list[arith.Expr]] = [[], [], []]
    for term in _terms(index):
        is_inner = bool(arith.free_vars(term) & set(innermost)) or bool(arith.opaques(term))
        groups[2 if isinstance(term, arith.Const) else int(is_inner)].append(term)
    sums = [reduce(arith.add, group) for group in groups if group]
    return [e for e in sums if not arith.is_const(e, 0)]


@segmented
def _terms(e: arith.Expr) -> list[arith.Expr]:
    return _terms(e.a) + _terms(e.b) if isinstance(e, arith.Add) else [e]


def _split_mask(mask: ir.Expr) -> tuple[ir.Expr | None, ir.Expr | None]:
    """(conjuncts of a mask that are uniform over the lanes, the other conjuncts)"""
    conjuncts = visit.conjuncts(mask)
    uniform = (p.a if isinstance(p, ir.Broadcast) else p for p in conjuncts if _is_uniform(p))
    rest = (p for p in conjuncts if not _is_uniform(p))
    return visit.conjoin(uniform), visit.conjoin(rest)


def _is_uniform(e: ir.Expr) -> bool:
    return e.lanes == 1 or isinstance(e, ir.Broadcast)
