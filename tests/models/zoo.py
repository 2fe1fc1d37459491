"""Real architectures: onnx's light models with refilled weights, and BERT exported from a config.

The light models hold 0.02 in every weight, so their answers are all alike; here each weight is a
seeded initializer, scaled by its fan-in. The tensor before a final Softmax becomes an output too.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.models.parts import Case, rng

VOCABULARY = 500
LIGHT = ("resnet50", "squeezenet", "shufflenet")


def light_models() -> dict[str, Case]:
    """All three by name."""
    return {name: light_model(name) for name in LIGHT}


@cache
def light_model(name: str) -> Case:
    """One light model, its weights refilled."""
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    proto = onnx.load(folder / f"light_{name}.onnx")
    _refill(proto.graph, rng(len(name)))
    _expose_logits(proto.graph)
    weights = {t.name for t in proto.graph.initializer}
    (image,) = (v for v in proto.graph.input if v.name not in weights)
    shape = [d.dim_value for d in image.type.tensor_type.shape.dim]
    return proto, {image.name: rng(7).standard_normal(shape).astype(np.float32)}


def _refill(graph: onnx.GraphProto, r: np.random.Generator) -> None:
    """Every weight, a ConstantOfShape node or a constant initializer, becomes random numbers."""
    roles = _roles(graph)
    tensors = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    makers = {n.output[0]: n for n in graph.node if n.op_type == "ConstantOfShape"}
    shapes = {name: tuple(tensors[n.input[0]]) for name, n in makers.items()}
    shapes |= {name: tensors[name].shape for name in roles if name in tensors}
    kept = {n: a for n, a in tensors.items() if n not in roles and not n.endswith("__SHAPE")}
    fresh = {name: _numbers(roles[name], shape, r) for name, shape in shapes.items()}
    nodes = [n for n in graph.node if n.op_type != "ConstantOfShape"]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in (kept | fresh).items())
    inputs = [v for v in graph.input if not v.name.endswith("__SHAPE")]
    del graph.input[:]
    graph.input.extend(inputs)


def _roles(graph: onnx.GraphProto) -> dict[str, str]:
    """Weight name → what it is to the node that reads it."""
    added = {name for n in graph.node if n.op_type in ("Sum", "Add") for name in n.input}
    roles: dict[str, str] = {}
    for n in graph.node:
        if n.op_type in ("Conv", "Gemm"):
            roles[n.input[1]] = "weight"
            roles |= dict.fromkeys(n.input[2:3], "bias")
        elif n.op_type == "BatchNormalization":
            # branches of a residual sum are damped, or fifty layers of sums would grow without end
            scale = "damped" if n.output[0] in added else "scale"
            roles |= dict(zip(n.input[1:5], (scale, "bias", "bias", "variance")))
    return roles


def _numbers(role: str, shape: tuple[int, ...], r: np.random.Generator) -> np.ndarray:
    match role:
        case "weight":
            fan_in = int(np.prod(shape[1:]))
            values = r.standard_normal(shape) * np.sqrt(2 / fan_in)
        case "scale":
            values = r.uniform(0.9, 1.1, shape)
        case "damped":
            values = r.uniform(0.2, 0.3, shape)
        case "variance":
            values = r.uniform(0.8, 1.2, shape)
        case _:
            values = r.standard_normal(shape) * 0.1
    return values.astype(np.float32)


def _expose_logits(graph: onnx.GraphProto) -> None:
    last = graph.node[-1]
    assert last.op_type == "Softmax", last.op_type
    graph.output.append(helper.make_empty_tensor_value_info(last.input[0]))


@cache
def bert_two_layers(hidden: int = 128, batch: int = 2, length: int = 12) -> Case:
    """A two-layer BERT with open batch and length, padding in the last sequence."""
    r = rng(90)
    ids = r.integers(0, VOCABULARY, (batch, length))
    mask = np.ones((batch, length), np.int64)
    mask[-1, (length + 1) // 2 :] = 0
    return _exported_bert(hidden), {"input_ids": ids, "attention_mask": mask}


@cache
def _exported_bert(hidden: int) -> onnx.ModelProto:
    """Export takes many seconds, so the file is kept for later sessions of the same versions."""
    versions = "-".join(metadata.version(name) for name in ("torch", "transformers", "onnxscript"))
    folder = Path(tempfile.gettempdir()) / f"ingot-test-models-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"bert-{hidden}-{versions}.onnx"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as workshop:
            _export_bert(hidden, Path(workshop) / "bert.onnx")
            proto = onnx.load(Path(workshop) / "bert.onnx")
            onnx.save(proto, Path(workshop) / "whole.onnx")
            (Path(workshop) / "whole.onnx").replace(path)
    return onnx.load(path)


def _export_bert(hidden: int, path: Path) -> None:
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=hidden, num_hidden_layers=2,
        num_attention_heads=max(2, hidden // 64), intermediate_size=4 * hidden,
        max_position_embeddings=128,
    )  # fmt: skip
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=128)}
    example = torch.ones(2, 12, dtype=torch.int64)
    torch.onnx.export(
        BertModel(config).eval(),
        kwargs={"input_ids": example, "attention_mask": example},
        f=str(path),
        dynamo=True,
        dynamic_shapes={"input_ids": sizes, "attention_mask": sizes},
        verbose=False,
    )
