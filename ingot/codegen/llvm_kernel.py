"""One legal kernel → LLVM IR text, statement by statement. Called by codegen/llvm.py.

The function is  i32 name(ptr buffers…, i64 sizes…, i64 low, i64 high, ptr scratch, ptr error):
it runs iterations low … high-1 of the kernel's parallel loop (0 … 0 for a kernel without one) and
returns 0. A Fail writes (reason number + 1, value, value) to `error` and returns 1.
"""

from __future__ import annotations

from typing import assert_never

from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, bounds_of
from ingot.codegen import llvm_sequences
from ingot.codegen.llvm_counters import LoopCounters
from ingot.codegen.llvm_memory import memory_suffix
from ingot.codegen.llvm_text import Function, memory_type, value_type, vector
from ingot.codegen.llvm_values import ValuePrinter
from ingot.dtypes import DType
from ingot.loops import ir, visit
from ingot.loops.emit import parse as parse_emit
from ingot.loops.frame import Scratch, reasons, scratch_layout
from ingot.support.errors import IngotError
from ingot.support.stack import segmented

CACHE_LINE = 64  # bytes; alignment of stack buffers


def print_kernel(kernel: ir.Kernel, symbol: str, stack_limit_bytes: int) -> str:
    """The text of an LLVM module that has this kernel alone, as `symbol`."""
    printer = _Printer(kernel, scratch_layout(kernel, stack_limit_bytes))
    return printer.module(symbol)


class _Printer:
    def __init__(self, kernel: ir.Kernel, scratch: Scratch):
        self.kernel, self.scratch = kernel, scratch
        self.fn = Function()
        self.metadata: list[str] = []
        self.values = ValuePrinter(self.fn)
        self.reasons = reasons(kernel)

    def module(self, symbol: str) -> str:
        writes = visit.written(self.kernel.body)
        params = []
        for n, buffer in enumerate(self.kernel.params):
            self.values.pointers[buffer.name] = f"%b{n}"
            params.append(f"ptr noalias {'' if buffer.name in writes else 'readonly '}%b{n}")
        for n, size in enumerate(self.kernel.sizes):
            self.values.variables[size.name] = f"%s{n}"
            self.values.ranges[size.name] = Interval(size.low, size.high)
            if size.high is None:  # else it is an offset in a base buffer, with few uses
                self.values.sizes.add(size.name)
            params.append(f"i64 %s{n}")
        params += ["i64 %low", "i64 %high", "ptr noalias %scratch", "ptr noalias %error"]
        self.stmt(self.kernel.body)
        self.fn.do("ret i32 0")
        head = f'define i32 @{symbol}({", ".join(params)}) nounwind "no-builtins"'
        return self.fn.text(head) + "\n".join([*self.fn.declares, *self.metadata]) + "\n"

    @segmented
    def stmt(self, s: ir.Stmt) -> None:
        match s:
            case ir.Seq(stmts=stmts):
                for each in stmts:
                    self.stmt(each)
            case ir.For():
                self.loop(s)
            case ir.While(cond=cond, body=body):
                self.while_loop(cond, body)
            case ir.If():
                self.if_else(s)
            case ir.Let(name=name, value=value, body=body):
                self.values.lets[name] = self.values.value(value)
                self.stmt(body)
            case ir.Alloc(buffer=buffer, body=body):
                self.values.pointers[buffer.name] = self.alloc(buffer)
                self.stmt(body)
            case ir.Store():
                self.store(s)
            case ir.Fail():
                self.fail(s)
            case ir.Call():
                self.call(s)
            case ir.Prefetch(box=box, writes=writes):
                address = self.values.pointer(box.buffer, box.offsets[0])
                hint = [("ptr", address), ("i32", str(int(writes))), ("i32", "3"), ("i32", "1")]
                self.fn.call("void", "llvm.prefetch.p0", hint)
            case ir.Sync() | ir.CopyAsync() | ir.Wait():
                kind = type(s).__name__
                raise IngotError(
                    "codegen-failed",
                    f"the CPU printer has no {kind} statement",
                    where=f"kernel {self.kernel.name}",
                    hint="legalize for a target without it, or choose another back end",
                )
            case ir.Block():
                raise IngotError("codegen-failed", f"block {s.name} was not lowered")
            case _:
                assert_never(s)  # type: ignore[arg-type]

    def loop(self, s: ir.For) -> None:
        fn, values = self.fn, self.values
        if s.kind is ir.LoopKind.PARALLEL:
            start, stop = "%low", "%high"
        else:
            start, stop = values.index(s.start), values.index(s.stop)
        before, head, body, done = fn.block, fn.label("head"), fn.label("body"), fn.label("done")
        var, step = fn.fresh(), fn.fresh()
        counters = LoopCounters(fn, s.var, start)
        fn.branch(head)
        fn.start(head)
        slot = len(fn.lines)
        fn.do("phi")  # filled in below, when the last block of the body is known
        counters.at_head()
        more = fn.op(f"icmp slt i64 {var}, {stop}")
        fn.branch_if(more, body, done)
        fn.start(body)
        self.bind_range(s)
        values.variables[s.var] = var
        with values.body_of(s.var, counters):
            self.stmt(s.body)
        fn.do(f"{step} = add nsw i64 {var}, 1")
        fn.lines[slot] = f"  {var} = phi i64 [{start}, %{before}], [{step}, %{fn.block}]"
        fn.branch(head)
        if count := dict(s.annotations).get(ir.K_UNROLL):
            fn.lines[-1] += f", !llvm.loop {self.unroll_metadata(count)}"
        fn.start(done)

    def unroll_metadata(self, count: object) -> str:
        """Loop metadata that makes LLVM unroll by `count`."""
        n = len(self.metadata)
        self.metadata.append(f"!{n} = distinct !{{!{n}, !{n + 1}}}")
        self.metadata.append(f'!{n + 1} = !{{!"llvm.loop.unroll.count", i32 {count}}}')
        return f"!{n}"

    def bind_range(self, s: ir.For) -> None:
        low = bounds_of(s.start, self.values.ranges).low
        high = bounds_of(s.stop, self.values.ranges).high
        self.values.ranges[s.var] = Interval(low, None if high is None else high - 1)

    def while_loop(self, cond: ir.Expr, body: ir.Stmt) -> None:
        fn = self.fn
        head, inside, done = fn.label("test"), fn.label("turn"), fn.label("done")
        fn.branch(head)
        fn.start(head)
        fn.branch_if(self.values.value(cond), inside, done)
        fn.start(inside)
        self.stmt(body)
        fn.branch(head)
        fn.start(done)

    def if_else(self, s: ir.If) -> None:
        fn = self.fn
        then, done = fn.label("then"), fn.label("done")
        otherwise = done if s.orelse is None else fn.label("else")
        fn.branch_if(self.values.value(s.cond), then, otherwise)
        fn.start(then)
        self.stmt(s.then)
        fn.branch(done)
        if s.orelse is not None:
            fn.start(otherwise)
            self.stmt(s.orelse)
            fn.branch(done)
        fn.start(done)

    def alloc(self, buffer: ir.Buffer) -> str:
        offset = self.scratch.offsets.get(buffer.name)
        if offset is None:
            count = arith.as_int(arith.product(list(buffer.shape)))
            assert count is not None, "scratch_layout puts buffers of unknown size in scratch"
            return self.fn.alloca(memory_type(buffer.dtype), max(1, count), CACHE_LINE)
        return self.fn.op(f"getelementptr i8, ptr %scratch, i64 {self.values.index(offset)}")

    def store(self, s: ir.Store) -> None:
        values, fn, dtype, lanes = self.values, self.fn, s.buffer.dtype, s.value.lanes
        if s.mask is not None and lanes == 1:
            self.if_else(ir.If(s.mask, ir.replace(s, mask=None)))
            return
        value = values.to_memory(values.value(s.value), dtype, lanes)
        type, align = vector(memory_type(dtype), lanes), dtype.storage_bytes
        if lanes == 1 or (arith.is_const(s.stride, 1) and s.mask is None):
            fn.do(
                f"store {type} {value}, ptr {values.pointer(s.buffer, s.indices[0])}, align {align}"
            )
        elif s.mask is None:
            self.strided_store(s, value)
        else:
            self.masked_store(s, value)

    def strided_store(self, s: ir.Store, value: str) -> None:
        fn, type, lanes = self.fn, memory_type(s.buffer.dtype), s.value.lanes
        pointers = self.values.lane_pointers(s.buffer, s.indices[0], s.stride, lanes)
        for lane, address in enumerate(pointers):
            item = fn.op(f"extractelement <{lanes} x {type}> {value}, i32 {lane}")
            fn.do(f"store {type} {item}, ptr {address}, align {s.buffer.dtype.storage_bytes}")

    def masked_store(self, s: ir.Store, value: str) -> None:
        fn, values, dtype, lanes = self.fn, self.values, s.buffer.dtype, s.value.lanes
        assert s.mask is not None
        mask, type = values.value(s.mask), vector(memory_type(dtype), lanes)
        if arith.is_const(s.stride, 1):
            name, where = f"llvm.masked.store.{memory_suffix(dtype, lanes)}.p0", "ptr"
            address = values.pointer(s.buffer, s.indices[0])
            if dtype.storage_bytes < (8 if dtype.is_int else 4):
                value = self._fenced(value, dtype, lanes)
        else:
            name = f"llvm.masked.scatter.{memory_suffix(dtype, lanes)}.v{lanes}p0"
            where = f"<{lanes} x ptr>"
            address = values.lane_addresses(s.buffer, s.indices[0], s.stride, lanes)
        fn.declares[f"declare void @{name}({type}, {where}, i32 immarg, <{lanes} x i1>)"] = None
        fn.do(
            f"call void @{name}({type} {value}, {where} {address}, i32 {dtype.storage_bytes}, "
            f"<{lanes} x i1> {mask})"
        )

    def _fenced(self, value: str, dtype: DType, lanes: int) -> str:
        """The value behind a fence, which is no instruction. LLVM 22 makes a truncation and a
        masked store of one known lane a store of that lane before the truncation (AVX-512): of an
        i32, over the three bytes that follow."""
        item, whole = memory_type(dtype), -(-lanes // 4) * 4  # lanes that fill floats
        wide, floats = vector(item, whole), whole * dtype.storage_bytes // 4
        if whole > lanes:
            value = self._resized(value, item, lanes, whole)
        moved = f"<{floats} x float>", self.fn.op(f"bitcast {wide} {value} to <{floats} x float>")
        fenced = self.fn.call(moved[0], f"llvm.arithmetic.fence.v{floats}f32", [moved])
        same = self.fn.op(f"bitcast {moved[0]} {fenced} to {wide}")
        return self._resized(same, item, whole, lanes) if whole > lanes else same

    def _resized(self, value: str, item: str, lanes: int, count: int) -> str:
        """The first lanes of a vector, or all and undefined ones."""
        old = vector(item, lanes)
        picks = ", ".join(f"i32 {n}" if n < lanes else "i32 poison" for n in range(count))
        return self.fn.op(f"shufflevector {old} {value}, {old} poison, <{count} x i32> <{picks}>")

    def call(self, s: ir.Call) -> None:
        """An intrinsic call, as the instruction's `emit` describes it, on whole flat buffers."""
        emit = parse_emit(s.instruction.emit)
        if emit is None:
            what = f"instruction {s.instruction.name} was not expanded"
            raise IngotError("codegen-failed", what, where=f"kernel {self.kernel.name}")
        args = dict(zip((p.name for p in s.instruction.meaning.params), s.args))
        operands = []
        for name, times in emit.operands:
            box = args[name]
            dtype, lanes = box.buffer.dtype, _count(box)
            loaded = self.values.value(ir.Load(box.buffer, box.offsets, lanes))
            repeated = self.values.repeat(loaded, dtype, lanes, times)
            type = value_type(dtype, lanes * times)
            if dtype is ir.dtypes.bf16:  # intrinsics take it as a float, all else as its bits
                bits, type = type, vector("bfloat", lanes * times)
                repeated = self.fn.op(f"bitcast {bits} {repeated} to {type}")
            operands.append((type, repeated))
        target = args[emit.result]
        dtype, lanes = target.buffer.dtype, _count(target)
        if emit.name.startswith(llvm_sequences.PREFIX):
            result = llvm_sequences.emit(self.fn, emit.name, operands)
        else:
            result = self.fn.call(value_type(dtype, lanes), emit.name, operands)
        if emit.adds:
            old = self.values.value(ir.Load(target.buffer, target.offsets, lanes))
            result = self.values.combine("add", old, result, dtype, lanes)
        address = self.values.pointer(target.buffer, target.offsets[0])
        type, align = vector(memory_type(dtype), lanes), dtype.storage_bytes
        self.fn.do(f"store {type} {result}, ptr {address}, align {align}")

    def fail(self, s: ir.Fail) -> None:
        fn = self.fn
        numbers = [str(self.reasons.index(s.reason) + 1)]
        for value in s.values[:2]:
            numbers.append(self.values.value(ir.Cast(value, ir.dtypes.i64)))
        for slot, number in enumerate(numbers):
            address = fn.op(f"getelementptr i64, ptr %error, i64 {slot}")
            fn.do(f"store i64 {number}, ptr {address}, align 8")
        fn.do("ret i32 1")
        fn.start(fn.label("dead"))


def _count(box: ir.Slice) -> int:
    count = arith.as_int(box.extents[0])
    assert count is not None and len(box.extents) == 1, "legalize makes boxes flat and whole"
    return count
