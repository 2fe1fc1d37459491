"""exe.context(): one code, memory of one's own."""

from __future__ import annotations

import copy
import gc
import pickle

import ingot
from tests.models.build import HARD
from tests.refusal import refused


def test_a_context_shares_code_but_no_memory():
    model, feeds = HARD["residual_cnn"]()
    exe = ingot.compile(model, threads=1)
    want = exe.run(None, feeds)
    own = exe.context()
    own.threads = 2
    got = own.run(None, feeds)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(got, want))
    assert exe.threads == 1 and own.package is exe.package
    theirs, mine = ({id(c) for c in x._loaded._free_contexts()} for x in (exe, own))
    assert theirs and mine and not theirs & mine


def test_a_context_outlives_what_it_came_from():
    model, feeds = HARD["transformer_block"]()
    exe = ingot.compile(model)
    want, own = exe.run(None, feeds), exe.context()
    del exe
    gc.collect()
    assert all(a.tobytes() == b.tobytes() for a, b in zip(own.run(None, feeds), want))


def test_no_copies_and_no_pickles():
    """Half a copy would free the code that the other runs."""
    model, feeds = HARD["residual_cnn"]()
    exe = ingot.compile(model)
    want = exe.run(None, feeds)
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with refused("bad-option", hint=("exe.save", "ingot.load")):
            attempt(exe)
    gc.collect()
    assert all(a.tobytes() == b.tobytes() for a, b in zip(exe.run(None, feeds), want))
