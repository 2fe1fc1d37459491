"""Every converter module: importing this one fills registry.TABLE. Imported by walker."""

from __future__ import annotations

from ingot.frontends.onnx import (
    activation,
    control,
    conv,
    elementwise,
    features,
    gather,
    linear,
    matmul,
    movement,
    norm,
    pool,
    quant,
    reduce,
    resize,
    rnn,
    softmax,
    sources,
    svm,
    trees,
)

FAMILIES = (
    activation, control, conv, elementwise, features, gather, linear, matmul, movement, norm, pool,
    quant, reduce, resize, rnn, softmax, sources, svm, trees,
)  # fmt: skip
