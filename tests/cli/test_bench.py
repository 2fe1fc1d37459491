"""`ingot bench`: real runtimes in processes of their own, their failures, and the comparison."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnxruntime
import openvino
import pytest
import torch
from click.testing import CliRunner, Result

from ingot.cli import bench
from ingot.cli.compare import distance, worst_distance
from ingot.cli.feeds import FeedSpec
from ingot.cli.main import main
from ingot.cli.peers.process import Peer, PeerError
from ingot.cli.peers.rounds import (
    BenchOptions,
    Entry,
    benchmark,
    compare_with_reference,
    p99_ms,
)
from ingot.cli.peers.runtimes import TORCH, Model, choose
from ingot.cli.peers.task import Task, read_outputs, save_feeds, save_outputs
from tests.refusal import Fact, is_told
from tests.small import BIAS, WEIGHT, answers, small_model

QUICK = ("--rounds", "2", "--round-s", "0")


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.onnx"
    path.write_bytes(small_model().SerializeToString())
    return path


def ingot(*args: object) -> Result:
    return CliRunner().invoke(main, [*map(str, args)])


def task_for(model: Path, folder: Path, **sizes: int) -> Task:
    return bench.make_task(model, sizes, FeedSpec(), folder)


# --- benchmarks -----------------------------------------------------------------------------------


def test_ingot_versus_its_peers(small: Path):
    done = ingot("bench", small, "--size", "batch=5", "--threads", "1,2", *QUICK, "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["inputs"] == [{"name": "x", "dtype": "f32", "shape": [5, 4]}]
    entries = {(e["runtime"], e["threads"]): e for e in said["entries"]}
    runtimes = ("ingot", "onnxruntime", "openvino")
    assert list(entries) == [(name, threads) for threads in (1, 2) for name in runtimes]
    for entry in entries.values():
        assert not entry["failure"] and len(entry["rounds_ms"]) == 2
        assert entry["time_ms"] > 0 and entry["load_s"] > 0 and entry["peak_bytes"] > 1e7
    assert entries["ingot", 1]["agrees"] and entries["openvino", 2]["agrees"]
    assert entries["ingot", 1]["cached_s"] > 0 and entries["ingot", 1]["load_peak_bytes"] > 1e7
    assert entries["onnxruntime", 1]["version"] == onnxruntime.__version__
    assert openvino.__version__.startswith(entries["openvino", 1]["version"])
    best = min(entries[name, 1]["time_ms"] for name in runtimes[1:])
    ours = entries["ingot", 1]
    assert ours["speedup_over_best_peer"] == pytest.approx(best / ours["time_ms"])
    assert "--torch" in said["skipped"]["torch"]


def test_disagreement_has_its_exit_code(small: Path):
    done = ingot("bench", small, "--peers", "onnxruntime", "--threads", 1, *QUICK,
                 "--tolerance", "-1")  # fmt: skip
    assert done.exit_code == 3 and "Ingot's outputs DIFFER" in done.stdout
    assert f"ingot verify {small} --shape=batch=1" in done.stdout
    assert "runtime" in done.stdout and f"onnxruntime {onnxruntime.__version__}" in done.stdout


def test_dynamic_shapes_and_no_peer(small: Path):
    done = ingot(
        "bench", small, "--shape", "x=7x4", "--dynamic", "--peers", "", "--threads", 1,
        "--rounds", 1, "--round-s", 0,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert (
        "f32[7, 4], dynamic shapes; 1 round\n" in done.stdout
        and "No other runtime to compare" in done.stdout
    )


class Small(torch.nn.Module):
    """tests/small.py's model as torch has it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = torch.from_numpy(WEIGHT), torch.from_numpy(BIAS)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(x @ self.weight + self.bias)
        return y, y.sum(1)


@pytest.mark.parametrize(
    "name",
    [
        "torch-eager", "torch-channels-last", "ingot-module", "ingot-backend",
        *(pytest.param(n, marks=pytest.mark.long) for n in ("torch-compile", "torch-freezing")),
    ],
)  # fmt: skip  # long: torch.compile runs a C++ compiler
def test_runtimes_take_an_exported_program(name: str, small: Path, tmp_path: Path):
    program = torch.export.export(Small(), (torch.zeros(5, 4),))
    torch.export.save(program, tmp_path / "small.pt2")
    task = replace(task_for(small, tmp_path, batch=5), torch=str(tmp_path / "small.pt2"))
    with Peer(name, tmp_path / "cache", 1, 300.0) as peer:
        loaded = peer.load(task)
        assert loaded["first_s"] > 0 and loaded["version"]
        peer.save_outputs(tmp_path / "a.npz")
    for found, expected in zip(read_outputs(tmp_path / "a.npz"), answers(task.arrays()[0])):
        assert distance(found, expected) < 1e-5


def test_the_machine_is_measured_in_the_same_rounds(small: Path):
    done = ingot("bench", small, "--size", "batch=5", "--threads", "1", "--roofline", "--json",
                 "--peers", "", *QUICK)  # fmt: skip
    rates = {row["name"]: row["per_second"] for row in json.loads(done.stdout)["roofline"]}
    assert rates["fma"] > 1e9 and rates["bandwidth"] > 1e8


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, words", [
    ("ingot", "[bad-model]"), ("onnxruntime", "Protobuf"), ("openvino", "junk.onnx"),
])  # fmt: skip
def test_a_runtime_that_fails_says_why(name: str, words: str, small: Path, tmp_path: Path):
    junk = tmp_path / "junk.onnx"
    junk.write_text("no model")
    task = replace(task_for(small, tmp_path), model=str(junk))
    with Peer(name, tmp_path / "cache", 1, 60.0) as peer, pytest.raises(PeerError) as why:
        peer.load(task)
    assert words in str(why.value)


def test_a_runtime_that_does_not_answer_in_time(small: Path, tmp_path: Path):
    task = task_for(small, tmp_path)
    with (
        Peer("ingot", tmp_path / "cache", 1, 0.0) as peer,
        pytest.raises(PeerError, match="'load'"),
    ):
        peer.load(task)


def test_a_runtime_that_dies(small: Path, tmp_path: Path):
    with Peer("onnxruntime", tmp_path / "cache", 1, 60.0) as peer:
        peer.load(task_for(small, tmp_path))
        peer._process.kill()
        with pytest.raises(PeerError, match="signal 9"):
            peer.run(0.0)


def test_one_failure_does_not_end_the_benchmark(small: Path, tmp_path: Path):
    task = replace(task_for(small, tmp_path), torch=str(tmp_path / "nowhere.pt2"))
    cold = Entry("ingot", 1, failure="it is cold")
    names, options = ["ingot", "onnxruntime", "torch-eager"], BenchOptions(rounds=1, round_s=0.0)
    ours, ort, other = benchmark(task, names, options, cold, tmp_path, lambda name: None)
    assert ours.failure == "it is cold" and "nowhere.pt2" in other.failure
    assert ort.time_ms is not None and not ort.failure


@pytest.mark.parametrize("words, code, expected", [
    (["--threads", "1,x"], 2, ["'--threads'", "'1,x'", "1,2"]),
    (["--threads", "0"], 2, ["'--threads'", 1]),
    (["--peers", "tvm"], 2, ["'--peers'", "tvm", "onnxruntime, openvino, torch"]),
    (["--also", "twice"], 2, ["'--also'", "twice", "again, module, backend"]),
    (["--size", "batch=1:8"], 2, ["[bad-option]", "--size batch=1", "--dynamic"]),
    (["--size", "bath=1"], 2, ["[bad-option]", "'bath'", "batch"]),
    (["--input", "q=nowhere.npy"], 2, ["[bad-option]", "--input q=nowhere.npy"]),
])  # fmt: skip
def test_what_is_asked_wrongly(words: list[str], code: int, expected: list[Fact], small: Path):
    done = ingot("bench", small, *words)
    assert done.exit_code == code
    assert all(is_told(fact, done.stderr) for fact in expected), done.stderr


# --- parts ----------------------------------------------------------------------------------------


def test_distances():
    one, two = np.array([1.0, 2.0]), np.array([1.0, 2.5])
    nan, inf = np.array([1.0, np.nan]), np.array([1.0, np.inf])
    assert distance(one, one) == distance(nan, nan) == distance(inf, inf) == 0.0
    assert distance(one, two) == pytest.approx(0.2) and distance(two, one) == pytest.approx(0.25)
    for a, b in [(one, nan), (nan, one), (inf, one), (one, inf), (one, one[:1]), (one, one * 0)]:
        assert distance(a, b) == np.inf
    assert distance(np.zeros(0), np.zeros(0)) == 0.0
    assert worst_distance({"a": one, "b": two}, {"a": one, "b": one}) == (0.25, "b")


def test_outputs_are_compared_with_the_reference():
    entries = [Entry(name, 1) for name in ("ingot", "openvino", "onnxruntime")]
    one = [np.ones(2)]
    found = compare_with_reference(
        entries, {"ingot": [np.ones(2) * 1.5], "openvino": one, "onnxruntime": one}, 0.1
    )
    assert [(e.agrees, e.distance) for e in found] == [(False, 0.5), (True, 0.0), (None, None)]
    short = compare_with_reference(entries[:2], {"ingot": [], "openvino": one}, 0.1)
    assert short[0].agrees is False and short[1].agrees is None
    assert compare_with_reference(entries[:1], {"ingot": one}, 0.1) == entries[:1]


def test_arrays_travel_in_any_type(tmp_path: Path):
    arrays = [np.ones((2, 3), ml_dtypes.bfloat16), np.array(7), np.zeros((0, 2), np.float16)]
    save_feeds(tmp_path / "f.npz", arrays)
    names = ("bf16", "i64", "f16")
    task = Task("m", str(tmp_path / "f.npz"), ("a", "b", "c"), names,
                tuple(a.shape for a in arrays), {}, False, 1)  # fmt: skip
    for found, sent in zip(task.arrays(), arrays):
        assert found.dtype == sent.dtype and found.shape == sent.shape and (found == sent).all()
    save_outputs(str(tmp_path / "a.npz"), arrays)
    assert [a.shape for a in read_outputs(tmp_path / "a.npz")] == [(2, 3), (), (0, 2)]


def test_who_takes_part():
    names, skipped = choose(["onnxruntime", "torch"], ["again", "module"], Model())
    assert names == ["ingot", "ingot-again", "onnxruntime"]
    assert list(skipped) == ["torch", "ingot-module"]
    both = Model(has_torch_file=True, has_images=True)
    assert choose(["torch"], ["module"], both)[0] == ["ingot", "ingot-module", *TORCH]
    rows = choose(["onnxruntime", "torch"], ["backend"], Model(is_torch=True, has_torch_file=True))
    assert rows[0] == ["ingot", "ingot-backend", "torch-eager", "torch-compile", "torch-freezing"]
    assert list(rows[1]) == ["onnxruntime", "torch-channels-last"]


def test_p99_needs_five_hundred_calls():
    assert p99_ms([0.001] * 499) is None
    assert p99_ms([i / 1000 for i in range(1, 1001)]) == pytest.approx(990, abs=1)
