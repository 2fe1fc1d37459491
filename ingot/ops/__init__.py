"""Every operator, one file per family. Importing this package fills `graph.opdef.TABLE`."""

from ingot.ops import (
    activation,
    cast,
    conv,
    elementwise,
    gather,
    join,
    matmul,
    movement,
    norm,
    pool,
    power,
    quant,
    reduce,
    scatter,
    softmax,
    sources,
)

__all__ = [
    "activation",
    "cast",
    "conv",
    "elementwise",
    "gather",
    "join",
    "matmul",
    "movement",
    "norm",
    "pool",
    "power",
    "quant",
    "reduce",
    "scatter",
    "softmax",
    "sources",
]
