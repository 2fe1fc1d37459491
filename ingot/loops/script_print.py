"""Loop IR → Python source. In: a kernel, statement or expression. Out: text that `script_parse`
parses into an equal kernel. Called by dumps, error messages, `canonical.digest` and tests.

A call such as `max(a, b)` is always an operator, and a name that is not called is a variable, so a
buffer may be named `max`. Here are kernels and statements; script_print_values.py prints what is in
them. `docs/loops.md` shows each form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.ir import AxisKind, Expr, LoopKind, Stmt
from ingot.loops.script_print_values import (
    INFIX,
    ONE,
    annotation_texts,
    box_text,
    call_text,
    index,
    quoted,
    subscript_text,
    tuple_text,
    value,
)
from ingot.support.stack import segmented

AUGMENTED = ("add", "sub", "mul", "div")  # printed as `+=` … where a store updates its element
LOOPS = {
    LoopKind.SERIAL: "serial",
    LoopKind.PARALLEL: "parallel",
    LoopKind.VECTOR: "vectorized",
    LoopKind.UNROLL: "unrolled",
    LoopKind.BOUND: "bound",
}
AXES = {kind: kind.value for kind in AxisKind}


def show(n: ir.Kernel | Stmt | Expr | arith.Expr) -> str:
    """Python source for a kernel, a statement or an expression."""
    match n:
        case ir.Kernel():
            printer = _Printer()
            printer.kernel(n)
            return "\n".join(printer.lines) + "\n"
        case Stmt():
            printer = _Printer()
            printer.suite(n)
            return "\n".join(printer.lines)
        case Expr():
            return value(n)
        case arith.Expr():
            return index(n)
    raise TypeError(f"not part of the loop IR: {n!r}")


class _Printer:
    """Collects lines. `loops` maps each loop variable in scope to its stop, if it starts at 0."""

    def __init__(self, depth: int = 0) -> None:
        self.lines: list[str] = []
        self.depth = depth
        self.loops: dict[str, arith.Expr] = {}
        self.instructions: list[tuple[ir.Instruction, str]] = []

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def kernel(self, k: ir.Kernel) -> None:
        named = ir.is_name(k.name)
        options = [] if named else [f"name={quoted(k.name)}"]
        options += [f"origin={quoted(k.origin)}"] if k.origin else []
        options += [f"family={quoted(k.family)}"] if k.family else []
        if k.plans:
            plans = ", ".join(f"{quoted(block)}: {quoted(str(plan))}" for block, plan in k.plans)
            options.append(f"plans={{{plans}}}")
        if k.remarks:
            rows = (f"({', '.join(map(quoted, (r.block, r.about, r.why)))})" for r in k.remarks)
            options.append(f"remarks=[{', '.join(rows)}]")
        if len(", ".join(options)) <= 80:
            self.line("@ingot.kernel" + (f"({', '.join(options)})" if options else ""))
        else:
            self.line("@ingot.kernel(")
            for option in options:
                self.line(f"    {option},")
            self.line(")")
        self.function(k.name if named else "kernel", k)

    def function(self, name: str, k: ir.Kernel) -> None:
        params = [f"{size.name}: {_size(size)}" for size in k.sizes]
        params += [f"{buffer.name}: {_param(buffer)}" for buffer in k.params]
        text = f"def {name}({', '.join(params)}):"
        if len(text) + 4 * self.depth <= 100:
            self.line(text)
        else:
            self.line(f"def {name}(")
            for param in params:
                self.line(f"    {param},")
            self.line("):")
        self.depth += 1
        for instruction in _instructions(k.body):
            self.instruction(instruction)
        self.suite(k.body)
        self.depth -= 1

    def instruction(self, i: ir.Instruction) -> None:
        taken = {name for _, name in self.instructions}
        base = i.name if ir.is_name(i.name) else "instruction"
        name = base
        while name in taken:
            name += "_"
        self.instructions.append((i, name))
        options = [] if name == i.name else [f"name={quoted(i.name)}"]
        options += [f"emit={quoted(i.emit)}"] if i.emit else []
        self.line("@instruction" + (f"({', '.join(options)})" if options else ""))
        inner = _Printer(self.depth)
        inner.function(name, i.meaning)
        self.lines += inner.lines

    def indented(self, head: str, body: Stmt) -> None:
        self.line(head)
        self.depth += 1
        self.suite(body)
        self.depth -= 1

    def suite(self, s: Stmt) -> None:
        """A statement as an indented block; a trailing Let or Alloc is printed flat."""
        while True:
            items = s.stmts if isinstance(s, ir.Seq) and len(s.stmts) != 1 else (s,)
            if not items:
                self.line("pass")
                return
            for item in items[:-1]:
                self.stmt(item)
            last = items[-1]
            match last:
                case ir.Let():
                    self.line(f"{last.name} = {value(last.value)}")
                case ir.Alloc():
                    self.line(f"{last.buffer.name} = {_alloc(last.buffer)}")
                case _:
                    self.stmt(last)
                    return
            s = last.body

    @segmented
    def stmt(self, s: Stmt) -> None:
        match s:
            case ir.For():
                self.loop(s)
            case ir.While(cond=cond, body=body):
                self.indented(f"while {value(cond)}:", body)
            case ir.If():
                self.branch(s)
            case ir.Let(name=name, value=bound, body=body):
                self.indented(f"with let({value(bound)}) as {name}:", body)
            case ir.Alloc(buffer=buffer, body=body):
                self.indented(f"with {_alloc(buffer)} as {buffer.name}:", body)
            case ir.Store():
                self.line(_store(s))
            case ir.Block():
                self.block(s)
            case ir.Seq(stmts=()):
                self.line("pass")
            case ir.Seq(stmts=stmts):  # nested or of one statement: keep the structure
                self.line("with seq():")
                self.depth += 1
                for item in stmts:
                    self.stmt(item)
                self.depth -= 1
            case ir.Call(instruction=instruction, args=args):
                names = [name for known, name in self.instructions if known == instruction]
                name = names[0] if names else instruction.name
                self.line(call_text("call", name, *map(box_text, args)))
            case ir.Sync(scope=scope):
                self.line(call_text("sync", quoted(scope)))
            case ir.CopyAsync(dst=dst, src=src, token=token):
                self.line(call_text("copy_async", box_text(dst), box_text(src), quoted(token)))
            case ir.Wait(token=token):
                self.line(call_text("wait", quoted(token)))
            case ir.Prefetch(box=box, writes=writes):
                self.line(call_text("prefetch_write" if writes else "prefetch", box_text(box)))
            case ir.Fail(reason=reason, values=values):
                self.line(call_text("fail", quoted(reason), *map(value, values)))
            case _:
                assert_never(s)  # type: ignore[arg-type]

    def branch(self, s: ir.If) -> None:
        self.indented(f"if {value(s.cond)}:", s.then)
        while isinstance(s.orelse, ir.If):
            s = s.orelse
            self.indented(f"elif {value(s.cond)}:", s.then)
        if s.orelse is not None:
            self.indented("else:", s.orelse)

    def loop(self, s: ir.For) -> None:
        chain = _grid(s)
        if len(chain) > 1:
            names = ", ".join(f.var for f in chain)
            head = f"for {names} in grid({', '.join(index(f.stop) for f in chain)}):"
        else:
            head = f"for {s.var} in {_loop_range(s)}:"
        before = self.loops
        self.loops = before | {f.var: f.stop for f in chain if arith.is_const(f.start, 0)}
        self.indented(head, chain[-1].body)
        self.loops = before

    def block(self, s: ir.Block) -> None:
        options = [quoted(s.name), *self.axes(s.axes), *annotation_texts(s.annotations)]
        names = tuple_text(axis.var for axis in s.axes)
        self.line(f"with block({', '.join(options)}){f' as {names}' if s.axes else ''}:")
        self.depth += 1
        if s.where is not None:
            self.line(call_text("where", value(s.where)))
        if s.init is not None:
            self.indented("with init():", s.init)
        self.suite(s.body)
        self.depth -= 1

    def axes(self, axes: Sequence[ir.Axis]) -> list[str]:
        """`spatial=(i, j), reduce=(k,)`; `axes=(spatial(i), …)` where kinds alternate."""
        runs: list[tuple[AxisKind, list[ir.Axis]]] = []
        for axis in axes:
            if not runs or runs[-1][0] is not axis.kind:
                runs.append((axis.kind, []))
            runs[-1][1].append(axis)
        if len({kind for kind, _ in runs}) == len(runs):
            return [
                f"{AXES[kind]}={tuple_text(self.axis('axis', a, False) for a in group)}"
                for kind, group in runs
            ]
        return [f"axes={tuple_text(self.axis(AXES[a.kind], a, True) for a in axes)}"]

    def axis(self, word: str, axis: ir.Axis, always: bool) -> str:
        """The binding alone if the axis has the extent of the loop it is bound to."""
        implied = self.loops.get(axis.binding.name) if isinstance(axis.binding, arith.Var) else None
        if implied == axis.extent:
            return call_text(word, index(axis.binding)) if always else index(axis.binding)
        return call_text(word, index(axis.binding), index(axis.extent))


def _instructions(body: Stmt) -> list[ir.Instruction]:
    calls = [s.instruction for s in visit.walk_stmts(body) if isinstance(s, ir.Call)]
    return list(dict.fromkeys(calls))


def _grid(s: ir.For) -> list[ir.For]:
    """The loops that one `grid` can express: serial, from 0, with independent bounds."""
    chain, outer = [s], {s.var}
    while _is_plain(chain[0]) and isinstance(body := chain[-1].body, ir.For):
        if not _is_plain(body) or visit.index_vars(body.stop) & outer or body.var in outer:
            break
        chain.append(body)
        outer.add(body.var)
    return chain


def _is_plain(s: ir.For) -> bool:
    plain = s.kind is LoopKind.SERIAL and not s.tag and not s.annotations
    return plain and arith.is_const(s.start, 0)


def _loop_range(s: ir.For) -> str:
    start = [] if arith.is_const(s.start, 0) else [index(s.start)]
    tag = [quoted(s.tag)] if s.kind is LoopKind.BOUND else []
    more = [f"tag={quoted(s.tag)}"] if s.tag and s.kind is not LoopKind.BOUND else []
    return call_text(
        LOOPS[s.kind], *tag, *start, index(s.stop), *more, *annotation_texts(s.annotations)
    )


def _store(s: ir.Store) -> str:
    element = subscript_text(s.buffer, s.indices)
    more = [] if s.stride == ONE else [f"stride={index(s.stride)}"]
    more += [] if s.mask is None else [f"mask={value(s.mask)}"]
    if more:
        return call_text("store", element, value(s.value, s.buffer.dtype), *more)
    match s.value:
        case ir.Binary(op=op, a=ir.Load() as old, b=b) if op in AUGMENTED:
            if old == ir.Load(s.buffer, s.indices):
                return f"{element} {INFIX[op][0]}= {value(b, s.buffer.dtype)}"
    return f"{element} = {value(s.value, s.buffer.dtype)}"


def _type(buffer: ir.Buffer) -> str:
    return f"{buffer.dtype.name}[{', '.join(map(index, buffer.shape)) or '()'}]"


def _alloc(buffer: ir.Buffer) -> str:
    more = [] if buffer.scope == ir.GLOBAL else [quoted(buffer.scope)]
    return call_text("alloc", _type(buffer), *more)


def _param(buffer: ir.Buffer) -> str:
    if buffer.scope == ir.GLOBAL:
        return _type(buffer)
    return call_text("buffer", _type(buffer), quoted(buffer.scope))


def _size(size: ir.Size) -> str:
    if size == ir.Size(size.name):
        return "size"
    high = [] if size.high is None else [str(size.high)]
    divisor = [] if size.divisor == 1 else [f"divisor={size.divisor}"]
    likely = [] if size.likely is None else [f"likely={size.likely}"]
    return call_text("size", str(size.low), *high, *divisor, *likely)
