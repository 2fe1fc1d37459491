"""Mutants of model files that escaped once, as small models: refused or compiled at once."""

from __future__ import annotations

import numpy as np

import ingot
from ingot.frontends.onnx.walker import import_model
from ingot.graph.store import ConstantStore
from tests.frontends.walker_models import imported, refused_model, simple
from tests.models.parts import info, node


def test_a_transform_of_huge_length_has_no_tables():
    """The roots of unity of 2^40 points would take 16 TB."""
    proto = simple(
        node("DFT", "x n", "y", axis=1), inputs=[info("x", [1, 8, 1])], outputs=[info("y", [])],
        n=np.int64(1 << 40),
    )  # fmt: skip
    graph = import_model(proto, ConstantStore())
    assert "dft" in {made.op for made in graph.nodes}


def grams(**changed: object):
    attrs = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 1,
             "ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2], "pool_int64s": [1, 2, 1, 2],
             }  # fmt: skip
    made = node("TfIdfVectorizer", "x", "y", **{**attrs, **changed})
    return made


def test_skips_beyond_the_row_are_not_unrolled():
    ids = info("x", [5], 7)
    for skips in (5, 1 << 62):
        graph, _ = imported(simple(grams(max_skip_count=skips), inputs=[ids]))
        assert len(graph.nodes) < 200
    row = info("x", ["n"], 7)
    proto = simple(grams(max_skip_count=1 << 62), inputs=[row])
    refused_model(proto, 1024, code="limit", where="TfIdfVectorizer_y")


def test_lengths_of_n_grams_that_there_are_not():
    proto = simple(grams(max_gram_length=1 << 40), inputs=[info("x", [5], 7)])
    refused_model(proto, where="TfIdfVectorizer_y")


def test_a_constant_grid_that_is_not_a_number():
    """It is folded: the reference reads at no index beyond the image."""
    for spot in (np.nan, np.inf, -1e30):
        made = node("GridSample", "im grid", "y", padding_mode="reflection")
        grid = np.full((1, 2, 2, 2), spot, np.float32)
        proto = simple(made, inputs=(), im=np.ones((1, 1, 4, 4), np.float32), grid=grid)
        assert ingot.compile(proto, jobs=1)()[0].shape == (1, 1, 2, 2)
