"""The probe of element types: which inputs it changes, and that types.json is current."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto as P

from tests.conformance import element_types, records
from tests.models.parts import info, model, node


def clip(code: int = P.FLOAT) -> onnx.ModelProto:
    inputs = [info("x", [3], code), info("top", [], code)]
    return model("one", [node("Clip", "x _ top", "y")], inputs, [info("y", [3], code)])


def test_a_type_is_changed_in_every_operand_of_its_parameter():
    assert P.INT8 in element_types.parameters(clip())["T"]
    made = element_types.with_type(clip(), ["T"], P.INT8)
    assert [i.type.tensor_type.elem_type for i in made.graph.input] == [P.INT8, P.INT8]
    inputs = [info("x", [3]), info("i", [2], P.INT64)]
    gather = model("one", [node("Gather", "x i", "y")], inputs, [info("y", [2])])
    made = element_types.with_type(gather, ["Tind"], P.INT32)
    assert [i.type.tensor_type.elem_type for i in made.graph.input] == [P.FLOAT, P.INT32]


def test_types_that_compile_are_told_from_others():
    (found,) = element_types.probe([clip()])
    assert found[0] == "T" and "f32" in found[1].partition("|")[0].split()
    assert element_types.takes(clip(), "T", P.FLOAT16)
    assert not element_types.takes(clip(), "T", P.STRING), "the standard does not allow it"
    assert not element_types.compiles(element_types.with_type(clip(), ["T"], P.COMPLEX64))


@pytest.mark.long
def test_the_recorded_types_are_current():
    known = records.read(records.TYPES)
    found = {
        f"{op} {parameter}": text
        for op, models in element_types.single_node_models().items()
        for parameter, text in element_types.probe(models)
    }
    assert found == known, "run python -m tests.conformance.element_types --update"
