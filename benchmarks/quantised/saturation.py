"""Does a runtime's 8-bit convolution saturate? Before VNNI, the fast instruction of x86 for u8 · i8
adds two products in 16 bits, where 2 · 255 · 127 does not fit.

In: a runtime of runtimes.py. Out: its result of a 3 × 3 convolution in which every input is 1 and
every weight 1, at the ends of the 8-bit ranges, so that each of its results is `EXACT`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ingot.cli.peers.process import Peer, PeerError
from ingot.cli.peers.task import Task, read_outputs, save_feeds

CHANNELS = 64
EXACT = 9 * CHANNELS
SHAPE = (1, CHANNELS, 16, 16)


def middle_of(runtime: str, child: str, folder: Path) -> float | None:
    """The result in the middle of the map; None if the runtime fails."""
    onnx.save(_model(), folder / "ends.onnx")
    save_feeds(folder / "ends.npz", [np.ones(SHAPE, np.float32)])
    task = Task(str(folder / "ends.onnx"), str(folder / "ends.npz"), ("x",), ("f32",), (SHAPE,),
                {}, is_dynamic=False, threads=1)  # fmt: skip
    try:
        with Peer(runtime, folder / "cache", 1, 120, child) as peer:
            peer.load(task)
            peer.save_outputs(folder / "ends-outputs.npz")
    except PeerError:
        return None
    return float(read_outputs(folder / "ends-outputs.npz")[0][0, 0, 8, 8])


def _model() -> onnx.ModelProto:
    constants = {
        "s": np.float32(1 / 255), "z": np.uint8(0), "ws": np.float32(1 / 127), "wz": np.int8(0),
        "w": np.full((32, CHANNELS, 3, 3), 127, np.int8), "ys": np.float32(3), "yz": np.uint8(0),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node("Conv", ["xd", "wd"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["cq"]),
        helper.make_node("DequantizeLinear", ["cq", "ys", "yz"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "ends",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, SHAPE)],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
