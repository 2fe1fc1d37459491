"""Real networks, compiled: every output, the tensor before the final Softmax included, agrees with
ONNX Runtime on one thread and two."""

from __future__ import annotations

import numpy as np
import pytest

import ingot
from tests.models.build import bert_two_layers
from tests.models.peers import assert_all_agree, onnxruntime_answers
from tests.models.zoo import light_model


def check(exe: ingot.Executable, model, feeds) -> None:
    want = onnxruntime_answers(model, feeds, threads=2)
    assert any(len(np.unique(array)) > 100 for array in want), "too uniform to prove anything"
    answers = []
    for threads in (1, 2):
        exe.threads = threads
        answers.append(exe.run(None, feeds))
        assert_all_agree(answers[-1], want)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(*answers)), "threads change the answer"


@pytest.mark.parametrize("name", ["resnet50", "squeezenet", "shufflenet"])
def test_light_model_with_refilled_weights(name: str):
    model, feeds = light_model(name)
    assert len(model.graph.output) == 2, "the logits are an output beside the Softmax"
    check(ingot.compile(model), model, feeds)


def test_bert_at_several_sizes():
    model, _ = bert_two_layers()
    exe = ingot.compile(model)
    for batch, length in ((2, 12), (1, 1), (3, 37)):
        check(exe, *bert_two_layers(batch=batch, length=length))
