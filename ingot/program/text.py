"""The text form of programs: printer and parser. The text is Python syntax (read by `ast`, never
executed): a header of declarations, the kernels as functions, then the statements.

    program("mlp", inputs=("x",), outputs=("y",), names=("y",))
    symbol("batch", low=1, high=512)
    buffer("x", f32, (batch, 64), "input")
    buffer("h", f32, (batch, 32), "temp", allocation=("main", 0))
    @ingot.kernel
    def matmul(...): ...
    run("matmul", ("x", "w", "h"), (batch,), batch)
    barrier()

`parse(show(p)) == p`. Errors carry the line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import assert_never

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.parse import read as read_index
from ingot.graph.ir import Bundle, ConstRef, Growth
from ingot.graph.types import Symbol
from ingot.loops.script_parse import parse as parse_kernel
from ingot.loops.script_print import show as show_kernel
from ingot.program import ir
from ingot.support.errors import IngotError
from ingot.support.text import Writer

DECLARATIONS = (
    "program", "symbol", "growth", "bundle", "arena", "offset", "buffer", "kernel",
)  # fmt: skip


def show(program: ir.Program) -> str:
    w = Writer()
    for line in _header(program):
        w.line(line)
    for name, kernel in program.kernels:
        w.line(f"kernel({name!r})")
        for line in show_kernel(kernel).rstrip().splitlines():
            w.line(line)
    _show_stmt(w, program.body)
    return str(w)


def _header(program: ir.Program) -> list[str]:
    state = f", state={program.state!r}" if program.state else ""
    state += ", planned=True" if program.is_planned else ""
    names = (
        f"inputs={program.inputs!r}, outputs={program.outputs!r}, names={program.output_names!r}"
    )
    lines = [f"program({program.name!r}, {names}{state})"]
    for s in program.symbols:
        lines.append(
            f"symbol({s.name!r}, low={s.low}, high={s.high}, divisor={s.divisor}, "
            f"source={s.source!r}{'' if s.likely is None else f', likely={s.likely}'})"
        )
    if (g := program.growth) is not None:
        lines.append(f"growth({g.rows!r}, {arith.show(g.added)}, axes={g.axes!r})")
    lines += [f"bundle({b.name!r}, {b.kinds!r}, {b.values!r})" for b in program.bundles]
    for a in program.arenas:
        lines.append(f"arena({a.name!r}, {arith.show(a.size_bytes)}, space={a.space!r})")
    lines += [f"offset({name!r}, {arith.show(e)})" for name, e in program.offsets]
    lines += [_show_buffer(b) for b in program.buffers]
    return lines


def _show_buffer(b: ir.Buffer) -> str:
    extra = ""
    if b.constant is not None:
        extra += f", constant=({b.constant.digest!r}, {b.constant.dtype!r}, {b.constant.shape!r})"
    if b.allocation is not None:
        extra += f", allocation=({b.allocation.arena!r}, {arith.show(b.allocation.offset)})"
    if b.space != "host":
        extra += f", space={b.space!r}"
    return f"buffer({b.name!r}, {b.dtype}, {_tuple(b.shape)}, {b.storage.value!r}{extra})"


def _tuple(items: Sequence[arith.Expr]) -> str:
    inner = ", ".join(arith.show(i) for i in items)
    return f"({inner},)" if len(items) == 1 else f"({inner})"


def _show_stmt(w: Writer, s: ir.Stmt) -> None:
    match s:
        case ir.Seq(stmts=stmts):
            for each in stmts:
                if isinstance(each, ir.Seq):  # only a hand-written program nests them
                    _show_body(w, "with sequence():", each)
                else:
                    _show_stmt(w, each)
        case ir.Launch():
            sizes, extent = _tuple(s.sizes), arith.show(s.extent)
            chunks = "" if arith.is_const(s.chunks, 1) else f", {arith.show(s.chunks)}"
            w.line(f"run({s.kernel!r}, {s.args!r}, {sizes}, {extent}{chunks}){_comment(s.origin)}")
        case ir.Barrier():
            w.line("barrier()")
        case ir.Copy(dst=dst, src=src):
            w.line(f"copy({dst!r}, {src!r})")
        case ir.If(flag=flag, then=then, orelse=orelse):
            _show_body(w, f"if flag({flag!r}):", then)
            _show_body(w, "else:", orelse)
        case ir.IfSize(size=size, most=most, then=then, orelse=orelse):
            _show_body(w, f"if 1 <= size({arith.show(size)}) <= {most}:", then)
            _show_body(w, "else:", orelse)
        case ir.Loop(counter=counter, trips=trips, keep_going=keep, body=body, count=count):
            known = "" if count is None else f", {arith.show(count)}"
            _show_body(w, f"with loop({counter!r}, {trips!r}, {keep!r}{known}):", body)
        case ir.Bind(symbol=symbol, buffer=buffer, index=index):
            w.line(f"bind({symbol!r}, {buffer!r}, {index}){_comment(s.origin)}")
        case ir.Reserve(arena=arena, size_bytes=size):
            w.line(f"reserve({arena!r}, {arith.show(size)})")
        case ir.Append(dst=dst, src=src):
            w.line(f"append({dst!r}, {src!r})")
        case ir.Assign(dst=dst, src=src):
            w.line(f"assign({dst!r}, {src!r})")
        case ir.Resize(buffer=buffer):
            w.line(f"resize({buffer!r})")
        case ir.Swap(a=a, b=b):
            w.line(f"swap({a!r}, {b!r})")
        case ir.HostStep(name=name, args=args, results=results):
            more = {"attrs": dict(s.attrs), "keeps": s.keeps, "takes": s.takes, "sizes": s.sizes}
            extra = "".join(f", {key}={value!r}" for key, value in more.items() if value)
            w.line(f"host({name!r}, {args!r}, {results!r}{extra}){_comment(s.origin)}")
        case ir.Par(branches=branches, weights=weights):
            w.line("with par():")
            with w.indent():
                for weight, branch in zip(weights, branches):
                    _show_body(w, f"with branch({weight}):", branch)
        case _:
            assert_never(s)  # type: ignore[arg-type]


def _comment(origin: str) -> str:
    """The origin as a comment at the end of the line; `parse` reads it back."""
    return f"  # {' '.join(origin.split())}" if origin else ""


def _show_body(w: Writer, head: str, body: ir.Stmt) -> None:
    w.line(head)
    with w.indent():
        if isinstance(body, ir.Seq) and not body.stmts:
            w.line("pass")
        else:
            _show_stmt(w, body)


# --- parsing ------------------------------------------------------------------------------------


def parse(text: str) -> ir.Program:
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise _bad(error.lineno or 0, error.msg) from error
    except (RecursionError, MemoryError) as error:
        raise _bad(0, f"an expression is too deep for Python's parser ({error})") from error
    return _Parser(text).program(tree)


def _bad(line: int, why: str) -> IngotError:
    return IngotError(
        "bad-text", "the program's text cannot be read", where=f"line {line}", why=why
    )


@contextmanager
def _reading(node: ast.AST, line: int) -> Iterator[None]:
    """Turn any error in the operands of a call into a bad-text error with its line."""
    try:
        yield
    except IngotError as error:
        if error.where:
            raise
        raise _bad(line, error.what) from error
    except (IndexError, KeyError, TypeError, ValueError) as error:
        head = ast.unparse(node).split("\n")[0]
        raise _bad(line, f"operands are missing or wrong in {head} ({error})") from error


class _Parser:
    def __init__(self, text: str):
        self.lines = text.split("\n")
        self.symbols: list[Symbol] = []
        self.arenas: list[ir.Arena] = []
        self.buffers: list[ir.Buffer] = []
        self.offsets: list[tuple[str, arith.Expr]] = []
        self.kernels: list = []
        self.head: dict = {}
        self.kernel_name = ""
        self.growth: Growth | None = None
        self.bundles: list[Bundle] = []

    def program(self, tree: ast.Module) -> ir.Program:
        stmts = [s for node in tree.body if (s := self.top(node)) is not None]
        if not self.head:
            raise _bad(1, "there is no program(...) line")
        return ir.Program(
            self.head["name"],
            tuple(self.symbols),
            tuple(self.buffers),
            tuple(self.kernels),
            self.sequence(stmts),
            self.head["inputs"],
            self.head["outputs"],
            self.head["names"],
            self.head.get("state", ()),
            tuple(self.arenas),
            self.head.get("planned", False),
            self.growth,
            tuple(self.offsets),
            tuple(self.bundles),
        )

    def sequence(self, stmts: list[ir.Stmt]) -> ir.Stmt:
        return stmts[0] if len(stmts) == 1 else ir.Seq(tuple(stmts))

    def top(self, node: ast.stmt) -> ir.Stmt | None:
        if isinstance(node, ast.FunctionDef):
            first = min([d.lineno for d in node.decorator_list], default=node.lineno)
            blank = [""] * (first - 1)  # so that errors count lines from the program's first
            source = "\n".join([*blank, *self.lines[first - 1 : node.end_lineno]])
            self.kernels.append((self.kernel_name or node.name, parse_kernel(source)))
            return None
        word, call = self.call(node)
        if word in DECLARATIONS:
            assert call is not None
            with _reading(node, node.lineno):
                self.declare(word, call)
            return None
        return self.stmt(node)

    def call(self, node: ast.stmt) -> tuple[str, ast.Call | None]:
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            return value.func.id, value
        return "", None

    def declare(self, word: str, call: ast.Call) -> None:
        named = {k.arg: k.value for k in call.keywords}
        match word:
            case "program":
                self.head = {"name": self.data(call.args[0])}
                self.head.update({str(k): self.data(v) for k, v in named.items()})
                missing = [k for k in ("inputs", "outputs", "names") if k not in self.head]
                if missing:
                    raise _bad(call.lineno, f"program(...) lacks {', '.join(missing)}")
            case "symbol":
                fields = {str(k): self.data(v) for k, v in named.items()}
                self.symbols.append(Symbol(self.data(call.args[0]), **fields))
            case "growth":
                rows, added = self.data(call.args[0]), self.index(call.args[1])
                self.growth = Growth(rows, added, self.data(named["axes"]))
            case "bundle":
                self.bundles.append(Bundle(*map(self.data, call.args)))
            case "arena":
                name, size = self.data(call.args[0]), self.index(call.args[1])
                self.arenas.append(ir.Arena(name, size, self.data(named["space"])))
            case "offset":
                self.offsets.append((self.data(call.args[0]), self.index(call.args[1])))
            case "buffer":
                self.buffers.append(self.buffer(call.args, named))
            case "kernel":
                self.kernel_name = self.data(call.args[0])

    def buffer(self, args: list[ast.expr], named: dict) -> ir.Buffer:
        name, dtype, shape, storage = args
        constant = allocation = None
        if "constant" in named:
            constant = ConstRef(*self.data(named["constant"]))
        if "allocation" in named:
            arena, offset = self.items(named["allocation"])
            allocation = ir.Allocation(self.data(arena), self.index(offset))
        space = self.data(named["space"]) if "space" in named else "host"
        kind = ir.Storage(self.data(storage))
        element = dtypes.TABLE.get(ast.unparse(dtype))
        if element is None:
            raise _bad(dtype.lineno, f"{ast.unparse(dtype)} is not an element type")
        dims = tuple(self.index(d) for d in self.items(shape))
        return ir.Buffer(self.data(name), element, dims, kind, constant, allocation, space)

    def items(self, node: ast.expr) -> list[ast.expr]:
        if not isinstance(node, ast.Tuple):
            raise _bad(node.lineno, "a tuple is expected")
        return node.elts

    def data(self, node: ast.expr):
        try:
            return ast.literal_eval(node)
        except ValueError as error:
            raise _bad(node.lineno, f"{ast.unparse(node)} is not a constant") from error

    def comment(self, node: ast.stmt) -> str:
        """The comment after a statement: its origin."""
        line = self.lines[(node.end_lineno or node.lineno) - 1].encode()
        rest = line[node.end_col_offset or 0 :].decode().strip()
        return rest.removeprefix("#").strip() if rest.startswith("#") else ""

    def index(self, node: ast.expr) -> arith.Expr:
        return read_index(node)

    def body(self, nodes: list[ast.stmt]) -> ir.Stmt:
        if len(nodes) == 1 and isinstance(nodes[0], ast.Pass):
            return ir.Seq(())
        return self.sequence([self.stmt(n) for n in nodes])

    def stmt(self, node: ast.stmt) -> ir.Stmt:
        with _reading(node, node.lineno):
            return self.read_stmt(node)

    def read_stmt(self, node: ast.stmt) -> ir.Stmt:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Call):
            flag = self.data(node.test.args[0])
            return ir.If(flag, self.body(node.body), self.body(node.orelse))
        if isinstance(node, ast.If) and isinstance(node.test, ast.Compare):
            size, most = node.test.comparators
            if not isinstance(size, ast.Call) or ast.unparse(node.test.left) != "1":
                raise _bad(node.lineno, "`if 1 <= size(…) <= number:` is expected")
            branches = self.body(node.body), self.body(node.orelse)
            return ir.IfSize(self.index(size.args[0]), self.data(most), *branches)
        if isinstance(node, ast.With):
            return self.scope(node)
        word, call = self.call(node)
        if call is None:
            raise _bad(node.lineno, f"{ast.unparse(node)!r} is not a statement of the program IR")
        a = call.args
        match word:
            case "run":
                sizes = tuple(self.index(e) for e in self.items(a[2]))
                extent, origin = self.index(a[3]), self.comment(node)
                chunks = self.index(a[4]) if len(a) > 4 else arith.Const(1)
                return ir.Launch(self.data(a[0]), self.data(a[1]), sizes, extent, chunks, origin)
            case "barrier":
                return ir.Barrier()
            case "copy":
                return ir.Copy(self.data(a[0]), self.data(a[1]))
            case "bind":
                symbol, buffer, index = map(self.data, a)
                return ir.Bind(symbol, buffer, index, self.comment(node))
            case "reserve":
                return ir.Reserve(self.data(a[0]), self.index(a[1]))
            case "append":
                return ir.Append(self.data(a[0]), self.data(a[1]))
            case "assign":
                return ir.Assign(self.data(a[0]), self.data(a[1]))
            case "resize":
                return ir.Resize(self.data(a[0]))
            case "swap":
                return ir.Swap(self.data(a[0]), self.data(a[1]))
            case "host":
                more = {str(k.arg): self.data(k.value) for k in call.keywords}
                more["attrs"] = tuple(more.get("attrs", {}).items())
                return ir.HostStep(*map(self.data, a), **more | {"origin": self.comment(node)})
        raise _bad(node.lineno, f"{word!r} is not a statement of the program IR")

    def scope(self, node: ast.With) -> ir.Stmt:
        call = node.items[0].context_expr
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise _bad(node.lineno, "loop(...), par() or sequence() is expected after `with`")
        match call.func.id:
            case "loop":
                counter, trips, keep = (self.data(x) for x in call.args[:3])
                count = self.index(call.args[3]) if len(call.args) > 3 else None
                return ir.Loop(counter, trips, keep, self.body(node.body), count)
            case "sequence":
                inner = self.body(node.body)
                return inner if isinstance(inner, ir.Seq) else ir.Seq((inner,))
            case "par":
                return self.par(node.body)
        raise _bad(node.lineno, f"{call.func.id!r} is not a scope of the program IR")

    def par(self, nodes: list[ast.stmt]) -> ir.Par:
        branches, weights = [], []
        for node in nodes:
            call = node.items[0].context_expr if isinstance(node, ast.With) else None
            if not isinstance(node, ast.With) or not isinstance(call, ast.Call):
                raise _bad(node.lineno, "`with branch(weight):` is expected")
            weights.append(self.data(call.args[0]))
            branches.append(self.body(node.body))
        return ir.Par(tuple(branches), tuple(weights))
