"""The test models by name: (onnx.ModelProto, feeds) each, seeded, the same in every process.

`HARD` holds a maker for every hard kind; the exported and refilled ones are in zoo.py. Importing
this builds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.models.kinds import (
    f16_weights,
    gather_rows,
    if_of_sizes,
    if_on_flag,
    int8_matmul,
    loop_with_state,
    nonzero_gather,
    residual_cnn,
)
from tests.models.parts import Case, Feeds
from tests.models.sequences import dynamic_sequence, kv_cache, lstm_lengths, transformer_block
from tests.models.zoo import bert_two_layers, light_models

HARD: dict[str, Callable[[], Case]] = {
    "if_true": if_on_flag,
    "if_false": partial(if_on_flag, -1.0),
    "if_of_sizes": if_of_sizes,
    "if_of_sizes_else": partial(if_of_sizes, -1.0),
    "loop": loop_with_state,
    "loop_zero_trips": partial(loop_with_state, 0),
    "nonzero_gather": nonzero_gather,
    "nonzero_none": partial(nonzero_gather, 0),
    "lstm": lstm_lengths,
    "lstm_reverse": partial(lstm_lengths, "reverse"),
    "lstm_both": partial(lstm_lengths, "bidirectional"),
    "dynamic_sequence": dynamic_sequence,
    "dynamic_sequence_long": partial(dynamic_sequence, 3, 17),
    "dynamic_sequence_one": partial(dynamic_sequence, 1, 1),
    "kv_cache_scatter": kv_cache,
    "kv_cache_mask": partial(kv_cache, 5, "mask"),
    "f16_weights": f16_weights,
    "gather_rows": gather_rows,
    "int8_matmul": int8_matmul,
    "residual_cnn": residual_cnn,
    "residual_cnn_one": partial(residual_cnn, 1),
    "transformer_block": transformer_block,
    "transformer_block_long": partial(transformer_block, 3, 11, False),
}

__all__ = [
    "HARD", "Case", "Feeds", "bert_two_layers", "dynamic_sequence", "f16_weights", "gather_rows",
    "if_on_flag", "int8_matmul", "kv_cache", "light_models", "loop_with_state", "lstm_lengths",
    "nonzero_gather", "residual_cnn", "transformer_block",
]  # fmt: skip
