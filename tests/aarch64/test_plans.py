"""Plans compiled for AArch64 on this machine, loaded and run by an arm64 Python under qemu: the
digits model, the hard models and every operator's samples, each with one thread and with three.

All plans are made first, then one process runs them: its start takes seconds.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from ingot import api, dtypes, pipeline
from ingot.graph.opdef import TABLE
from ingot.runtime import plan_file
from ingot.runtime.package import Package
from tests.aarch64 import install
from tests.aarch64.arrays import read_arrays, write_arrays
from tests.aarch64.child import THREADS
from tests.models.build import HARD
from tests.models.peers import assert_all_agree, onnxruntime_answers
from tests.ops.many import Batch, batch
from tests.ops.test_compiled import SAMPLED, check

pytestmark = pytest.mark.long
DIGITS = install.ROOT / "examples" / "digits"
MODELS = ["residual_cnn", "transformer_block", "lstm", "loop", "if_of_sizes", "dynamic_sequence"]


def plan(folder: Path, name: str, package: Package, feeds: dict[str, np.ndarray]) -> None:
    plan_file.save(str(folder / f"{name}.plan"), package)
    write_arrays(folder / f"{name}.feeds.npz", feeds)


def samples(name: str) -> Batch:
    op = TABLE[name]
    return batch(op, [s for s in op.samples() if not s.fails])


def operator_package(case: Batch) -> Package:
    session = api.make_session("aarch64")
    session.store = case.store
    return pipeline.run_stages(case.graph, session)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all plans, after they ran."""
    if not install.emulator().exists():
        pytest.fail("qemu and the arm64 Python are missing: run `make aarch64`")
    folder = tmp_path_factory.mktemp("aarch64")
    data = np.load(DIGITS / "test.npz")
    digits = pipeline.run_stages(str(DIGITS / "digits.onnx"), api.make_session("aarch64"))
    plan(folder, "digits", digits, {digits.inputs[0].name: data["images"]})
    for name in MODELS:
        model, feeds = HARD[name]()
        plan(folder, name, pipeline.run_stages(model, api.make_session("aarch64")), feeds)
    for name in SAMPLED:
        case = samples(name)
        plan(folder, f"op-{name}", operator_package(case), case.feeds)
    words = install.command("-m", "tests.aarch64.child", str(folder))
    done = subprocess.run(words, cwd=install.ROOT, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0 and done.stdout.startswith("done"), done.stdout + done.stderr
    return folder


def outputs(ran: Path, name: str, threads: int) -> dict[str, np.ndarray]:
    error = ran / f"{name}.{threads}.error"
    assert not error.exists(), error.read_text()
    ports = plan_file.read(str(ran / f"{name}.plan")).package.outputs
    types = {port.name: dtypes.of(port.dtype).numpy for port in ports}
    return read_arrays(ran / f"{name}.{threads}.npz", types)


def assert_equal_for_all_threads(ran: Path, name: str) -> None:
    first, *others = (outputs(ran, name, threads) for threads in THREADS)
    for other in others:
        assert {k: v.tobytes() for k, v in first.items()} == {
            k: v.tobytes() for k, v in other.items()
        }


def test_digits(ran: Path):
    (logits,) = outputs(ran, "digits", 1).values()
    data = np.load(DIGITS / "test.npz")
    np.testing.assert_allclose(logits, data["logits"], rtol=1e-4, atol=1e-4)
    assert (logits.argmax(1) == data["labels"]).mean() > 0.97
    assert_equal_for_all_threads(ran, "digits")


@pytest.mark.parametrize("name", MODELS)
def test_models(ran: Path, name: str):
    model, feeds = HARD[name]()
    assert_all_agree(list(outputs(ran, name, 1).values()), onnxruntime_answers(model, feeds))
    assert_equal_for_all_threads(ran, name)


@pytest.mark.parametrize("name", SAMPLED)
def test_operators(ran: Path, name: str):
    case = samples(name)
    found = outputs(ran, f"op-{name}", 1)
    names = [value.name for value in case.graph.outputs]
    check(case, names, [found[n] for n in names], "aarch64")
    assert_equal_for_all_threads(ran, f"op-{name}")
