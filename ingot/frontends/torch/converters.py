"""Every converter module: importing this one fills registry.TABLE. Imported by walker."""

from __future__ import annotations

from ingot.frontends.torch import (
    activation,
    attention,
    backward,
    bags,
    complex,
    conv,
    division,
    elementwise,
    experts,
    formulas,
    indexing,
    matmul,
    movement,
    norm,
    ordered,
    pad,
    points,
    pool,
    random,
    reduce,
    resize,
    rnn,
    softmax,
    sources,
    strided,
    tables,
)

FAMILIES = (
    activation, attention, backward, bags, complex, conv, division, elementwise, experts, formulas,
    indexing, matmul, movement, norm, ordered, pad, points, pool, random, reduce, resize, rnn,
    softmax, sources, strided, tables,
)  # fmt: skip
