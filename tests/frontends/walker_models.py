"""What the tests of the walker share: small models, and importing them or seeing them refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from ingot.frontends.onnx.walker import import_model
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.graph.verify import verify
from ingot.support.errors import IngotError
from tests.models.parts import info, model

X, Y = info("x", [2, 3]), info("y", [2, 3])


def imported(proto: onnx.ModelProto) -> tuple[Graph, ConstantStore]:
    store = ConstantStore()
    result = import_model(proto, store)
    verify(result)
    return result, store


def refused(proto: onnx.ModelProto, code: str = "bad-model") -> IngotError:
    with pytest.raises(IngotError) as caught:
        import_model(proto, ConstantStore())
    assert caught.value.code == code, caught.value
    return caught.value


def simple(*nodes: onnx.NodeProto, inputs=(X,), outputs=(Y,), **constants) -> onnx.ModelProto:
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    return model("test", nodes, inputs, outputs, arrays)
