"""Real architectures: onnx's light models with refilled weights (benchmarks/zoo/light.py), and a
small BERT exported from a config."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np
import onnx

from benchmarks.zoo import light
from tests.models.parts import Case, rng

VOCABULARY = 500
LIGHT = ("resnet50", "squeezenet", "shufflenet")


def light_models() -> dict[str, Case]:
    """All three by name."""
    return {name: light_model(name) for name in LIGHT}


@cache
def light_model(name: str) -> Case:
    """One light model, its weights refilled."""
    proto = light.refilled(name)
    image, shape = light.image_of(proto)
    return proto, {image: rng(7).standard_normal(shape).astype(np.float32)}


@cache
def bert_two_layers(hidden: int = 128, batch: int = 2, length: int = 12) -> Case:
    """A two-layer BERT with dynamic batch and length, padding in the last sequence."""
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
