"""One legal kernel → a C99 function, statement by statement. Called by c_program.py.

The function is `static int32_t name(T *restrict buffers…, int64_t sizes…, void *scratch, struct
ingot_error *error)`; it has `scratch` and `error` where the kernel needs them, and runs all
iterations of the kernel's parallel loop. A Fail fills `error` and returns 1.
"""

from __future__ import annotations

import re
from typing import assert_never

from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, bounds_of
from ingot.codegen.c_helpers import Helpers
from ingot.codegen.c_text import (
    Lines,
    Names,
    bare,
    comment,
    memory_type,
    string,
    unprintable,
    value_type,
)
from ingot.codegen.c_values import ValuePrinter
from ingot.loops import ir, visit
from ingot.loops.frame import reasons, scratch_layout
from ingot.support.errors import IngotError
from ingot.support.stack import segmented

INITIALIZED = 16  # elements: smaller arrays start as zero, so that no compiler warns of garbage


def print_kernel(kernel: ir.Kernel, name: str, helpers: Helpers, stack_limit_bytes: int) -> str:
    """The definition of the kernel as function `name`."""
    return _Printer(kernel, helpers, stack_limit_bytes).function(name)


def needs_scratch(kernel: ir.Kernel, stack_limit_bytes: int) -> bool:
    return bool(scratch_layout(kernel, stack_limit_bytes).offsets)


class _Printer:
    def __init__(self, kernel: ir.Kernel, helpers: Helpers, stack_limit_bytes: int):
        self.kernel, self.scratch = kernel, scratch_layout(kernel, stack_limit_bytes)
        self.values = ValuePrinter(helpers, self.variable)
        self.names, self.variables = Names(), 0
        self.out = Lines()
        self.reasons = reasons(kernel)
        self.reads = visit.read(kernel.body)
        self.live = _live_lets(kernel.body)

    def function(self, name: str) -> str:
        params, origin = self.parameters(), comment(self.kernel.origin)
        self.out.depth = 1
        self.scope(self.kernel.body)
        self.out.add("return 0;")
        body = self.out.text()
        used = set(re.findall(r"\w+", body))
        unused = "".join(f"    (void){p};\n" for p in params if p not in used)
        head = f"/* {comment(self.kernel.name)}{': ' + origin if origin else ''} */\n"
        head += f"static int32_t {name}({', '.join(params.values()) or 'void'})\n"
        return f"{head}{{\n{unused}{body}}}\n"

    def parameters(self) -> dict[str, str]:
        """The declarations of the parameters, by name."""
        writes = visit.written(self.kernel.body)
        params = {}
        for buffer in self.kernel.params:
            name = self.values.pointers[buffer.name] = self.names[buffer.name]
            const = "" if buffer.name in writes else "const "
            params[name] = f"{const}{memory_type(buffer.dtype)} *restrict {name}"
        for size in self.kernel.sizes:
            name = self.values.variables[size.name] = self.names[size.name]
            self.values.ranges[size.name] = Interval(size.low, size.high)
            params[name] = f"int64_t {name}"
        if self.scratch.offsets:
            params["scratch"] = "void *scratch"
        if self.reasons:
            params["error"] = "struct ingot_error *error"
        return params

    # --- statements ---------------------------------------------------------------------------

    @segmented
    def scope(self, s: ir.Stmt) -> None:
        """The statements of a C block that has just begun: declarations are visible to the end."""
        while isinstance(s, ir.Let | ir.Alloc):
            self.declare(s)
            s = s.body
        self.stmt(s)

    def declare(self, s: ir.Let | ir.Alloc) -> None:
        if isinstance(s, ir.Alloc):
            self.alloc(s.buffer)
        elif s.name in self.live:
            value = self.values.value(s.value)
            name = self.values.lets[s.name] = self.names[s.name]
            self.out.add(f"const {value_type(s.value.dtype)} {name} = {bare(value)};")

    @segmented
    def stmt(self, s: ir.Stmt) -> None:
        match s:
            case ir.Seq(stmts=stmts):
                for each in stmts:
                    self.stmt(each)
            case ir.Let() | ir.Alloc():
                with self.out.block():
                    self.scope(s)
            case ir.For():
                self.loop(s)
            case ir.While(cond=cond, body=body):
                with self.values.in_place():
                    test = bare(self.values.value(cond))
                with self.out.block(f"while ({test})"):
                    self.scope(body)
            case ir.If():
                self.if_else(s)
            case ir.Store():
                self.store(s)
            case ir.Fail():
                self.fail(s)
            case ir.Prefetch():
                pass  # C99 has no prefetch, and results do not depend on it
            case ir.Sync() | ir.CopyAsync() | ir.Wait():
                raise unprintable(f"{type(s).__name__} statement", f"kernel {self.kernel.name}")
            case ir.Call():
                what = f"instruction {s.instruction.name} was not expanded"
                raise IngotError("codegen-failed", what, where=f"kernel {self.kernel.name}")
            case ir.Block():
                raise IngotError("codegen-failed", f"block {s.name} was not lowered")
            case _:
                assert_never(s)  # type: ignore[arg-type]

    def variable(self, type: str, text: str) -> str:
        """A new variable of that value, declared here."""
        self.variables += 1
        name = self.names[f"part {self.variables}"]
        self.out.add(f"const {type} {name} = {bare(text)};")
        return name

    def loop(self, s: ir.For) -> None:
        start, stop = self.values.index(s.start), self.values.index(s.stop)
        if arith.opaques(s.stop):  # the body may store where it was loaded
            stop = self.variable("int64_t", stop)
        low = bounds_of(s.start, self.values.ranges).low
        high = bounds_of(s.stop, self.values.ranges).high
        self.values.ranges[s.var] = Interval(low, None if high is None else high - 1)
        var = self.values.variables[s.var] = self.names[s.var]
        with self.out.block(f"for (int64_t {var} = {bare(start)}; {var} < {stop}; {var}++)"):
            self.scope(s.body)

    def if_else(self, s: ir.If) -> None:
        otherwise = s.orelse
        tail = "}" if otherwise is None else "} else {"
        with self.out.block(f"if ({bare(self.values.value(s.cond))})", tail):
            self.scope(s.then)
        if otherwise is not None:
            self.out.depth += 1
            self.scope(otherwise)
            self.out.depth -= 1
            self.out.add("}")

    def alloc(self, buffer: ir.Buffer) -> None:
        name = self.values.pointers[buffer.name] = self.names[buffer.name]
        type, offset = memory_type(buffer.dtype), self.scratch.offsets.get(buffer.name)
        if offset is None:
            count = arith.as_int(arith.product(list(buffer.shape)))
            assert count is not None, "scratch_layout puts buffers of unknown size in scratch"
            start = " = {0}" if count <= INITIALIZED else ""
            self.out.add(f"{type} {name}[{max(1, count)}]{start};")
        else:
            place = f"(void *)((unsigned char *)scratch + {self.values.index(offset)})"
            self.out.add(f"{type} *restrict {name} = {place};")
        if buffer.name not in self.reads:
            self.out.add(f"(void){name};")

    def store(self, s: ir.Store) -> None:
        if s.mask is not None:
            self.if_else(ir.If(s.mask, ir.replace(s, mask=None)))
            return
        place = f"{self.values.pointers[s.buffer.name]}[{bare(self.values.index(s.indices[0]))}]"
        self.out.add(f"{place} = {bare(self.values.value(s.value))};")

    def fail(self, s: ir.Fail) -> None:
        self.out.add(f"error->reason = {self.reasons.index(s.reason) + 1};")
        self.out.add(f"error->why = {string(s.reason)};")
        for number, value in enumerate(s.values[:2]):
            text = self.values.value(ir.Cast(value, ir.dtypes.i64))
            self.out.add(f"error->values[{number}] = {bare(text)};")
        self.out.add("return 1;")


def _live_lets(body: ir.Stmt) -> set[str]:
    """Lets whose values reach a statement: a compiler warns of any other variable."""
    refs_of: dict[str, set[str]] = {}
    todo: set[str] = set()
    for s in visit.walk_stmts(body):
        refs = {
            e.name for value in visit.own_exprs(s) for e in visit.walk_exprs(value)
            if isinstance(e, ir.Ref)
        }  # fmt: skip
        if isinstance(s, ir.Let):
            refs_of.setdefault(s.name, set()).update(refs)
        else:
            todo |= refs
    live: set[str] = set()
    while todo:
        live |= todo
        todo = {name for each in todo for name in refs_of[each]} - live
    return live
