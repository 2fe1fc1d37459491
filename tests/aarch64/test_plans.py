"""Plans compiled for AArch64 on this machine, loaded and run by an arm64 Python under qemu: the
digits model, the hard models and every operator's samples, each with one thread and with three.
"""

from __future__ import annotations

import numpy as np
import pytest

from ingot import api, pipeline
from ingot.graph.opdef import TABLE
from ingot.runtime.package import Package
from tests.aarch64 import install
from tests.aarch64.emulated import Plans
from tests.models.build import HARD
from tests.models.peers import assert_all_agree, onnxruntime_answers
from tests.ops.many import Batch, batch
from tests.ops.test_compiled import SAMPLED, check

pytestmark = pytest.mark.long
DIGITS = install.ROOT / "examples" / "digits"
MODELS = ["residual_cnn", "transformer_block", "lstm", "loop", "if_of_sizes", "dynamic_sequence"]


def samples(name: str) -> Batch:
    op = TABLE[name]
    return batch(op, [s for s in op.samples() if not s.fails])


def operator_package(case: Batch) -> Package:
    session = api.make_session("aarch64")
    session.store = case.store
    return pipeline.run_stages(case.graph, session)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Plans:
    """All plans, after they ran."""
    plans = Plans(tmp_path_factory.mktemp("aarch64"))
    data = np.load(DIGITS / "test.npz")
    digits = pipeline.run_stages(str(DIGITS / "digits.onnx"), api.make_session("aarch64"))
    plans.add("digits", digits, {digits.inputs[0].name: data["images"]})
    for name in MODELS:
        model, feeds = HARD[name]()
        plans.add(name, pipeline.run_stages(model, api.make_session("aarch64")), feeds)
    for name in SAMPLED:
        case = samples(name)
        plans.add(f"op-{name}", operator_package(case), case.feeds)
    plans.run()
    return plans


def test_digits(ran: Plans):
    (logits,) = ran.outputs("digits").values()
    data = np.load(DIGITS / "test.npz")
    np.testing.assert_allclose(logits, data["logits"], rtol=1e-4, atol=1e-4)
    assert (logits.argmax(1) == data["labels"]).mean() > 0.97


@pytest.mark.parametrize("name", MODELS)
def test_models(ran: Plans, name: str):
    model, feeds = HARD[name]()
    assert_all_agree(list(ran.outputs(name).values()), onnxruntime_answers(model, feeds))


@pytest.mark.parametrize("name", SAMPLED)
def test_operators(ran: Plans, name: str):
    case = samples(name)
    found = ran.outputs(f"op-{name}")
    names = [value.name for value in case.graph.outputs]
    check(case, names, [found[n] for n in names], "aarch64")
