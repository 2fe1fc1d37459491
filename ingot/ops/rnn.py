"""Recurrent layers: rnn, gru and lstm, as ONNX defines them.

In: x (steps, batch, features), w and r (directions, gates·hidden, features | hidden), maybe a bias
(directions, 2·gates·hidden), sequence lengths, initial states, peepholes. Out: y (steps,
directions, batch, hidden) and the last states (directions, batch, hidden); layout=1 puts the batch
first. They decompose into one GEMM of the inputs for all steps and a `loop` over time. A sequence
that has ended keeps its state and outputs zeros. Called through the operator table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Value
from ingot.graph.opdef import Attrs, OpDef, Sample, SizeMismatch, Use, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.ops.common import (
    floats,
    require_same_dim,
    run_failed,
    same_dim,
    tensor_type,
    widen_array,
)
from ingot.ops.rnn_gates import (
    ACTIVATIONS,
    Gate,
    cast,
    concat,
    direction_of,
    number,
    reverse,
    slice_axis,
    split,
    takes_alpha,
    takes_beta,
    unsqueeze,
    widen,
)

Weights = dict[str, Value]


class Recurrent(OpDef):
    """One direction at a time: `step` is one time step in operators, `numpy_step` in numpy."""

    composite = True
    gates = 1
    states = 1  # h, or h and c
    default: tuple[str, ...] = ("tanh",)
    python_reference = True

    def numpy_step(self, x, state, r, bias, peephole, gates, attrs):
        """One step; x is the input's contribution x·Wᵀ to every gate, without bias. Returns the new
        states."""
        raise NotImplementedError(self.name)

    def weights(
        self, g: GraphBuilder, r: Value, bias: Value | None, peephole: Value | None, attrs: Attrs
    ) -> Weights:
        """The weights that the loop body reads, prepared once before the loop."""
        return {"r": g.add("transpose", [r], perm=(1, 0))}

    def input_bias(self, g: GraphBuilder, bias: Value, hidden: Dim, attrs: Attrs) -> Value:
        """The bias that is added to x·Wᵀ before the loop."""
        size = hidden * self.gates
        return g.add("add", [slice_axis(g, bias, 0, 0, size), slice_axis(g, bias, 0, size, size)])

    def step(
        self,
        g: GraphBuilder,
        x: Value,
        state: list[Value],
        weights: Weights,
        gates: list[Gate],
        attrs: Attrs,
    ) -> list[Value]:
        raise NotImplementedError(self.name)

    def input_product(self, g: GraphBuilder, x: Value, w: Value) -> Value:
        """x·w for all steps, w transposed."""
        return g.add("matmul", [x, w])

    def recurrent_product(self, g: GraphBuilder, h: Value, weights: Weights) -> Value:
        """h·r in one step, r transposed."""
        return g.add("matmul", [h, weights["r"]])

    # types

    def multiply_adds(
        self, inputs: Sequence[Type | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> Dim:
        x, w, r = (tensor_type(self.name, t) for t in inputs[:3])
        return arith.product(list(x.shape[:2])) * (w.numel + r.numel)

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, w, r = (tensor_type(self.name, t) for t in inputs[:3])
        bias, lens, *states = (*inputs[3:], *(None,) * 5)[:5]
        if x.rank != 3 or w.rank != 3 or r.rank != 3 or not x.dtype.is_float:
            raise type_error(self.name, f"expects three float tensors of rank 3, got {x}, {w}, {r}")
        directions, hidden = len(self.directions(attrs)), r.shape[2]
        if arith.as_int(hidden) is None:
            raise type_error(self.name, f"the hidden size must be static, got {r}")
        steps, batch = self.steps_and_batch(x.shape, attrs)
        rows = hidden * self.gates
        self.check("w", w, (directions, rows, x.shape[2]), x)
        self.check("r", r, (directions, rows, hidden), x)
        self.check("the bias", bias, (directions, rows * 2), x)
        if lens is not None:
            lengths = tensor_type(self.name, lens)
            if lengths.rank != 1:
                what = f"sequence lengths are {lens}, not one for each of {batch}"
                raise type_error(self.name, what)
            require_same_dim(self.name, lengths.shape[0], batch, "one length for each")
        first = attrs.get("layout", 0)
        shape = (batch, directions, hidden) if first else (directions, batch, hidden)
        for state in states[: self.states]:
            self.check("an initial state", state, shape, x)
        if self.name == "lstm":
            self.check("the peephole", (*inputs, None)[7:8][0], (directions, hidden * 3), x)
        y = (batch, steps, directions, hidden) if first else (steps, directions, batch, hidden)
        last = TensorType(x.dtype, tuple(arith.wrap(d) for d in shape))
        return [TensorType(x.dtype, tuple(arith.wrap(d) for d in y)), *[last] * self.states]

    def check(self, what: str, type: Type | None, shape: Sequence, x: TensorType) -> None:
        if type is None:
            return
        t = tensor_type(self.name, type, what)
        dims = ", ".join(str(d) for d in shape)
        if t.rank != len(shape) or t.dtype is not x.dtype:
            raise type_error(self.name, f"{what} is {t}, not {x.dtype}[{dims}]")
        for size, wanted in zip(t.shape, shape):
            if not same_dim(size, wanted):
                what = f"{what} is {t}, not {x.dtype}[{dims}]"
                raise SizeMismatch(size, arith.wrap(wanted), self.name, what)

    def steps_and_batch(self, shape: Sequence, attrs: Attrs) -> tuple:
        return (shape[1], shape[0]) if attrs.get("layout", 0) else (shape[0], shape[1])

    def size_uses(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[tuple[Dim, Use]]:
        steps, batch = self.steps_and_batch(tensor_type(self.name, inputs[0]).shape, attrs)
        return [(steps, Use.LENGTH), (batch, Use.BATCH)]

    def directions(self, attrs: Attrs) -> tuple[bool, ...]:
        """For each direction, whether it is reversed in time."""
        table = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
        if attrs.get("direction", "forward") not in table:
            raise type_error(
                self.name, f"direction {attrs['direction']!r} is not one of {tuple(table)}"
            )
        return table[attrs.get("direction", "forward")]

    def gate_functions(self, attrs: Attrs, direction: int) -> list[Gate]:
        names = attrs.get("activations") or self.default * len(self.directions(attrs))
        unknown = [n for n in names if n not in ACTIVATIONS]
        if unknown or len(names) != len(self.default) * len(self.directions(attrs)):
            raise type_error(
                self.name, f"activations {tuple(names)} are unknown, too few or too many"
            )
        alphas, betas = list(attrs.get("alphas") or ()), list(attrs.get("betas") or ())
        found = []
        for name in names:  # alphas and betas list only the functions that take them
            rule = ACTIVATIONS[name]
            alpha = alphas.pop(0) if alphas and takes_alpha(name) else rule.alpha
            beta = betas.pop(0) if betas and takes_beta(name) else rule.beta
            found.append(Gate(rule, float(alpha), float(beta), attrs.get("clip")))
        size = len(self.default)
        own = found[direction * size : (direction + 1) * size]
        # clip applies to the gates' inputs, not to the cell, which an LSTM's third function reads
        return own[:2] + [replace(gate, clip=None) for gate in own[2:]]

    # numpy reference

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        given = (*inputs, *(None,) * 8)[:8]
        x, w, r, bias, lens, h0, c0, peephole = given
        assert x is not None and w is not None and r is not None
        dtype, first = x.dtype, bool(attrs.get("layout", 0))
        x, w, r = (widen_array(a) for a in (x, w, r))
        x = np.swapaxes(x, 0, 1) if first else x
        steps, batch, hidden = x.shape[0], x.shape[1], r.shape[2]
        lengths = np.full(batch, steps) if lens is None else lens
        ys, lasts = [], []
        for d, backwards in enumerate(self.directions(attrs)):
            state = [_start(s, d, batch, hidden, x.dtype, first) for s in (h0, c0)[: self.states]]
            own_bias = None if bias is None else widen_array(bias)[d]
            if own_bias is None:
                own_bias = np.zeros(2 * self.gates * hidden, x.dtype)
            own_peephole = None if peephole is None else widen_array(peephole)[d]
            gates = self.gate_functions(attrs, d)
            y = np.zeros((steps, batch, hidden), x.dtype)
            for row in range(batch):
                if backwards and lengths[row] > steps:
                    raise run_failed(f"{self.name}: length out of range")
                times = list(range(min(int(lengths[row]), steps)))
                own = [s[row : row + 1] for s in state]
                for t in reversed(times) if backwards else times:
                    inner = x[t, row : row + 1] @ w[d].T
                    own = self.numpy_step(inner, own, r[d], own_bias, own_peephole, gates, attrs)
                    y[t, row] = own[0][0]
                for s, value in zip(state, own):
                    s[row] = value[0]
            ys.append(y)
            lasts.append(state)
        y = np.stack(ys, axis=1)
        states = [np.stack([state[i] for state in lasts]) for i in range(self.states)]
        if first:
            y, states = np.transpose(y, (2, 0, 1, 3)), [np.swapaxes(s, 0, 1) for s in states]
        return [np.ascontiguousarray(a).astype(dtype) for a in (y, *states)]

    # decomposition

    def decompose(
        self,
        g: GraphBuilder,
        inputs: Sequence[Value | None],
        outputs: Sequence[TensorType],
        attrs: Attrs,
    ) -> list[Value]:
        given = (*inputs, *(None,) * 8)[:8]
        wide = [v if i == 4 or v is None else widen(g, v) for i, v in enumerate(given)]
        x, w, r, bias, lens, h0, c0, peephole = wide
        assert x is not None and w is not None and r is not None
        first = bool(attrs.get("layout", 0))
        x = g.add("transpose", [x], perm=(1, 0, 2)) if first else x
        lens = None if lens is None else cast(g, lens, dtypes.i64)
        ys, lasts = [], []
        for d, backwards in enumerate(self.directions(attrs)):
            starts = [self.start(g, s, d, x, r, first) for s in (h0, c0)[: self.states]]
            params = [None if v is None else direction_of(g, v, d) for v in (w, r, bias, peephole)]
            y, *states = self.run(g, x, params, lens, starts, attrs, d, backwards)
            ys.append(unsqueeze(g, y, 1))
            lasts.append([unsqueeze(g, s, 0) for s in states])
        y = concat(g, ys, 1)
        states = [concat(g, [last[i] for last in lasts], 0) for i in range(self.states)]
        if first:
            y = g.add("transpose", [y], perm=(2, 0, 1, 3))
            states = [g.add("transpose", [s], perm=(1, 0, 2)) for s in states]
        return [cast(g, v, outputs[0].dtype) for v in (y, *states)]

    def start(
        self, g: GraphBuilder, state: Value | None, d: int, x: Value, r: Value, first: bool
    ) -> Value:
        if state is None:
            zero = g.constant(np.zeros((), x.dtype.numpy))
            return g.add("fill", [zero], shape=(x.shape[1], r.shape[2]))
        state = g.add("transpose", [state], perm=(1, 0, 2)) if first else state
        return direction_of(g, state, d)

    def run(
        self,
        g: GraphBuilder,
        x: Value,
        params: Sequence[Value | None],
        lens: Value | None,
        starts: list[Value],
        attrs: Attrs,
        d: int,
        backwards: bool,
    ) -> list[Value]:
        """One direction: y (steps, batch, hidden) and the last states."""
        w, r, bias, peephole = params
        assert w is not None and r is not None
        x = reverse(g, x, lens) if backwards else x
        inner = self.input_product(g, x, g.add("transpose", [w], perm=(1, 0)))
        if bias is not None:
            inner = g.add("add", [inner, self.input_bias(g, bias, r.shape[1], attrs)])
        weights = self.weights(g, r, bias, peephole, attrs)
        steps = x.shape[0]
        trips = g.add("index_tensor", [], values=(steps,), shape=())
        outer = {"x": inner, **weights}
        if lens is not None:
            outer["lens"] = g.add("reshape", [lens], shape=(x.shape[1], 1))
        body = self.body(g, starts, outer, self.gate_functions(attrs, d), attrs)
        operands = [trips, None, *starts, *outer.values()]
        *states, y = g.add_all(
            "loop", operands, body=body, carried=self.states, count=arith.wrap(steps)
        )
        return [reverse(g, y, lens) if backwards else y, *states]

    def body(
        self,
        g: GraphBuilder,
        starts: list[Value],
        outer: Weights,
        gates: list[Gate],
        attrs: Attrs,
    ) -> Graph:
        inner = GraphBuilder(f"{self.name}_step", g.store)
        inner.origin = g.origin
        time = inner.input("t", TensorType(dtypes.i64, ()))
        go_on = inner.input("go_on", TensorType(dtypes.bool_, ()))
        state = [inner.input(n, v.type) for n, v in zip(("h", "c"), starts)]
        own = {name: inner.input(name, v.type) for name, v in outer.items()}
        x = inner.add("gather", [own["x"], time], axis=0)
        new = self.step(inner, x, state, own, gates, attrs)
        y = new[0]
        if "lens" in own:
            active = inner.add("lt", [time, own["lens"]])
            y = inner.add("where", [active, y, number(inner, 0, y)])
            new = [inner.add("where", [active, a, b]) for a, b in zip(new, state)]
        return inner.finish([go_on, *new, y])

    def samples(self) -> list[Sample]:
        steps, batch, features, hidden = 4, 3, 5, 2

        def case(direction: str = "forward", optional: str = "", dtype=dtypes.f32, **attrs):
            count = 2 if direction == "bidirectional" else 1
            rows = self.gates * hidden
            make = lambda key, *shape: floats(*shape, dtype=dtype, key=key)  # noqa: E731
            state = (count, batch, hidden)
            x = make(0, steps, batch, features)
            if attrs.get("layout"):
                x, state = np.ascontiguousarray(np.swapaxes(x, 0, 1)), (batch, count, hidden)
            arrays = [
                x,
                make(1, count, rows, features),
                make(2, count, rows, hidden),
                make(3, count, 2 * rows) if "b" in optional else None,
                np.array([2, 4, 1], np.int32) if "l" in optional else None,
                make(4, *state) if "h" in optional else None,
            ]
            if self.states == 2:
                arrays.append(make(5, *state) if "h" in optional else None)
                arrays.append(make(6, count, 3 * hidden) if "p" in optional else None)
            loose = 2e-2 if dtype is dtypes.f16 else 2e-5
            return Sample(tuple(arrays), {"direction": direction, **attrs}, rtol=loose, atol=loose)

        return [
            case(),
            case("reverse", "bl"),
            case("bidirectional", "blhp", clip=0.5),
            case("forward", "bh", layout=1),
            case("bidirectional", "bl", layout=1),
            case("forward", "blhp", dtype=dtypes.f16),
            *self.own_samples(case),
        ]

    def own_samples(self, case) -> list[Sample]:
        return []


def _start(state, d: int, batch: int, hidden: int, dtype: np.dtype, first: bool) -> np.ndarray:
    if state is None:
        return np.zeros((batch, hidden), dtype)
    rows = state[:, d] if first else state[d]
    return np.array(rows, dtype)


# --- the operators --------------------------------------------------------------------------------


@register
class Rnn(Recurrent):
    """h = f(x·Wᵀ + h·Rᵀ + biases)"""

    name = "rnn"

    def numpy_step(self, x, state, r, bias, peephole, gates, attrs):
        size = len(bias) // 2
        return [gates[0].numpy(x + state[0] @ r.T + bias[:size] + bias[size:])]

    def step(self, g, x, state, weights, gates, attrs):
        total = g.add("add", [x, g.add("matmul", [state[0], weights["r"]])])
        return [gates[0].graph(g, total)]

    def own_samples(self, case) -> list[Sample]:
        named = [
            ("leaky_relu", (0.1,), ()), ("thresholded_relu", (0.2,), ()), ("elu", (0.5,), ()),
            ("hard_sigmoid", (0.3,), (0.4,)), ("affine", (0.5,), (0.1,)), ("softsign", (), ()),
            ("scaled_tanh", (0.5,), (0.7,)), ("softplus", (), ()), ("relu", (), ()),
            ("sigmoid", (), ()),
        ]  # fmt: skip
        return [
            case(optional="b", activations=(name,), alphas=alpha, betas=beta)
            for name, alpha, beta in named
        ]


@register
class Gru(Recurrent):
    """Gates z, r, h; {linear_before_reset} multiplies by r after the matmul, not before."""

    name = "gru"
    gates = 3
    default = ("sigmoid", "tanh")

    def numpy_step(self, x, state, r, bias, peephole, gates, attrs):
        (h,), f, act = state, gates[0], gates[1]
        xz, xr, xh = np.split(x, 3, axis=1)
        rz, rr, rh = np.split(r, 3)
        wbz, wbr, wbh, rbz, rbr, rbh = np.split(bias, 6)
        z = f.numpy(xz + h @ rz.T + wbz + rbz)
        reset = f.numpy(xr + h @ rr.T + wbr + rbr)
        if attrs.get("linear_before_reset", False):
            new = act.numpy(xh + reset * (h @ rh.T + rbh) + wbh)
        else:
            new = act.numpy(xh + (reset * h) @ rh.T + rbh + wbh)
        return [(1 - z) * new + z * h]

    def input_bias(self, g: GraphBuilder, bias: Value, hidden: Dim, attrs: Attrs) -> Value:
        if not attrs.get("linear_before_reset", False):
            return super().input_bias(g, bias, hidden, attrs)
        both, inputs = hidden * 2, slice_axis(g, bias, 0, 0, hidden * 3)
        recurrent = slice_axis(
            g, bias, 0, hidden * 3, both
        )  # the recurrent bias of h is added inside the loop
        zero = g.constant(np.zeros(arith.as_int(hidden) or 0, bias.dtype.numpy))
        return g.add("add", [inputs, g.add("concat", [recurrent, zero], axis=0)])

    def weights(self, g, r, bias, peephole, attrs):
        hidden = r.shape[1]
        transposed = g.add("transpose", [r], perm=(1, 0))
        if not attrs.get("linear_before_reset", False):
            return {
                "r": slice_axis(g, transposed, 1, 0, hidden * 2),
                "rh": slice_axis(g, transposed, 1, hidden * 2, hidden),
            }
        found = {"r": transposed}
        if bias is not None:
            found["rbh"] = slice_axis(g, bias, 0, hidden * 5, hidden)
        return found

    def step(self, g, x, state, weights, gates, attrs):
        (h,), hidden = state, state[0].shape[1]
        xs, recurrent = split(g, x, hidden, 3), g.add("matmul", [h, weights["r"]])
        linear = attrs.get("linear_before_reset", False)
        hs = split(g, recurrent, hidden, 3 if linear else 2)
        z, reset = (gates[0].graph(g, g.add("add", [a, b])) for a, b in zip(xs[:2], hs))
        if linear:
            inner = g.add("add", [hs[2], weights["rbh"]]) if "rbh" in weights else hs[2]
            inner = g.add("mul", [reset, inner])
        else:
            inner = g.add("matmul", [g.add("mul", [reset, h]), weights["rh"]])
        new = gates[1].graph(g, g.add("add", [xs[2], inner]))
        complement = g.add("sub", [number(g, 1, z), z])
        return [g.add("add", [g.add("mul", [complement, new]), g.add("mul", [z, h])])]

    def own_samples(self, case) -> list[Sample]:
        return [
            case("forward", "blh", linear_before_reset=True),
            case("reverse", "", linear_before_reset=True),
            case("bidirectional", "b", activations=("hard_sigmoid", "softsign", "sigmoid", "relu")),
        ]


@register
class Lstm(Recurrent):
    """Gates i, o, f, c; peepholes i, o, f read the cell; {input_forget} couples f to 1 - i."""

    name = "lstm"
    gates = 4
    states = 2
    default = ("sigmoid", "tanh", "tanh")

    def numpy_step(self, x, state, r, bias, peephole, gates, attrs):
        (h, c), (f, act, out) = state, gates
        size = len(bias) // 2
        xi, xo, xf, xc = np.split(x + h @ r.T + bias[:size] + bias[size:], 4, axis=1)
        pi, po, pf = (0, 0, 0) if peephole is None else np.split(peephole, 3)
        i = f.numpy(xi + pi * c)
        forget = 1 - i if attrs.get("input_forget", False) else f.numpy(xf + pf * c)
        new = (forget * c + i * act.numpy(xc)).astype(c.dtype)
        o = f.numpy(xo + po * new)
        return [o * out.numpy(new), new]

    def weights(self, g, r, bias, peephole, attrs):
        found = super().weights(g, r, bias, peephole, attrs)
        if peephole is not None:
            found |= dict(zip(("pi", "po", "pf"), split(g, peephole, r.shape[1], 3)))
        return found

    def step(self, g, x, state, weights, gates, attrs):
        (h, c), (f, act, out) = state, gates
        total = g.add("add", [x, self.recurrent_product(g, h, weights)])
        xi, xo, xf, xc = split(g, total, h.shape[1], 4)

        def with_peephole(gate: Value, name: str, cell: Value) -> Value:
            if name not in weights:
                return gate
            return g.add("add", [gate, g.add("mul", [weights[name], cell])])

        i = f.graph(g, with_peephole(xi, "pi", c))
        if attrs.get("input_forget", False):
            forget = g.add("sub", [number(g, 1, i), i])
        else:
            forget = f.graph(g, with_peephole(xf, "pf", c))
        kept, added = g.add("mul", [forget, c]), g.add("mul", [i, act.graph(g, xc)])
        new = g.add("add", [kept, added])
        o = f.graph(g, with_peephole(xo, "po", new))
        return [g.add("mul", [o, out.graph(g, new)]), new]

    def own_samples(self, case) -> list[Sample]:
        return [
            case("forward", "b", input_forget=True),
            case("reverse", "bp", activations=("hard_sigmoid", "softsign", "relu")),
        ]
