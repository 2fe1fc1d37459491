"""A planned program → one C99 file. Called by backends/c.py.

In: Program. Out: `Source`, in three parts, because the constants in the middle are either arrays in
the file or places in memory that the caller gives (c_weights.py). `ingot_run` executes the
statements in order on one thread, so barriers print nothing. c_head.py has the interface.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import assert_never

from ingot.arith import expr as arith
from ingot.codegen.c_head import Layout, head
from ingot.codegen.c_helpers import COPY, Helpers
from ingot.codegen.c_kernel import needs_scratch, print_kernel
from ingot.codegen.c_support import AT, FAIL, GROW, RESERVE, checked
from ingot.codegen.c_text import Lines, bare, index_literal, string, unprintable
from ingot.codegen.c_values import ValuePrinter
from ingot.codegen.c_weights import Constant
from ingot.loops.frame import reasons
from ingot.program import ir
from ingot.program.bounds import unproved
from ingot.program.tables import CONSTANTS, scratch_bytes, walk
from ingot.support.abi import BAD_SIZE, NO_MEMORY
from ingot.support.errors import IngotError
from ingot.support.stack import segmented


@dataclass(frozen=True)
class Source:
    """A C file: `head`, the definition of the constants, `body`."""

    head: str
    constants: list[Constant]
    body: str


def print_program(program: ir.Program, stack_limit_bytes: int) -> Source:
    helpers, layout = Helpers(), Layout(program)
    names = {name: f"k{i}" for i, (name, _) in enumerate(program.kernels)}
    kernels = [
        print_kernel(kernel, names[name], helpers, stack_limit_bytes)
        for name, kernel in program.kernels
    ]
    entry = _Entry(layout, helpers, names, stack_limit_bytes)
    run, size = entry.run(), entry.arena_bytes()
    top = head(layout, entry.total_bytes) + "\n#ifndef INGOT_DECLARATIONS_ONLY\n\n"
    body = "\n".join([helpers.text(), *kernels, size, run, "#endif\n"])
    return Source(top, entry.constants(), body)


class _Index(ValuePrinter):
    """Sizes are read from the caller's table; with `is_checked`, an overflow sets a flag."""

    is_checked = False

    @segmented
    def index(self, e: arith.Expr) -> str:
        if self.is_checked and isinstance(e, arith.Add | arith.Sub | arith.Mul):
            name, text = checked(e.symbol)
            self.helpers.add(name, text)
            return f"{name}({self.index(e.a)}, {self.index(e.b)}, &overflow)"
        return super().index(e)


class _Entry:
    def __init__(
        self, layout: Layout, helpers: Helpers, names: dict[str, str], stack_limit_bytes: int
    ):
        self.layout, self.program, self.names = layout, layout.program, names
        self.helpers, self.stack_limit_bytes = helpers, stack_limit_bytes
        self.buffers, self.kernels = self.program.buffer_map, self.program.kernel_map
        self.numbers = {id(s): n for n, s in enumerate(layout.tables.launches)}
        self.total_bytes = layout.arena_bytes + self.scratch_bytes()
        self.unproved = unproved(self.program)
        self.values, self.out = _Index(helpers), Lines()
        self.latest, self.origin = 0, ""  # of the launch last printed
        self.loops = 0
        self.constant_names = {
            b.name: f"c{i}" for i, b in enumerate(b for b in self.program.buffers if b.constant)
        }
        self.name_sizes("call->sizes")

    def define_offsets(self) -> None:
        """The offsets of a dynamic memory plan, as variables; not every function uses all."""
        for name, expr in self.program.offsets:
            self.out.add(f"const int64_t {name} = {bare(self.values.index(expr))};")
            self.out.add(f"(void){name};")
            self.values.variables[name] = name

    def name_sizes(self, table: str) -> None:
        for number, symbol in enumerate(self.program.symbols):
            self.values.variables[symbol.name] = f"{table}[{number}]"

    def scratch_bytes(self) -> arith.Expr:
        """A data-dependent size counts with its upper bound."""
        need = scratch_bytes(self.program, self.stack_limit_bytes)
        computed = {s.name: s for s in self.program.symbols if s.source == "node"}
        bounds = {}
        for name in sorted(arith.free_vars(need) & computed.keys()):
            if (high := computed[name].high) is None:
                what = f"a kernel's scratch size depends on {name}"
                why = "this data-dependent size has no upper bound"
                raise IngotError("limit", what, where=self.program.name, why=why)
            bounds[name] = arith.Const(high)
        return arith.substitute(need, bounds)

    def constants(self) -> list[Constant]:
        found = []
        for name, c_name in self.constant_names.items():
            b = self.buffers[name]
            assert b.allocation is not None, f"constant {name} was not planned"
            offset = arith.evaluate(b.allocation.offset, {})
            count = arith.evaluate(arith.product(list(b.shape)), {})
            found.append(Constant(c_name, b.dtype.stored.name, offset, count))
        return found

    # --- functions ----------------------------------------------------------------------------

    def arena_bytes(self) -> str:
        self.out = Lines()
        self.name_sizes("sizes")
        self.out.add("int64_t ingot_arena_bytes(const int64_t *sizes)")
        with self.out.block():
            self.out.add("bool overflow = false;")
            self.values.is_checked = True
            self.define_offsets()
            self.values.is_checked = False
            self.checked_size(self.total_bytes, self.layout.arena_offsets)
            self.out.add("(void)sizes;")
            self.out.add("return overflow ? -1 : bytes;")
        return self.out.text()

    def run(self) -> str:
        self.out.add("int32_t ingot_run(struct ingot_call *call)")
        with self.out.block():
            self.define_offsets()
            if any(needs_scratch(k, self.stack_limit_bytes) for k in self.kernels.values()):
                place = self.at("call->arena", self.layout.arena_bytes)
                self.out.add(f"void *const scratch = {place};")
            self.stmt(self.program.body)
            for name, number in self.layout.buffers.items():
                if name not in self.layout.tables.slots:
                    self.out.add(f"call->buffers[{number}] = {self.pointer(name)};")
            self.out.add("(void)call;")
            self.out.add("return 0;")
        return self.out.text()

    # --- building blocks ----------------------------------------------------------------------

    def at(self, base: str, offset: arith.Expr) -> str:
        if arith.is_const(offset, 0):
            return base
        return f"{self.helpers.add('ingot_at', AT)}({base}, {bare(self.values.index(offset))})"

    def pointer(self, name: str) -> str:
        """An expression of type void *, or the name of a constant."""
        buffer = self.buffers[name]
        if name in self.layout.tables.slots:
            return f"call->buffers[{self.layout.buffers[name]}]"
        if name in self.layout.tables.dynamics:
            return f"call->blocks[{self.layout.blocks[name]}].data"
        assert buffer.allocation is not None, f"buffer {name} was not planned"
        arena, offset = buffer.allocation.arena, buffer.allocation.offset
        if arena == CONSTANTS:
            return self.constant_names[name]
        if arena in self.layout.blocks:
            return self.at(f"call->blocks[{self.layout.blocks[arena]}].data", offset)
        return self.at("call->arena", self.layout.arena_offsets[arena] + offset)

    def typed(self, name: str, type: str) -> str:
        return f"*(const {type} *){self.pointer(name)}"

    def checked_size(self, size: arith.Expr, arenas: Collection[str]) -> None:
        """Declares `bytes` of these arenas, and sets `overflow` if they are wrong, or if a bound of
        the memory plan that is not proved does not hold."""
        self.values.is_checked = True
        text = self.values.index(size)
        self.values.is_checked = False
        self.out.add(f"const int64_t bytes = {bare(text)};")
        for bound in self.unproved:
            allocation = self.buffers[bound.buffer].allocation
            if allocation is not None and allocation.arena in arenas:
                self.out.add(f"if ({self.values.index(bound.expr)} < 0) overflow = true;")

    def fail_if(self, cond: str, reason: int, value: str, why: str) -> None:
        name = self.helpers.add("ingot_fail", FAIL)
        args = f"{self.latest}, {reason}, {value}, {string(self.origin)}, {string(why)}"
        self.out.add(f"if ({cond})")
        self.out.add(f"    return {name}(&call->error, {args});")

    # --- statements ---------------------------------------------------------------------------

    @segmented
    def stmt(self, s: ir.Stmt) -> None:
        match s:
            case ir.Seq(stmts=stmts):
                for each in stmts:
                    self.stmt(each)
            case ir.Launch():
                self.launch(s)
            case ir.Barrier():
                pass  # one thread
            case ir.Copy(dst=dst, src=src):
                self.copy(self.pointer(dst), self.pointer(src), self.buffers[dst].size_bytes)
            case ir.If(flag=flag, then=then, orelse=orelse):
                with self.out.block(f"if ({self.typed(flag, 'uint8_t')} != 0)"):
                    self.stmt(then)
                with self.out.block("else"):
                    self.stmt(orelse)
            case ir.IfSize(size=size, most=most, then=then, orelse=orelse):
                number = self.values.index(size)
                with self.out.block(f"if ({number} >= 1 && {number} <= {most})"):
                    self.stmt(then)
                with self.out.block("else"):
                    self.stmt(orelse)
            case ir.Loop():
                self.loop(s)
            case ir.Bind():
                self.bind(s)
            case ir.Reserve():
                self.reserve(s)
            case ir.Append():
                self.append(s)
            case ir.Assign():
                self.assign(s)
            case ir.Resize(buffer=buffer):
                with self.out.block():
                    self.resize(buffer, self.buffers[buffer].size_bytes, (buffer,))
            case ir.Swap(a=a, b=b):
                places = [f"call->blocks[{self.layout.blocks[name]}]" for name in (a, b)]
                with self.out.block():
                    self.out.add(f"const struct ingot_block held = {places[0]};")
                    self.out.add(f"{places[0]} = {places[1]};")
                    self.out.add(f"{places[1]} = held;")
            case ir.HostStep(name=name):
                what = f"the C printer has no host step {name!r}: it runs in Python"
                raise IngotError("codegen-failed", what, where=s.origin, hint='use target="cpu"')
            case ir.Par():
                raise unprintable(f"{type(s).__name__} statement", self.program.name)
            case _:
                assert_never(s)  # type: ignore[arg-type]

    def launch(self, s: ir.Launch) -> None:
        kernel, self.latest = self.kernels[s.kernel], self.numbers[id(s)]
        self.origin = s.origin or f"kernel {s.kernel}"
        args = [self.pointer(name) for name in s.args]
        args += [bare(self.values.index(size)) for size in s.sizes]
        args += ["scratch"] if needs_scratch(kernel, self.stack_limit_bytes) else []
        if not reasons(kernel):
            self.out.add(f"{self.names[s.kernel]}({', '.join(args)});")
            return
        call = f"{self.names[s.kernel]}({', '.join([*args, '&call->error'])})"
        with self.out.block(f"if ({call} != 0)"):
            self.out.add(f"call->error.launch = {self.latest};")
            self.out.add(f"call->error.where = {string(self.origin)};")
            self.out.add("return 1;")

    def copy(self, to: str, source: str, size: arith.Expr) -> None:
        name = self.helpers.add("ingot_copy", COPY)
        self.out.add(f"{name}({to}, {source}, {bare(self.values.index(size))});")

    def loop(self, s: ir.Loop) -> None:
        self.loops += 1
        trip = f"trip{self.loops}"
        for each in walk(s.body):
            if isinstance(each, ir.Append):
                self.out.add(f"call->blocks[{self.layout.blocks[each.dst]}].rows = 0;")
        more = [f"{trip} < {self.typed(s.trips, 'int64_t')}"] if s.trips is not None else []
        if s.keep_going is not None:
            more.append(f"{self.typed(s.keep_going, 'uint8_t')} != 0")
        with self.out.block(f"for (int64_t {trip} = 0;; {trip}++)"):
            self.out.add(f"const bool more = {' && '.join(more) or 'true'};")
            self.out.add(f"*(int64_t *){self.pointer(s.counter)} = {trip};")
            self.out.add("if (!more) break;")
            self.stmt(s.body)

    def bind(self, s: ir.Bind) -> None:
        self.latest, self.origin = self.numbers[id(s)], s.origin
        symbol = next(x for x in self.program.symbols if x.name == s.symbol)
        with self.out.block():
            source = f"((const int64_t *){self.pointer(s.buffer)})[{s.index}]"
            self.out.add(f"const int64_t size = {source};")
            bad = f"size < {index_literal(symbol.low)}"
            if symbol.high is not None:
                bad += f" || size > {index_literal(symbol.high)}"
            self.fail_if(bad, BAD_SIZE, "size", "the model computed an invalid size: {}")
            self.out.add(f"{self.values.variables[s.symbol]} = size;")

    def reserve(self, s: ir.Reserve) -> None:
        name = self.helpers.add("ingot_reserve", RESERVE)
        with self.out.block():
            self.out.add("bool overflow = false;")
            self.checked_size(s.size_bytes, (s.arena,))
            block = f"&call->blocks[{self.layout.blocks[s.arena]}]"
            bad = f"overflow || !{name}(call, {block}, bytes)"
            self.fail_if(bad, NO_MEMORY, "0", "out of memory")

    def append(self, s: ir.Append) -> None:
        self.helpers.add("ingot_reserve", RESERVE)
        name, copy = self.helpers.add("ingot_grow", GROW), self.helpers.add("ingot_copy", COPY)
        row = bare(self.values.index(self.buffers[s.src].size_bytes))
        with self.out.block():
            block = f"&call->blocks[{self.layout.blocks[s.dst]}]"
            self.out.add(f"struct ingot_block *const rows = {block};")
            self.out.add(f"const int64_t row = {row};")
            bad = f"!{name}(call, rows, row)"
            self.fail_if(bad, NO_MEMORY, "0", "out of memory")
            end = "(unsigned char *)rows->data + rows->rows * row"
            self.out.add(f"{copy}({end}, {self.pointer(s.src)}, row);")
            self.out.add("rows->rows++;")

    def assign(self, s: ir.Assign) -> None:
        size = self.buffers[s.src].size_bytes
        with self.out.block():
            self.resize(s.dst, size, (s.dst, s.src))
            self.copy(self.pointer(s.dst), self.pointer(s.src), size)

    def resize(self, dst: str, size: arith.Expr, names: Collection[str]) -> None:
        """Room for so many bytes in a block of its own; inside a block of C."""
        name = self.helpers.add("ingot_reserve", RESERVE)
        self.out.add("bool overflow = false;")
        self.checked_size(size, names)
        bad = f"overflow || !{name}(call, &call->blocks[{self.layout.blocks[dst]}], bytes)"
        self.fail_if(bad, NO_MEMORY, "0", "out of memory")
