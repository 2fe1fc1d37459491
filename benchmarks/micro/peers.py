"""numpy and torch as runtimes of one-operator models, in a process of their own:

    python -m benchmarks.micro.peers NAME        ingot/cli/peers/child.py with two more runtimes

`openblas` is numpy's matmul. `torch_eager` runs the model's nodes one by one: its GEMMs are MKL's,
its convolutions oneDNN's. In: a `Task`. Out: the methods that child.py calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ingot.cli.peers import child
from ingot.cli.peers.task import Task
from ingot.support import lazy

RUNTIMES = {
    "peer.openblas": "benchmarks.micro.peers:OpenBlas",
    "peer.torch_eager": "benchmarks.micro.peers:TorchEager",
}


class OpenBlas:
    version = np.__version__

    def __init__(self, task: Task):
        self._a, self._b = task.arrays()

    def run(self) -> np.ndarray:
        return self._a @ self._b

    def outputs(self) -> list[np.ndarray]:
        return [self.run()]


class TorchEager:
    version = ""

    def __init__(self, task: Task):
        import torch

        self.version = torch.__version__
        torch.set_num_threads(task.threads)
        self._torch = torch
        graph = onnx.load(task.model).graph
        self._values = {t.name: _tensor(numpy_helper.to_array(t)) for t in graph.initializer}
        self._values |= {n: torch.from_numpy(a) for n, a in task.by_name().items()}
        self._calls = [(_call(n), list(n.input), n.output[0]) for n in graph.node]

    def run(self) -> Any:
        values = dict(self._values)
        with self._torch.no_grad():
            for call, inputs, output in self._calls:
                values[output] = call(*(values[name] for name in inputs))
        return values[output]

    def outputs(self) -> list[np.ndarray]:
        return [self.run().contiguous().numpy()]


def _tensor(array: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(array.copy())


def _call(node: onnx.NodeProto) -> Callable[..., Any]:
    """The torch function of a node."""
    import torch
    from torch.nn import functional

    a = {attr.name: helper.get_attribute_value(attr) for attr in node.attribute}
    match node.op_type:
        case "Conv" | "ConvTranspose":
            return _convolution(node.op_type, a)
        case "Softmax":
            return lambda x: torch.softmax(x, a["axis"])
        case "LayerNormalization":
            return lambda x, w, b: functional.layer_norm(x, w.shape, w, b, a["epsilon"])
        case "Transpose":
            return lambda x: x.permute(a["perm"]).contiguous()
        case "ReduceMean":
            return lambda x: torch.mean(x, a["axes"], keepdim=bool(a["keepdims"]))
        case "ReduceMax":
            return lambda x: torch.amax(x, a["axes"], keepdim=bool(a["keepdims"]))
        case "MaxPool":
            return lambda x: functional.max_pool2d(x, a["kernel_shape"], a["strides"])
    plain = {
        "MatMul": torch.matmul, "Add": torch.add, "Mul": torch.mul, "Sub": torch.sub,
        "Relu": torch.relu, "Sigmoid": torch.sigmoid, "Tanh": torch.tanh, "Exp": torch.exp,
        "Erf": torch.erf, "Sqrt": torch.sqrt, "Div": torch.div,
    }  # fmt: skip
    return plain[node.op_type]


def _convolution(op: str, a: dict[str, Any]) -> Callable[..., Any]:
    from torch.nn import functional

    rank = len(a["kernel_shape"])
    kind = "conv_transpose" if op == "ConvTranspose" else "conv"
    call = getattr(functional, f"{kind}{rank}d")
    options = {"stride": a["strides"], "padding": a["pads"][:rank], "dilation": a["dilations"],
               "groups": a["group"]}  # fmt: skip
    return lambda x, w, b: call(x, w, b, **options)


if __name__ == "__main__":
    lazy.TABLE.update(RUNTIMES)
    child.main(sys.argv[1])
