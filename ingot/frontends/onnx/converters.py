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
from ingot.frontends.onnx.contrib import attention as contrib_attention
from ingot.frontends.onnx.contrib import fused as contrib_fused
from ingot.frontends.onnx.contrib import gates as contrib_gates
from ingot.frontends.onnx.contrib import group_query as contrib_group_query
from ingot.frontends.onnx.contrib import nbits as contrib_nbits
from ingot.frontends.onnx.contrib import norm as contrib_norm
from ingot.frontends.onnx.contrib import others as contrib_others
from ingot.frontends.onnx.contrib import qlinear as contrib_qlinear
from ingot.frontends.onnx.contrib import qmatmul as contrib_qmatmul
from ingot.frontends.onnx.contrib import rotary as contrib_rotary

FAMILIES = (
    activation, control, conv, elementwise, gather, matmul, movement, norm, pool, quant, reduce,
    resize, rnn, softmax, sources,
    contrib_attention, contrib_fused, contrib_gates, contrib_group_query, contrib_nbits,
    contrib_norm, contrib_others, contrib_qlinear, contrib_qmatmul, contrib_rotary,
)  # fmt: skip
