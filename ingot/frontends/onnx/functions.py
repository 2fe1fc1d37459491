"""Function bodies of the model and of the ONNX standard, and the list of unsupported operators.

In: a ModelProto. Out: the function body of a node, or None; one error with all missing operators.
Called by walker. A standard operator without a converter is replaced by the function body of its
schema. Some schemas build it from the node and the types of its operands; their operators are then
looked at when the body is walked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache

import onnx
from onnx import defs

from ingot.frontends.common.limits import check_count
from ingot.frontends.common.unsupported import UnsupportedOperators
from ingot.frontends.onnx import registry
from ingot.frontends.onnx.hooks import Hooks, how_to_hook
from ingot.frontends.onnx.loading import Source, opsets
from ingot.frontends.onnx.node_order import check_depth, graphs_of
from ingot.frontends.onnx.reading import Frame, attributes_of, bare_node, schema_of
from ingot.frontends.onnx.registry import Converter, OnnxNode
from ingot.graph.ir import ConstRef
from ingot.support.errors import IngotError

Function = onnx.FunctionProto
Types = Sequence[onnx.TypeProto]  # of operands; of an absent one without a kind
Key = tuple[str, str, str]  # domain, name, overload

SHOWN_NAMES = 5  # node names listed in an error for each missing operator
MAX_ATTEMPTS = 64  # walks over one model while backtracking over choices; heuristic


class Choices:
    """Yes-or-no decisions found by backtracking. Each is yes at first; after a failed walk the last
    yes is changed to no."""

    def __init__(self) -> None:
        self._decisions: dict[str, bool] = {}  # in the order of the first request
        self._attempts = 0

    def decide(self, question: str) -> bool:
        return self._decisions.setdefault(question, True)

    def backtrack(self) -> bool:
        """Change the last yes to no; False if there is none, or after MAX_ATTEMPTS."""
        self._attempts += 1
        while self._decisions and self._attempts < MAX_ATTEMPTS:
            question, decision = self._decisions.popitem()
            if decision:
                self._decisions[question] = False
                return True
        return False


class Library:
    """The model's own functions by name, and the state kept between attempts to import it."""

    def __init__(self, source: Source, hooks: Hooks | None = None):
        self.source = source
        self.hooks = hooks or Hooks({})
        self.choices = Choices()
        self.refs: dict[str, ConstRef] = {}  # initializers already in the store
        self.local: dict[Key, Function] = {}
        for function in source.model.functions:
            key = (_standard(function.domain), function.name, function.overload)
            if key in self.local:
                where = f"function {function.name!r}"
                raise IngotError("bad-model", "duplicate definition of the function", where=where)
            self.local[key] = function

    def local_body(self, proto: onnx.NodeProto) -> Function | None:
        return self.local.get((_standard(proto.domain), proto.op_type, proto.overload))

    def body(
        self,
        proto: onnx.NodeProto,
        node: OnnxNode,
        frame: Frame,
        types_of: Callable[[OnnxNode], Types],
    ) -> Function | None:
        """The function that a node calls: the model's own, or the standard's if there is no
        converter. A user's kernel takes precedence over both."""
        if self.hooks.lookup(node.domain, node.op) is not None:
            return None
        local = self.local_body(proto)
        if local is not None or registry.lookup(node.domain, node.op, node.opset) is not None:
            return local
        found = standard_body(node.domain, node.op, node.opset)
        return found or typed_body(with_attributes(proto, frame, node.where), node, types_of(node))

    def converter(self, node: OnnxNode) -> Converter | None:
        hooked = self.hooks.lookup(node.domain, node.op)
        return hooked or registry.lookup(node.domain, node.op, node.opset)

    def call_frame(self, function: Function, proto: onnx.NodeProto, frame: Frame) -> Frame:
        """The frame for reading a function's body, for one call."""
        node = bare_node(proto, 0, frame)
        check_depth(frame.depth + 1, node.where)
        given = attributes_of(proto, frame, node.where)
        defaults = {a.name: a for a in function.attribute_proto}
        schema = schema_of(node.domain, node.op, node.opset)
        if schema is not None:
            defaults |= {
                name: rule.default_value
                for name, rule in schema.attributes.items()
                if rule.default_value.name
            }
        versions = opsets(function.opset_import) or dict(frame.versions)
        return replace(frame, versions=versions, call=defaults | given, depth=frame.depth + 1)

    def check_all(self, graph: onnx.GraphProto, frame: Frame) -> None:
        """An error if operators are unsupported, listing all of them, or if there are too many
        nodes."""
        survey = _Survey(self)
        survey.nodes(graph.node, frame)
        if survey.missing:
            raise survey.error()


class _Survey:
    """Visits every node before the import. Counts include the nodes of inlined functions."""

    def __init__(self, library: Library):
        self.library = library
        self.missing: dict[tuple[str, str, int], list[str]] = {}
        self.counts: dict[Key, int] = {}
        self.active: set[Key] = set()  # functions being visited, to detect recursion

    def nodes(self, nodes: Iterable[onnx.NodeProto], frame: Frame) -> int:
        count = 0
        inside = replace(frame, depth=frame.depth + 1)
        for index, proto in enumerate(nodes):
            node = bare_node(proto, index, frame)
            count += self.node(proto, node, frame)
            for graph in graphs_of(proto):
                check_depth(inside.depth, node.where)
                count += self.nodes(graph.node, inside)
            check_count(count, node.where)
        return count

    def node(self, proto: onnx.NodeProto, node: OnnxNode, frame: Frame) -> int:
        if self.library.hooks.lookup(node.domain, node.op) is not None:
            return 1
        local = self.library.local_body(proto)
        if local is not None:
            return self.function(local, node, frame)
        if not is_importable(node.domain, node.op, node.opset):
            self.missing.setdefault((node.domain, node.op, node.opset), []).append(node.name)
        return 1

    def function(self, function: Function, node: OnnxNode, frame: Frame) -> int:
        key = (_standard(function.domain), function.name, function.overload)
        if key in self.active:
            what = f"function {function.name!r} is recursive"
            raise IngotError("bad-model", what, where=node.where)
        if key not in self.counts:
            check_depth(frame.depth + 1, node.where)
            self.active.add(key)
            versions = opsets(function.opset_import) or dict(frame.versions)
            inside = replace(frame, versions=versions, path=f"{function.name}/")
            self.counts[key] = self.nodes(function.node, replace(inside, depth=frame.depth + 1))
            self.active.remove(key)
        return self.counts[key]

    def error(self) -> UnsupportedOperators:
        rows = sorted(self.missing.items())
        total = len(rows)
        what = f"the model uses {total} operator{'s' * (total > 1)} that Ingot does not support"
        lines = [_row(domain, op, opset, names) for (domain, op, opset), names in rows]
        return UnsupportedOperators(
            {f"{domain or 'ai.onnx'}.{op}": names for (domain, op, _), names in rows},
            what,
            where=self.library.source.name,
            why="\n         ".join(lines),
            hint=how_to_hook(key[:2] for key in self.missing)
            + "\n         (docs/kernels.md); docs/add-an-op.md "
            "shows how to add an operator to Ingot",
        )


def _row(domain: str, op: str, opset: int, names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:SHOWN_NAMES])
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    count = f"{len(names)} node{'s' * (len(names) > 1)}"
    return f"{domain or 'ai.onnx'}.{op} (opset {opset}), {count}: {shown}{more}"


@cache
def is_importable(domain: str, op: str, opset: int) -> bool:
    """Whether an operator can be imported: by a converter, or by its importable function body."""
    if registry.lookup(domain, op, opset) is not None:
        return True
    schema = schema_of(domain, op, opset)
    return _is_built(schema) or standard_body(domain, op, opset) is not None


def _is_built(schema: defs.OpSchema | None) -> bool:
    """Does the schema build a function body from a node and its types?"""
    return schema is not None and schema.has_context_dependent_function  # type: ignore[attr-defined]


@cache
def standard_body(domain: str, op: str, opset: int) -> Function | None:
    """The function body in the operator's schema, if all its operators can be imported."""
    schema = schema_of(domain, op, opset)
    body = _context_free_body(schema) if schema is not None else None
    if body is None:
        return None
    versions = opsets(body.opset_import)
    inner = [(_standard(n.domain), n.op_type) for n in body.node]
    if (domain, op) in inner or any(True for n in body.node for _ in graphs_of(n)):
        return None
    return body if all(is_importable(d, o, versions.get(d, 1)) for d, o in inner) else None


def with_attributes(proto: onnx.NodeProto, frame: Frame, where: str) -> onnx.NodeProto:
    """A node with the values of attributes that refer to those of the function's call."""
    made = onnx.NodeProto()
    made.CopyFrom(proto)
    del made.attribute[:]
    for name, attribute in attributes_of(proto, frame, where).items():
        made.attribute.add().CopyFrom(attribute)
        made.attribute[-1].name = name
    return made


def typed_body(proto: onnx.NodeProto, node: OnnxNode, types: Types) -> Function:
    """The body that the operator's schema builds for this node, from the types of its operands."""
    schema = schema_of(node.domain, node.op, node.opset)
    if schema is None or not _is_built(schema):  # in a body that was built: check_all saw the rest
        what = f"the operator {node.op}, of which this one is made, is not supported"
        hint = how_to_hook([(node.domain, node.op)])
        raise IngotError("unsupported-op", what, where=node.where, hint=hint)
    make = schema.get_context_dependent_function  # type: ignore[attr-defined]
    made = make(proto.SerializeToString(), [type.SerializeToString() for type in types])
    body = Function.FromString(made)
    if not body.node:
        what = f"the standard defines no body of {node.op} for these operands"
        raise IngotError("unsupported-op", what, where=node.where)
    if "" not in {_standard(imported.domain) for imported in body.opset_import}:
        is_own = not node.domain  # a body of another domain is written in today's operators
        version = schema.since_version if is_own else defs.onnx_opset_version()
        body.opset_import.add(domain="", version=version)
    return body


def _context_free_body(schema: defs.OpSchema) -> Function | None:
    """The schema's function body, if it does not depend on the operands' types."""
    if not schema.has_function or schema.deprecated:  # type: ignore[attr-defined]
        return None
    body = schema.function_body
    if not body.opset_import:
        body.opset_import.add(domain="", version=schema.since_version)
    return body


def _standard(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
