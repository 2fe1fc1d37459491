"""Which element types an operator takes: its suite cases, compiled with each type in turn.

    python -m tests.conformance.element_types            compares with types.json
    python -m tests.conformance.element_types --update   writes it

In: the suite's single-node cases. Out: for each type parameter of the operator's schema that an
operand has, the types of the standard that compile, and those that do not: "Add T" → "f32 f64 | ".
A case is changed by the declared types of its inputs alone and compiled up to the loops of its
kernels, where every operator has checked its types. Called by hand; docs/operators.md shows it.
"""

from __future__ import annotations

import argparse
import functools
import sys
import warnings
from collections.abc import Collection, Iterator, Sequence

import onnx
from onnx import defs
from onnx.backend.test.loader import load_model_tests

from ingot import api, pipeline
from ingot.frontends.onnx.tensors import DTYPES
from tests.conformance import records

TRIES = 3  # cases of one operator that are tried for a type before it is called refused
P = onnx.TensorProto
# "float16" of a schema → FLOAT16 of a TensorProto


def _rank(code: int) -> tuple:
    if code not in DTYPES:
        return (9, code)
    dtype = DTYPES[code]
    return (dtype.is_int + 2 * dtype.is_float, not dtype.is_signed, dtype.bits, dtype.name)


CODES = {name.lower(): code for name, code in P.DataType.items() if code != P.UNDEFINED}
# bool, integers, floats, each by width; then what Ingot lacks
ORDER = sorted(CODES.values(), key=lambda c: _rank(c))


@functools.cache
def single_node_models() -> dict[str, list[onnx.ModelProto]]:
    """Operator → the models of its cases that have one node, as `records` names operators."""
    operators, found = records.read(records.OPERATORS), {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in load_model_tests(kind="node"):
            nodes = case.model.graph.node
            op = operators.get(case.name, "")
            if len(nodes) == 1 and nodes[0].op_type == op.rpartition(".")[2]:
                found.setdefault(op, []).append(case.model)
    return dict(sorted(found.items()))


def schema_of(model: onnx.ModelProto) -> defs.OpSchema:
    (node,) = model.graph.node
    versions = {entry.domain: entry.version for entry in model.opset_import}
    version = versions.get(node.domain, versions.get(node.domain or "ai.onnx", 1))
    return defs.get_schema(node.op_type, version, node.domain)


def parameters(model: onnx.ModelProto) -> dict[str, list[int]]:
    """Type parameter → the types that the standard allows; of tensors alone."""
    schema = schema_of(model)
    used = set(_operand_parameters(model, schema).values())
    return {
        rule.type_param_str: [CODES[t[7:-1]] for t in rule.allowed_type_strs if t[:7] == "tensor("]
        for rule in schema.type_constraints
        if rule.type_param_str in used
    }


def _operand_parameters(model: onnx.ModelProto, schema: defs.OpSchema) -> dict[str, str]:
    """Operand's name → its type parameter; the last one of a schema may be repeated."""
    formal = [f.type_str for f in schema.inputs]
    names = model.graph.node[0].input
    return {name: formal[min(i, len(formal) - 1)] for i, name in enumerate(names) if name}


def with_type(model: onnx.ModelProto, changed: Collection[str], code: int) -> onnx.ModelProto:
    """The model with another element type for every input of some type parameters."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    operands = _operand_parameters(model, schema_of(model))
    for info in made.graph.input:
        if operands.get(info.name) in changed and info.type.HasField("tensor_type"):
            info.type.tensor_type.elem_type = code
    for info in made.graph.output:  # inferred
        info.ClearField("type")
    return made


def takes(model: onnx.ModelProto, parameter: str, code: int) -> bool:
    """Does it compile with this type, for one parameter alone or for all that allow it? A query
    need not have the type of the keys, but an operator may want that they are equal."""
    allowed = parameters(model)
    every = [name for name, codes in allowed.items() if code in codes]
    return parameter in every and any(
        compiles(with_type(model, changed, code)) for changed in ([parameter], every)
    )


def compiles(model: onnx.ModelProto) -> bool:
    try:
        pipeline.run_stages(model, api.make_session(jobs=1), stop_after="lower")
    except Exception:  # of whatever kind: this type is not supported
        return False
    return True


def probe(models: Sequence[onnx.ModelProto]) -> Iterator[tuple[str, str]]:
    """Type parameter → "accepted | refused" types of one operator."""
    for parameter, codes in parameters(models[0]).items():
        taken = [c for c in codes if any(takes(m, parameter, c) for m in models[:TRIES])]
        refused = [c for c in codes if c not in taken]
        yield parameter, " | ".join(_names(some) for some in (taken, refused))


def _names(codes: Sequence[int]) -> str:
    return " ".join(type_name(code) for code in sorted(codes, key=ORDER.index))


def type_name(code: int) -> str:
    return DTYPES[code].name if code in DTYPES else P.DataType.Name(code).lower()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--match", default="", help="only operators whose name contains this")
    parser.add_argument("--update", action="store_true", help="write types.json")
    args = parser.parse_args()
    found = {
        f"{op} {parameter}": text
        for op, models in single_node_models().items()
        if args.match.lower() in op.lower()
        for parameter, text in probe(models)
    }
    known = records.read(records.TYPES)
    changed = {key: text for key, text in found.items() if known.get(key) != text}
    for key, text in changed.items():
        print(f"{key}: {text}")
    if args.update:
        records.merge(records.TYPES, found)
    return 1 if changed and not args.update else 0


if __name__ == "__main__":
    sys.exit(main())
