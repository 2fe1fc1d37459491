"""Every converter module: importing this one fills registry.TABLE. Imported by walker."""

from __future__ import annotations

from ingot.frontends.onnx import (
    activation,
    control,
    conv,
    elementwise,
    gather,
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
)
from ingot.frontends.onnx.contrib import fused as contrib_fused
from ingot.frontends.onnx.contrib import norm as contrib_norm
from ingot.frontends.onnx.contrib import qlinear as contrib_qlinear

FAMILIES = (
    activation, control, conv, elementwise, gather, matmul, movement, norm, pool, quant, reduce,
    resize, rnn, softmax, sources,
    contrib_fused, contrib_norm, contrib_qlinear,
)  # fmt: skip
