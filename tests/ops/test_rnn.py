"""RNN, GRU and LSTM against ONNX Runtime: directions, lengths, states, activations, peepholes."""

from __future__ import annotations

import numpy as np
import pytest

from ingot import dtypes
from ingot.graph.opdef import lookup
from ingot.graph.types import tensor
from tests.ops.peers import check
from tests.refusal import refused

RNG = np.random.default_rng(9)
STEPS, BATCH, FEATURES, HIDDEN = 5, 3, 4, 2
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
OPS = list(GATES)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def operands(op: str, directions: int, optional: str) -> list[np.ndarray | None]:
    """b: bias, l: lengths, h: initial states, p: peepholes."""
    rows, state = GATES[op] * HIDDEN, (directions, BATCH, HIDDEN)
    arrays: list[np.ndarray | None] = [
        real(STEPS, BATCH, FEATURES),
        real(directions, rows, FEATURES),
        real(directions, rows, HIDDEN),
        real(directions, 2 * rows) if "b" in optional else None,
        np.array([2, 5, 1], np.int32) if "l" in optional else None,
        real(*state) if "h" in optional else None,
    ]
    if op == "LSTM":
        arrays.append(real(*state) if "h" in optional else None)
        arrays.append(real(directions, 3 * HIDDEN) if "p" in optional else None)
    return arrays


def run(op: str, optional: str = "", direction: str = "forward", **attrs) -> None:
    outputs = ("y", "y_h", "y_c") if op == "LSTM" else ("y", "y_h")
    arrays = operands(op, 2 if direction == "bidirectional" else 1, optional)
    dynamic = attrs.pop("dynamic", ())
    check(
        op, arrays, outputs=outputs, hidden_size=HIDDEN, direction=direction, tolerance=1e-4,
        dynamic=dynamic, **attrs,
    )  # fmt: skip


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("optional", ["", "b", "bh", "blh"])
def test_directions_and_operands(op, direction, optional):
    run(op, optional, direction)


@pytest.mark.parametrize("op", OPS)
def test_unknown_steps_and_features(op):
    run(op, "b", dynamic=(0,))


@pytest.mark.parametrize("op", OPS)
def test_clip(op):
    run(op, "bh", clip=0.3)


def test_peepholes():
    run("LSTM", "blhp", "bidirectional")
    run("LSTM", "bp")


def test_input_forget():
    run("LSTM", "bh", input_forget=1)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_linear_before_reset(direction):
    run("GRU", "blh", direction, linear_before_reset=1)
    run("GRU", "", direction, linear_before_reset=1)


@pytest.mark.parametrize(
    "name,alpha,beta",
    [("Relu", None, None), ("Sigmoid", None, None), ("HardSigmoid", 0.3, 0.4), ("Elu", 0.6, None),
     ("LeakyRelu", 0.2, None), ("Affine", 0.5, 0.1), ("ScaledTanh", 0.7, 0.9),
     ("ThresholdedRelu", 0.2, None), ("Softsign", None, None), ("Softplus", None, None)],
)  # fmt: skip
def test_activations(name, alpha, beta):
    attrs = {"activations": [name]}
    attrs |= {} if alpha is None else {"activation_alpha": [alpha]}
    attrs |= {} if beta is None else {"activation_beta": [beta]}
    run("RNN", "b", **attrs)


def test_activations_of_each_gate_and_direction():
    run("LSTM", "b", activations=["Sigmoid", "Relu", "Tanh"])
    names = ["Sigmoid", "Tanh", "Relu", "Tanh"]
    run("GRU", "b", "bidirectional", activations=names)


@pytest.mark.parametrize("op", OPS)
def test_batch_first_is_a_transpose(op):
    name = op.lower()
    arrays = operands(op, 2, "blh")
    plain = lookup(name).reference(arrays, {"direction": "bidirectional"})
    turned = [
        a if i not in (0, 5, 6) or a is None else np.swapaxes(a, 0, 1) for i, a in enumerate(arrays)
    ]
    first = lookup(name).reference(turned, {"direction": "bidirectional", "layout": 1})
    np.testing.assert_array_equal(np.transpose(first[0], (1, 2, 0, 3)), plain[0])
    np.testing.assert_array_equal(np.swapaxes(first[1], 0, 1), plain[1])


def test_only_the_last_state_may_be_asked_for():
    check("LSTM", operands("LSTM", 1, "b"), outputs=("", "y_h"), hidden_size=HIDDEN, tolerance=1e-4)


def test_misfitting_weights_are_refused():
    types = [tensor(dtypes.f32, 5, 3, 4), tensor(dtypes.f32, 1, 8, 5), tensor(dtypes.f32, 1, 8, 2)]
    with refused("bad-type", "w", "f32[1, 8, 5]", "f32[1, 8, 4]", where="lstm"):
        lookup("lstm").infer(types, {})
