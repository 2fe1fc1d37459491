"""Every converter module: importing this one fills registry.TABLE. Imported by walker."""

from __future__ import annotations

from ingot.frontends.onnx import (
    activation,
    control,
    conv,
    elementwise,
    gather,
    loop,
    matmul,
    movement,
    norm,
    optional,
    pool,
    quant,
    reduce,
    resize,
    rnn,
    scan,
    sequence,
    softmax,
    sources,
)

FAMILIES = (
    activation, control, conv, elementwise, gather, loop, matmul, movement, norm, optional, pool,
    quant, reduce, resize, rnn, scan, sequence, softmax, sources,
)  # fmt: skip
