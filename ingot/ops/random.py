"""Random bits: `random_bits`, the one operator that every random operator is made of.

In: a key, u64[2]. Out: a u64 tensor. Called by ops/__init__.py; imported from ONNX by
frontends/onnx/random.py, which makes uniform and normal numbers of the bits.

An element is a pure function of (key, position, stream, its index): Philox4x32-10, a counter-based
generator. So nothing depends on the number of threads or on the vector width, equal nodes may be
merged, and a call with an equal key gives equal numbers. The key of a call comes from the runtime
as an input of the model (support/abi.py, RANDOM_KEY): the seed, and the number of the call as the
position. Each node has a stream of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import TensorType, Type, tensor
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr
from ingot.loops.numeric import philox
from ingot.ops import common

KEY = tensor(dtypes.u64, 2)  # the key, and the position: the number of a call or an iteration
STREAMS = 1 << 32


@register
class RandomBits(OpDef):
    """64 independent random bits for each element of `shape`, drawn from `stream` of the key."""

    name = "random_bits"
    kind = Kind.INJECTIVE

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (key,) = common.tensor_types(self.name, inputs, 1)
        if key.dtype is not dtypes.u64 or key.static_shape != (2,):
            raise type_error(self.name, f"the key is {key}, not {KEY}")
        if not 0 <= attrs["stream"] < STREAMS:
            raise type_error(self.name, f"stream {attrs['stream']} is not in 0 … {STREAMS - 1}")
        return [TensorType(dtypes.u64, common.dims(attrs["shape"]))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        key, position = np.asarray(inputs[0])
        shape = common.numbers(self.name, attrs["shape"])
        index = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.uint64).reshape(shape)
        half, stream = np.uint64(32), np.uint64(attrs["stream"])
        high = np.full(shape, stream | (position << half), np.uint64)
        return [np.asarray(philox(index, high, key ^ (position >> half)), np.uint64)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        (key,) = inputs
        assert key is not None
        shape = outputs[0].shape

        def formula(*point: arith.Expr) -> Expr:
            index: arith.Expr = arith.Const(0)
            for i, extent in zip(point, shape):
                index = index * extent + i
            low = ir.Cast(ir.Index(index), dtypes.u64)
            half = ir.Lit(32, dtypes.u64)
            stream = ir.Lit(attrs["stream"], dtypes.u64)
            high = ir.Binary("shl", key[1], half) | stream
            mixed = ir.Binary("xor", key[0], ir.Binary("shr", key[1], half))
            return ir.Math("philox", (low, high, mixed))

        return [b.compute("random_bits", shape, formula)]

    def samples(self) -> list[Sample]:
        shapes: list[tuple[int, ...]] = [(2, 3), (), (0, 4), (37,), (3, 1, 17)]
        key = np.array([0x299F31D0A4093822, 7], np.uint64)
        found = [Sample((key,), {"shape": shape, "stream": 5}) for shape in shapes]
        late = np.array([1, (1 << 63) + 5], np.uint64)
        return [*found, Sample((late,), {"shape": (9,), "stream": STREAMS - 1})]
