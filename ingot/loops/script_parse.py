"""Python source → loop IR, the inverse of `script_print`. In: text of one function. Out: a Kernel.

The text is parsed by Python's `ast` and never executed. Nodes are built exactly as written: an
index `0 + i` stays an addition, so that `parse(show(k)) == k`. A syntax error is an
`IngotError("bad-text")` with its line and column; `verify` checks whether the kernel is legal.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ingot.arith import expr as arith
from ingot.cost.plan import parse_plan
from ingot.loops import ir
from ingot.loops.ir import AxisKind, LoopKind, Stmt
from ingot.loops.script_print import AXES, LOOPS
from ingot.loops.script_scope import Binding, Helper, Source, Variable
from ingot.loops.script_values import Values
from ingot.loops.script_words import plain_words
from ingot.support.errors import IngotError
from ingot.support.stack import segmented

_LOOP_KINDS = {word: kind for kind, word in LOOPS.items()} | {"range": LoopKind.SERIAL}
_AXIS_KINDS = {word: kind for kind, word in AXES.items()}
_AUGMENTED: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div",
}  # fmt: skip


def parse(text: str, constants: Mapping[str, Any] | None = None) -> ir.Kernel:
    """The kernel that `text` defines, without folding; `constants` are numbers and element types
    that it may use by name."""
    source = textwrap.dedent(text)
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        where = f"line {error.lineno}, column {error.offset}"
        raise IngotError("bad-text", f"not Python: {error.msg}", where=where) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise IngotError("bad-text", f"not Python: {error}", where="line 1, column 1") from None
    match tree.body:
        case [ast.FunctionDef() as function]:
            return _Parser(Source(tuple(source.splitlines())), constants or {}).kernel(function)
    raise IngotError(
        "bad-text", "the text is not one function definition", where="line 1, column 1"
    )


@dataclass(frozen=True)
class Script:
    """A kernel as the user wrote it, with the source position of each statement."""

    kernel: ir.Kernel
    source: Source
    nodes: Mapping[int, ast.stmt]  # by the id() of the statement, which the kernel keeps alive

    def node_of(self, s: Stmt | None) -> ast.stmt | None:
        return self.nodes.get(id(s))


def parse_script(
    function: ast.FunctionDef, source: Source, outside: Mapping[str, Any], options: dict[str, Any]
) -> Script:
    """A user's function: constants are folded, helpers inlined, and a name that is bound again is
    renamed, since names are unique within a kernel."""
    parser = _Parser(source, outside, folds=True)
    made = parser.kernel(function)
    named = _with_options(made, {key: value for key, value in options.items() if value})
    return Script(named, source, parser.nodes)


def _with_options(kernel: ir.Kernel, options: Mapping[str, Any]) -> ir.Kernel:
    """The kernel with the options of its decorator."""
    plans = tuple((block, parse_plan(text)) for block, text in options.get("plans", {}).items())
    remarks = tuple(ir.Remark(*row) for row in options.get("remarks", ()))
    plain = {key: options[key] for key in ("name", "origin", "family") if key in options}
    return ir.replace(kernel, plans=plans, remarks=remarks, **plain)


class _Parser(Values):
    """Statements; expressions and errors are in the base class."""

    def __init__(self, source: Source, outside: Mapping[str, Any], folds: bool = False):
        super().__init__(source, outside, folds)
        self.instructions: dict[str, ir.Instruction] = {}
        self.taken: set[str] = set()
        self.own: set[str] = set()  # names bound by the current suite
        self.nodes: dict[int, ast.stmt] = {}

    @contextmanager
    def scope(self, names: Mapping[str, Binding] | None = None):
        before = self.names, self.own
        self.names, self.own = before[0] | dict(names or {}), set(names or {})
        yield
        self.names, self.own = before

    def declare(self, node: ast.AST, name: str, may_hide: bool = False) -> str:
        """The kernel's name for a name that is bound here. A name of an enclosing suite cannot be
        rebound: after the suite Python would have the new value, the kernel the old one."""
        if not self.folds:
            return name
        if name in self.names and name not in self.own and not may_hide:
            hint = "choose another name; keep a value that changes in a buffer: alloc(f32[1])"
            self.fail(node, f"{name} is already bound outside this suite", hint)
        made, count = name, 1
        while made in self.taken:
            count += 1
            made = f"{name}_{count}"
        self.taken.add(made)
        return made

    def variables(self, node: ast.AST, names: list[str], stops: list) -> dict[str, Variable]:
        return {n: Variable(self.declare(node, n), stop) for n, stop in zip(names, stops)}

    # --- functions ---

    def kernel(self, f: ast.FunctionDef) -> ir.Kernel:
        # a script's decorator has already run, and the caller handles its options
        allowed = ("name", "origin", "family", "plans", "remarks")
        options = {} if self.folds else self.decorator(f, "kernel", allowed)
        self.no_more_arguments(f)
        sizes = tuple(self.size(a) for a in f.args.args if self.is_size(a))
        self.names = {size.name: Variable(size.name) for size in sizes}
        params = tuple(self.param(a) for a in f.args.args if not self.is_size(a))
        self.names |= {buffer.name: buffer for buffer in params}
        self.taken |= set(self.names)
        body = list(f.body)
        if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body = body[1:]  # a docstring
        while body and isinstance(body[0], ast.FunctionDef):
            self.nested(body.pop(0))  # type: ignore[arg-type]
        return _with_options(ir.Kernel(f.name, params, sizes, self.suite(body)), options)

    def no_more_arguments(self, f: ast.FunctionDef) -> None:
        a = f.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs or a.defaults:
            self.fail(f, "a kernel has plain parameters only: no defaults, *args or keyword-only")

    def nested(self, node: ast.FunctionDef) -> None:
        """A helper function, or an instruction if it has a decorator."""
        if node.decorator_list:
            self.instruction(node)
        else:
            self.declare(node, node.name)
            self.names[node.name] = Helper(node, self.env)

    def instruction(self, node: ast.FunctionDef) -> None:
        options = self.decorator(node, "instruction", ("name", "emit"))
        inner = _Parser(self.source, self.outside)
        inner_def = ast.FunctionDef(**{**dict(ast.iter_fields(node)), "decorator_list": []})
        meaning = inner.kernel(ast.copy_location(inner_def, node))
        made = ir.Instruction(options.get("name", node.name), meaning, options.get("emit", ""))
        self.instructions[node.name] = made

    def decorator(self, f: ast.FunctionDef, word: str, allowed: tuple[str, ...]) -> dict[str, Any]:
        options: dict[str, Any] = {}
        for node in f.decorator_list:
            call = node if isinstance(node, ast.Call) else None
            head = call.func if call else node
            found = head.attr if isinstance(head, ast.Attribute) else getattr(head, "id", None)
            if found != word or (call and call.args):
                self.fail(node, f"expected @{word}")
            for keyword in call.keywords if call else []:
                if keyword.arg not in allowed:
                    self.fail(node, f"@{word} has no option {keyword.arg}")
                options[keyword.arg] = self.option(keyword.arg, keyword.value)
        return options

    def option(self, name: str | None, node: ast.expr) -> Any:
        """A string; or a dict of plans by block; or a list of remarks."""
        match name, node:
            case "plans", ast.Dict(keys=keys, values=values):
                pairs = [(key, value) for key, value in zip(keys, values) if key is not None]
                return {self.string(key): self.string(value) for key, value in pairs}
            case "remarks", ast.List(elts=rows):
                return [self.remark(row) for row in rows]
        return self.string(node)

    def remark(self, node: ast.expr) -> tuple[str, ...]:
        match node:
            case ast.Tuple(elts=[_, _, _] as words):
                return tuple(self.string(word) for word in words)
        self.fail(node, "expected a remark: (block, about, why)")

    def is_size(self, a: ast.arg) -> bool:
        type_ = self.annotation(a)
        match type_:
            case ast.Name(id="size") | ast.Call(func=ast.Name(id="size")):
                return True
            case ast.Subscript(value=ast.Name(id="size")):
                return True
        return False

    def annotation(self, a: ast.arg) -> ast.expr | None:
        """The parameter's type; it may be a string, as any Python annotation."""
        match a.annotation:
            case ast.Constant(value=str() as text):
                try:
                    inside = ast.parse(text.strip(), mode="eval").body
                except SyntaxError as error:
                    self.fail(a.annotation, f"not Python: {error.msg}")
                for sub in ast.walk(inside):
                    ast.copy_location(sub, a.annotation)
                return plain_words(inside, self.outside)
        return a.annotation

    def size(self, a: ast.arg) -> ir.Size:
        type_ = self.annotation(a)
        if isinstance(type_, ast.Subscript):  # size[1, 512], which type checkers take
            type_ = ast.copy_location(ast.Call(type_.value, self.items(type_), []), type_)
        if not isinstance(type_, ast.Call):
            return ir.Size(a.arg)
        args, options = self.call(type_, "size", (0, 3), ("divisor", "likely"))
        if len(args) == 3:
            options = {"divisor": args.pop(), **options}
        low, high, *_ = [*map(self.integer, args), *(None,) * 2][:2]
        divisor = self.integer(options["divisor"]) if "divisor" in options else 1
        likely = self.integer(options["likely"]) if "likely" in options else None
        return ir.Size(a.arg, low or 0, high, divisor, likely)

    def param(self, a: ast.arg) -> ir.Buffer:
        type_ = self.annotation(a)
        if type_ is None:
            self.fail(a, f"parameter {a.arg} needs a type, such as f32[128, 64] or size")
        match type_:
            case ast.Subscript(value=ast.Name(id="buffer") as head):
                type_ = ast.copy_location(ast.Call(head, self.items(type_), []), type_)
        if isinstance(type_, ast.Call):
            args, _ = self.call(type_, "buffer", (2, 2))
            return self.buffer(a.arg, args[0], self.string(args[1]))
        return self.buffer(a.arg, type_, ir.GLOBAL)

    def buffer(self, name: str, node: ast.expr, scope: str) -> ir.Buffer:
        if not isinstance(node, ast.Subscript):
            self.fail(node, "expected an element type and a shape, such as f32[128, 64]")
        dims = tuple(self.index(d) for d in self.items(node))
        return ir.Buffer(name, self.dtype(node.value), dims, scope)

    # --- statements ---

    def suite(self, nodes: list[ast.stmt]) -> Stmt:
        """The statements of an indented block; those after a flat Let or Alloc are its body."""
        with self.scope():
            return self.flat(nodes)

    def flat(self, nodes: list[ast.stmt]) -> Stmt:
        groups: list[list[Stmt]] = [[]]
        wraps: list[Any] = []  # for each group but the first, the Let or Alloc around it
        for node in nodes:
            match node:
                case ast.Assign(targets=[ast.Name() as target], value=bound):
                    wraps.append(self.located(node, self.binder(target, bound)))
                    groups.append([])
                case _:
                    groups[-1].append(self.stmt(node))
        body = _seq(groups.pop())
        for wrap in reversed(wraps):
            body = _seq([*groups.pop(), wrap(body)])
        return body

    def located(self, node: ast.stmt, wrap: Callable[[Stmt], Stmt]) -> Callable[[Stmt], Stmt]:
        """`wrap`, recording the source node of the statement it makes."""

        def close(body: Stmt) -> Stmt:
            made = wrap(body)
            self.nodes[id(made)] = node
            return made

        return close

    def binder(self, target: ast.expr, node: ast.expr):
        """Bind a name; returns the function that makes the Let or Alloc around its body."""
        name = self.name(target)
        if isinstance(node, ast.Call) and self.head(node) == "alloc":
            args, _ = self.call(node, "alloc", (1, 2))
            scope = self.string(args[1]) if len(args) > 1 else ir.GLOBAL
            buffer = self.buffer(self.declare(target, name), args[0], scope)
            self.names[name] = buffer
            self.own.add(name)
            return lambda body: ir.Alloc(buffer, body)
        bound = self.value(node)
        made = self.declare(target, name)
        self.names[name] = ir.Ref(made, bound.dtype, bound.lanes)
        self.own.add(name)
        return lambda body: ir.Let(made, bound, body)

    @segmented
    def stmt(self, node: ast.stmt) -> Stmt:
        made = self.any_stmt(node)
        self.nodes[id(made)] = node
        return made

    def any_stmt(self, node: ast.stmt) -> Stmt:
        match node:
            case ast.For():
                return self.loop(node)
            case ast.While(test=test, body=body, orelse=[]):
                return ir.While(self.value(test), self.suite(body))
            case ast.If(test=test, body=body, orelse=orelse):
                other = self.suite(orelse) if orelse else None
                return ir.If(self.value(test), self.suite(body), other)
            case ast.With(items=[item], body=body):
                return self.with_stmt(item, body)
            case ast.Assign(targets=[ast.Subscript() as element], value=stored):
                buffer, indices = self.subscript(element)
                return ir.Store(buffer, indices, self.value(stored, buffer.dtype))
            case ast.AugAssign(target=ast.Subscript() as element, op=op, value=by):
                if type(op) not in _AUGMENTED:
                    self.fail(node, "only +=, -=, *= and /= update an element")
                buffer, indices = self.subscript(element)
                new = self.value(by, buffer.dtype)
                old = ir.Load(buffer, indices)
                return ir.Store(buffer, indices, ir.Binary(_AUGMENTED[type(op)], old, new))
            case ast.Expr(value=ast.Call() as call):
                return self.effect(call)
            case ast.Pass():
                return ir.Seq(())
        self.fail(node, "not a statement of the loop IR")

    def effect(self, node: ast.Call) -> Stmt:
        word = self.head(node)
        match word:
            case "store":
                return self.store(node)
            case "call":
                if not node.args or not isinstance(node.args[0], ast.Name):
                    self.fail(node, "the first argument of call(…) is an instruction's name")
                name = node.args[0].id
                if name not in self.instructions:
                    self.fail(node, f"there is no instruction {name} in this kernel")
                boxes = tuple(self.box(a) for a in node.args[1:])
                return ir.Call(self.instructions[name], boxes)
            case "sync":
                args, _ = self.call(node, word, (1, 1))
                return ir.Sync(self.string(args[0]))
            case "copy_async":
                args, _ = self.call(node, word, (3, 3))
                return ir.CopyAsync(self.box(args[0]), self.box(args[1]), self.string(args[2]))
            case "wait":
                args, _ = self.call(node, word, (1, 1))
                return ir.Wait(self.string(args[0]))
            case "prefetch" | "prefetch_write":
                args, _ = self.call(node, word, (1, 1))
                return ir.Prefetch(self.box(args[0]), writes=word == "prefetch_write")
            case "fail":
                args, _ = self.call(node, word, (1, 3))
                return ir.Fail(self.string(args[0]), tuple(self.value(a) for a in args[1:]))
        self.fail(node, f"{word}(…) is not a statement")

    def store(self, node: ast.Call) -> Stmt:
        args, options = self.call(node, "store", (2, 2), ("stride", "mask"))
        buffer, indices = self.subscript(args[0])
        stride = self.index(options["stride"]) if "stride" in options else arith.Const(1)
        mask = self.value(options["mask"]) if "mask" in options else None
        return ir.Store(buffer, indices, self.value(args[1], buffer.dtype), stride, mask)

    def loop(self, node: ast.For) -> Stmt:
        if node.orelse or not isinstance(node.iter, ast.Call):
            self.fail(node, "a loop is `for i in serial(n):`, parallel, vectorized, … or grid")
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        names = [self.name(t) for t in targets]
        word = self.head(node.iter)
        if word == "grid":
            args, _ = self.call(node.iter, word, (len(names), len(names)))
            stops = [self.index(a) for a in args]
            made = self.variables(node.target, names, stops)
            with self.scope(made):
                body = self.suite(node.body)
            for var, stop in reversed(list(zip(made.values(), stops))):
                body = ir.For(var.name, arith.Const(0), stop, body)
                self.nodes[id(body)] = node
            return body
        if word not in _LOOP_KINDS or len(names) != 1:
            self.fail(node.iter, f"{word}(…) is not a kind of loop for {len(names)} variables")
        return self.one_loop(node, names[0], _LOOP_KINDS[word], word, node.iter)

    def one_loop(
        self, node: ast.For, var: str, kind: LoopKind, word: str, call: ast.Call
    ) -> ir.For:
        bound = kind is LoopKind.BOUND
        args, options = self.call(call, word, (1 + bound, 2 + bound), ("tag", "annotations"))
        tag = self.string(args.pop(0)) if bound else ""
        tag = self.string(options["tag"]) if "tag" in options else tag
        stop = self.index(args[-1])
        start = self.index(args[0]) if len(args) == 2 else arith.Const(0)
        implied = stop if arith.is_const(start, 0) else None
        made = self.variables(node.target, [var], [implied])
        with self.scope(made):
            body = self.suite(node.body)
        return ir.For(made[var].name, start, stop, body, kind, tag, self.annotations(options))

    def with_stmt(self, item: ast.withitem, body: list[ast.stmt]) -> Stmt:
        node = item.context_expr
        word = self.head(node) if isinstance(node, ast.Call) else None
        match word:
            case "block":
                return self.block(node, item.optional_vars, body)  # type: ignore[arg-type]
            case "seq":
                return ir.Seq(tuple(self.stmt_or_suite(s) for s in body))
            case "alloc" | "let" if item.optional_vars is not None:
                bound = node.args[0] if word == "let" and node.args else node  # type: ignore
                with self.scope():
                    wrap = self.binder(item.optional_vars, bound)
                    return wrap(self.suite(body))
        self.fail(node, "expected `with block(…)`, `alloc(…) as`, `let(…) as` or `seq()`")

    def stmt_or_suite(self, node: ast.stmt) -> Stmt:
        match node:
            case ast.Assign(targets=[ast.Name()]):
                self.fail(
                    node, "inside seq() a name is bound by `with let(…) as` or `with alloc(…) as`"
                )
        return self.stmt(node)

    # --- blocks ---

    def block(self, node: ast.Call, target: ast.expr | None, body: list[ast.stmt]) -> ir.Block:
        words = ("axes", "annotations", *_AXIS_KINDS)
        args, options = self.call(node, "block", (1, 1), words)
        made = [pair for word, group in options.items() for pair in self.axes(word, group)]
        names = [] if target is None else [self.name(t) for t in self.elements(target)]
        if len(names) != len(made):
            self.fail(node, f"the block has {len(made)} axes but {len(names)} names")
        # an axis may have the name of the loop it is bound to: it has the same value
        variables = [self.declare(node, name, may_hide=True) for name in names]
        axes = tuple(ir.Axis(name, *rest) for name, rest in zip(variables, made))
        where = init = None
        rest = list(body)
        with self.scope({n: Variable(axis.var) for n, axis in zip(names, axes)}):
            if rest and (call := _effect(rest[0], "where")) is not None:
                where = self.value(self.call(call, "where", (1, 1))[0][0])
                rest.pop(0)
            if rest and (inner := _init(rest[0])) is not None:
                init = self.suite(inner)
                rest.pop(0)
            stmt = self.suite(rest)
        return ir.Block(self.string(args[0]), axes, stmt, init, where, self.annotations(options))

    def axes(self, word: str, node: ast.expr) -> list[tuple[AxisKind, arith.Expr, arith.Expr]]:
        if word == "annotations":
            return []
        if word != "axes":
            return [(_AXIS_KINDS[word], *self.axis(a, "axis")) for a in self.elements(node)]
        found = []
        for a in self.elements(node):
            kind = self.head(a) if isinstance(a, ast.Call) else ""
            if kind not in _AXIS_KINDS:
                self.fail(a, f"expected one of {', '.join(_AXIS_KINDS)}")
            found.append((_AXIS_KINDS[kind], *self.axis(a, kind)))
        return found

    def axis(self, node: ast.expr, word: str) -> tuple[arith.Expr, arith.Expr]:
        """(extent, binding); the extent of a bare loop variable is that of its loop."""
        extent = None
        if isinstance(node, ast.Call) and self.head(node) == word:
            args, _ = self.call(node, word, (1, 2))
            node = args[0]
            extent = self.index(args[1]) if len(args) == 2 else None
        binding = self.index(node)
        if extent is None and isinstance(binding, arith.Var):
            known = [v for v in self.names.values() if isinstance(v, Variable)]
            extent = next((v.stop for v in known if v.name == binding.name), None)
        if extent is None:
            self.fail(node, f"the extent is unknown here: write {word}({ast.unparse(node)}, n)")
        return extent, binding

    def annotations(self, options: Mapping[str, ast.expr]) -> ir.Annotations:
        node = options.get("annotations")
        if node is None:
            return ()
        if not isinstance(node, ast.Dict):
            self.fail(node, "annotations are a dict of names and values")
        pairs = []
        for key, item in zip(node.keys, node.values):
            if key is None:
                self.fail(node, "annotations are a dict of names and values")
            pairs.append((self.string(key), self.annotation_value(item)))
        return tuple(pairs)


def _seq(stmts: list[Stmt]) -> Stmt:
    return stmts[0] if len(stmts) == 1 else ir.Seq(tuple(stmts))


def _effect(node: ast.stmt, word: str) -> ast.Call | None:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name)) as call) if name == word:
            return call
    return None


def _init(node: ast.stmt) -> list[ast.stmt] | None:
    match node:
        case ast.With(items=[ast.withitem(context_expr=ast.Call(func=ast.Name(id="init")))]):
            return node.body
    return None
