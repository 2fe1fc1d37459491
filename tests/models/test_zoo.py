"""The zoo: what it must hold, its inputs, and two of its models compared with ONNX Runtime. All of
them are compared by `make zoo`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from benchmarks import models
from benchmarks.zoo import TABLE, path_of, torch_path_of
from benchmarks.zoo.compare import Result, compare, onnxruntime_outputs, relative, table
from tests.refusal import is_told

WANTED = [
    "silero_vad", "rapidocr_det", "rapidocr_rec", "rapidocr_cls", "magika", "bert_base", "gpt2",
    "gpt2_decode", "vit_b16", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "lstm_tagger",
    "light_bvlc_alexnet", "light_densenet121", "light_inception_v1", "light_inception_v2",
    "light_resnet50", "light_shufflenet", "light_squeezenet", "light_vgg19", "light_zfnet512",
]  # fmt: skip


def test_the_zoo_holds_what_was_asked_for() -> None:
    assert set(WANTED) <= set(TABLE)


@pytest.mark.parametrize("name", [n for n in TABLE if not n.startswith("light_")])
def test_inputs_are_seeded_and_follow_the_sizes(name: str) -> None:
    entry = TABLE[name]
    for sizes in entry.sizes[:2]:
        first, second = entry.feeds(sizes), entry.feeds(sizes)
        assert all(np.array_equal(first[n], second[n]) for n in first)
        assert all(any(s in a.shape for a in first.values()) for s in sizes.values())


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_a_trained_model_of_two_branches(mode: str) -> None:
    """silero: a file out of a wheel, an If for each sample rate, squeezes that change the rank."""
    result = compare(TABLE["silero_vad"], mode)
    assert result.agrees, result
    assert len(result.sizes) == 2


def test_an_exported_model_at_open_sizes() -> None:
    path = path_of(TABLE["lstm_tagger"])
    (given,) = onnx.load(path).graph.input
    assert [d.dim_param for d in given.type.tensor_type.shape.dim] == ["batch", "length"]
    result = compare(TABLE["lstm_tagger"], "dynamic")
    assert result.agrees and len(result.sizes) == 3, result


@pytest.mark.parametrize("name", ["tiny_cnn", "lstm_tagger"])
def test_the_same_network_as_torch_has_it(name: str, tmp_path: Path) -> None:
    """The torch.export file that `make bench` gives to torch: same weights, inputs by position."""
    entry = TABLE[name]
    program = torch_path_of(entry, tmp_path)
    assert (
        program is not None and program.suffix == ".pt2" and list(tmp_path.iterdir()) == [program]
    )
    feeds = entry.feeds(entry.sizes[0])
    with torch.no_grad():
        (found,) = torch.export.load(program).module()(*map(torch.from_numpy, feeds.values()))
    (want,) = onnxruntime_outputs(path_of(entry), feeds)[1]
    assert relative(found.numpy(), want) < 1e-5
    assert torch_path_of(TABLE["magika"], tmp_path) is None  # it did not come from torch


def test_the_bench_hands_it_over(tmp_path: Path) -> None:
    file = models.make("tiny_cnn", tmp_path).torch_file()
    assert file is not None and file.exists()
    assert models.make("digits", tmp_path).torch_file() is None


def test_a_difference_is_one() -> None:
    one = np.ones(3, np.float32)
    assert relative(one, one) == 0
    assert relative(one + np.float32(0.5), one) == 0.5
    assert relative(one[:2], one) == relative(one.astype(np.float64), one) == float("inf")
    assert relative(np.array([np.nan]), np.array([1.0])) == float("inf")
    assert not Result("m", "dynamic", difference=2e-4).agrees
    assert "dynamic: fails" in table([Result("m", "dynamic", difference=2e-4)])


def test_the_command_lists_and_refuses() -> None:
    command = [sys.executable, "-m", "benchmarks.zoo"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "gpt2_decode" in listed and "batch=1 past=64" in listed
    refused = subprocess.run([*command, "gpt3"], capture_output=True, text=True)
    assert refused.returncode == 2 and is_told("gpt3", refused.stderr)
