"""Helpers of the walker's tests: small models, importing them, and checking their errors."""

from __future__ import annotations

import numpy as np
import onnx

from ingot.frontends.onnx.walker import import_model
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.graph.verify import verify
from ingot.support.errors import IngotError
from tests.models.parts import info, model
from tests.refusal import Fact, Facts, refused

X, Y = info("x", [2, 3]), info("y", [2, 3])


def imported(proto: onnx.ModelProto) -> tuple[Graph, ConstantStore]:
    store = ConstantStore()
    result = import_model(proto, store)
    verify(result)
    return result, store


def refused_model(
    proto: onnx.ModelProto,
    *facts: Fact,
    where: Facts = (),
    code: str = "bad-model",
    hint: bool | Facts = False,
) -> IngotError:
    with refused(code, *facts, where=where, hint=hint) as caught:
        import_model(proto, ConstantStore())
    return caught.value


def simple(*nodes: onnx.NodeProto, inputs=(X,), outputs=(Y,), **constants) -> onnx.ModelProto:
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    return model("test", nodes, inputs, outputs, arrays)
