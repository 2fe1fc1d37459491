"""Every converter module: importing this one fills registry.TABLE. Imported by walker."""

from __future__ import annotations

from ingot.frontends.onnx import (
    activation,
    control,
    conv,
    elementwise,
    encoders,
    gather,
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
)

FAMILIES = (
    activation, control, conv, elementwise, encoders, gather, matmul, movement, ngrams, norm, pool,
    quant, reduce, resize, rnn, softmax, sources, strings,
)  # fmt: skip
