"""Every element type that ONNX's schemas allow, for every operator of one or two tensors of one
type: compiled, against ONNX Runtime where it has the type, else against the standard's reference.

The operators are read from the schemas, so a new one is tried as well. All nodes of a type are one
model. `EXPLAINED` has what is left out, with the reason.
"""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, defs, helper
from onnx.reference import ReferenceEvaluator

import ingot
from ingot.frontends.onnx.functions import is_importable
from ingot.frontends.onnx.walker import import_model
from ingot.graph.store import ConstantStore

onnxruntime.set_default_logger_severity(4)
OPSET = 23  # ONNX Runtime has no newer one
OPTIONAL = defs.OpSchema.FormalParameterOption.Optional
VARIADIC = defs.OpSchema.FormalParameterOption.Variadic
SHAPE = (3, 4)
EXPLAINED = {
    "Bernoulli": "random", "Multinomial": "random", "Dropout": "random while training",
    "RandomNormalLike": "random", "RandomUniformLike": "random",
    "NonZero": "the size of its result is data", "Unique": "the sizes of its results are data",
    "Size": "an integer of all types", "Shape": "integers of all types",
    "MeanVarianceNormalization": "its axes are those of four-dimensional tensors",
    "MatMul": "the sizes of two equal tensors do not fit", "Gemm": "as MatMul",
    "GlobalLpPool": "no counterpart has it", "GlobalMaxPool": "the reference gives a scalar",
}  # fmt: skip
# kinds of values that are no tensors of numbers
NO_NUMBERS = ("string", "complex", "seq", "optional", "map", "sparse", "float6")
TYPES = {f"tensor({name.lower()})": code for name, code in TensorProto.DataType.items()}
TOLERANCE = {"float16": 3e-3, "bfloat16": 3e-2}
QUICK = ("uint16",)


def latest() -> dict[str, defs.OpSchema]:
    found: dict[str, defs.OpSchema] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain or schema.since_version > OPSET:
            continue
        if schema.name not in found or found[schema.name].since_version < schema.since_version:
            found[schema.name] = schema
    return {name: schema for name, schema in sorted(found.items()) if not schema.deprecated}


def operands(schema: defs.OpSchema) -> int:
    """How many tensors of one type the operator takes, if it takes nothing else; else 0."""
    given = [i for i in schema.inputs if i.option != OPTIONAL]
    kinds = {i.type_str for i in given}
    has_required = any(a.required for a in schema.attributes.values())
    gives = allowed_by(schema, schema.outputs[0].type_str)
    if not 1 <= len(given) <= 2 or len(kinds) != 1 or has_required:
        return 0
    if not all(name.startswith("tensor(") for name in gives):
        return 0
    return 2 if given[0].option == VARIADIC else len(given)


def allowed_by(schema: defs.OpSchema, kind: str) -> list[str]:
    rows = {t.type_param_str: t.allowed_type_strs for t in schema.type_constraints}
    return rows.get(kind, [kind])


def allowed(schema: defs.OpSchema) -> list[str]:
    """The element types of the first operand."""
    names = allowed_by(schema, schema.inputs[0].type_str)
    return [n[7:-1] for n in names if n in TYPES and not any(word in n for word in NO_NUMBERS)]


Case = tuple[str, onnx.NodeProto, list[onnx.ValueInfoProto]]


def cases(name: str) -> list[Case]:
    """A node of each operator that allows the type."""
    found = []
    for op, schema in latest().items():
        count = operands(schema)
        if op in EXPLAINED or not count or name not in allowed(schema):
            continue
        if not is_importable("", op, OPSET):
            continue
        code = TYPES[f"tensor({name})"]
        infos = [helper.make_tensor_value_info(f"{op}{i}", code, SHAPE) for i in range(count)]
        node = helper.make_node(op, [i.name for i in infos], [f"{op}_y"], name=op)
        found.append((op, node, infos))
    return found


def model(nodes, infos) -> onnx.ModelProto:
    outputs = [onnx.ValueInfoProto(name=node.output[0]) for node in nodes]
    graph = helper.make_graph(nodes, "types", infos, outputs)
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def data(rng: np.random.Generator, dtype: np.dtype, is_second: bool) -> np.ndarray:
    """Values on which every operator is defined; the second operand has no zero."""
    if dtype == np.bool_:
        return rng.integers(0, 2, SHAPE).astype(dtype)
    if dtype.kind in "iu":
        low = 1 if is_second else -6 if dtype.kind == "i" else 0
        return rng.integers(low, 7, SHAPE).astype(dtype)
    return rng.uniform(0.1 if is_second else -0.9, 0.9, SHAPE).astype(dtype)


def expected(made: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    try:
        session = onnxruntime.InferenceSession(made.SerializeToString())
        return session.run(None, feeds)[0]
    except Exception:  # its errors have no common class; it lacks the type
        return np.asarray(ReferenceEvaluator(made).run(None, feeds)[0])


def all_types() -> list[str]:
    return sorted({name for s in latest().values() if operands(s) for name in allowed(s)})


def narrow(name: str) -> bool:
    return TYPES[f"tensor({name})"] >= TensorProto.FLOAT8E4M3FN


@pytest.mark.parametrize("name", [
    n if n in QUICK else pytest.param(n, marks=pytest.mark.long)
    for n in all_types() if not narrow(n)
])  # fmt: skip
def test_results(name):
    rng = np.random.default_rng(0)
    rows = [case for case in cases(name) if not why_refused(case)]
    exe = ingot.compile(model([r[1] for r in rows], [i for r in rows for i in r[2]]), jobs=1)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(TYPES[f"tensor({name})"]))
    feeds = {
        info.name: data(rng, dtype, i > 0) for _, _, infos in rows for i, info in enumerate(infos)
    }
    wrong, tolerance = [], TOLERANCE.get(name, 1e-5)
    for (op, node, infos), got in zip(rows, exe.run(None, feeds), strict=True):
        own = {info.name: feeds[info.name] for info in infos}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                want = expected(model([node], infos), own)
            except Exception:  # neither has it: ReduceLogSum of unsigned integers
                continue
        a, b = got.astype(np.float64), want.astype(np.float64)
        if not np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True):
            wrong.append(f"{op}: {got.tolist()}, not {want.tolist()}")
    assert len(rows) >= 10 and not wrong, "\n".join(wrong)


def why_refused(case: Case) -> str:
    """Of the importer; "" if it takes the node."""
    try:
        import_model(model([case[1]], case[2]), ConstantStore())
    except ingot.IngotError as error:
        return str(error)
    return ""


def test_no_type_is_refused():
    """Importing is enough to see it. An operator that takes none of its types needs more than two
    tensors of this shape; that is no matter of types."""
    results: dict[str, dict[str, str]] = {}
    for name in all_types():
        for case in cases(name):
            results.setdefault(case[0], {})[name] = why_refused(case)
    refused = {
        f"{op} of {name}: {why}"
        for op, found in results.items()
        if not all(found.values())
        for name, why in found.items()
        if why
    }
    assert len(results) > 80 and not refused, "\n".join(sorted(refused))


def test_the_kinds_of_values_are_known():
    known = {np.dtype(helper.tensor_dtype_to_np_dtype(TYPES[f"tensor({n})"])) for n in all_types()}
    assert {np.dtype(np.int8), np.dtype(np.uint64), np.dtype(ml_dtypes.bfloat16)} <= known
    assert len(latest()) > 150 and len(cases("float")) > 70
