"""Knobs: parsed, checked, overridden, fingerprinted; and nothing else reads the environment."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ingot
from ingot.support import knobs
from tests.refusal import refused


def test_environment_is_parsed_by_type():
    got = knobs.from_environment({
        "INGOT_JOBS": "2", "INGOT_VERIFY": "off", "INGOT_DUMP_DIR": "/tmp/x",
        "INGOT_CODEGEN_TIMEOUT_S": "1.5", "INGOT_STACK_LIMIT_BYTES": "0x100", "HOME": "/root",
    })  # fmt: skip
    assert (got.jobs, got.verify, got.dump_dir) == (2, False, "/tmp/x")
    assert (got.codegen_timeout_s, got.stack_limit_bytes) == (1.5, 256)
    assert got.threads is None and knobs.from_environment({}) == knobs.Knobs()
    assert knobs.from_environment({"INGOT_THREADS": "none"}).threads is None


@pytest.mark.parametrize(
    "name, text, facts, hint",
    [
        ("INGOT_JBOS", "2", (), ("INGOT_JOBS", "INGOT_VERIFY")),
        ("INGOT_JOBS", "many", ("'many'",), False),
        ("INGOT_JOBS", "0", (0, 1), False),
        ("INGOT_VERIFY", "perhaps", ("'perhaps'", "on", "off"), False),
        ("INGOT_OPT_LEVEL", "7", (7, 0, 3), False),
        ("INGOT_CODEGEN_TIMEOUT_S", "nan", ("nan", 0.1), False),
    ],
)
def test_bad_values_are_errors_that_name_the_knob(name, text, facts, hint):
    with refused("bad-option", *facts, where=name, hint=hint):
        knobs.from_environment({name: text})


def test_override_nests_and_ends():
    before = knobs.current()
    with knobs.override(verify=False, jobs=1):
        with knobs.override(jobs=None) as inner:
            assert knobs.current() is inner
            assert (inner.verify, inner.jobs) == (False, None)
        assert knobs.current().jobs == 1
    assert knobs.current() == before


def test_override_checks_names_and_types():
    with refused("bad-option", where="speed", hint="jobs"), knobs.override(speed=11):
        pass
    for name, bad in (("jobs", "two"), ("jobs", True), ("verify", 1), ("opt_level", -1)):
        with refused("bad-option", repr(bad), hint=False) as caught, knobs.override(**{name: bad}):
            pass
        assert name in caught.value.what.lower()


def test_an_override_ends_when_its_body_fails():
    before = knobs.current()
    with pytest.raises(RuntimeError), knobs.override(jobs=1):
        raise RuntimeError
    assert knobs.current() == before


def test_fingerprint_holds_exactly_the_knobs_that_affect_code():
    base = knobs.fingerprint()
    assert dict(base).keys() == {
        "attention", "chunks", "prefetch", "small_m_gemm", "fold_limit_bytes", "alias_buffers",
        "layouts", "partial_sums", "opt_level", "recognize", "cache_blocks", "scale_weights",
        "sink_reshapes", "spin_count", "stack_limit_bytes", "k_unroll",
        "transpose_tiles", "hoist_guards", "depthwise_order", "winograd", "yield_count",
    }  # fmt: skip
    with knobs.override(opt_level=0):
        assert knobs.fingerprint() != base
    with knobs.override(jobs=1, verify=False, dump_dir="x", threads=3):
        assert knobs.fingerprint() == base


def test_a_child_process_sees_the_knobs_in_force():
    with knobs.override(verify=False, jobs=3, dump_dir="Some/Where", codegen_timeout_s=2.5) as here:
        child = knobs.child_environment(EXTRA="1")
    assert knobs.from_environment({k: v for k, v in child.items() if k != "EXTRA"}) == here
    assert child["EXTRA"] == "1" and "PATH" in child


def test_every_knob_has_a_doc():
    rows = knobs.describe()
    assert len({name for name, _, _ in rows}) == len(rows)
    assert all(name.startswith("INGOT_") and doc for name, _, doc in rows)


def test_nothing_else_reads_the_environment():
    root = Path(ingot.__file__).parent
    reads = re.compile(r"\bos\.(environ|getenv)\b|from os import .*(environ|getenv)")
    guilty = [p for p in root.rglob("*.py") if reads.search(p.read_text(encoding="utf-8"))]
    assert [p.relative_to(root).as_posix() for p in guilty] == ["support/knobs.py"]
