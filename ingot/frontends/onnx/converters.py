"""Every converter module: importing this one fills registry.TABLE. Imported by walker."""

from __future__ import annotations

from ingot.frontends.onnx import (
    activation,
    control,
    conv,
    elementwise,
    encoders,
    features,
    gather,
    linear,
    matmul,
    movement,
    ngrams,
    norm,
    pool,
    quant,
    reduce,
    resize,
    rnn,
    softmax,
    sources,
    strings,
    svm,
    trees,
)

FAMILIES = (
    activation, control, conv, elementwise, encoders, features, gather, linear, matmul, movement,
    ngrams, norm, pool, quant, reduce, resize, rnn, softmax, sources, strings, svm, trees,
)  # fmt: skip
