"""Every converter module: importing this one fills registry.TABLE. Imported by walker."""

from __future__ import annotations

from ingot.frontends.onnx import (
    activation,
    control,
    conv,
    elementwise,
    gather,
    linalg,
    matmul,
    movement,
    norm,
    pool,
    quant,
    reduce,
    resize,
    rnn,
    signal,
    softmax,
    sources,
    unique,
)

FAMILIES = (
    activation, control, conv, elementwise, gather, linalg, matmul, movement, norm, pool, quant,
    reduce, resize, rnn, signal, softmax, sources, unique,
)  # fmt: skip
