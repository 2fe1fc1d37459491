"""Options: parsed, checked, of one context, fingerprinted; nothing else reads the environment."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.support import options
from tests.refusal import refused
from tests.small import small_model


def test_environment_is_parsed_by_type():
    got = options.from_environment({
        "INGOT_JOBS": "2", "INGOT_VERIFY": "off", "INGOT_DUMP_DIR": "/tmp/x",
        "INGOT_CODEGEN_TIMEOUT_S": "1.5", "INGOT_STACK_LIMIT_BYTES": "0x100", "HOME": "/root",
    })  # fmt: skip
    assert (got.jobs, got.verify, got.dump_dir) == (2, False, "/tmp/x")
    assert (got.codegen_timeout_s, got.stack_limit_bytes) == (1.5, 256)
    assert got.threads is None and options.from_environment({}).jobs is None
    assert options.from_environment({"INGOT_THREADS": "none"}).threads is None


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
def test_bad_values_are_errors_that_name_the_option(name, text, facts, hint):
    with refused("bad-option", *facts, where=name, hint=hint):
        options.from_environment({name: text})


def test_override_nests_and_ends():
    before = options.current()
    with options.override(verify=False, jobs=1):
        with options.override(jobs=None) as inner:
            assert options.current() is inner
            assert (inner.verify, inner.jobs) == (False, None)
        assert options.current().jobs == 1
    assert options.current() == before


def test_override_checks_names_and_types():
    with refused("bad-option", where="speed", hint="jobs"), options.override(speed=11):
        pass
    for name, bad in (("jobs", "two"), ("jobs", True), ("verify", 1), ("opt_level", -1)):
        with refused("bad-option", repr(bad), hint=False) as caught:
            options.changed(**{name: bad})
        assert name in caught.value.what.lower()


def test_an_override_ends_when_its_body_fails():
    before = options.current()
    with pytest.raises(RuntimeError), options.override(jobs=1):
        raise RuntimeError
    assert options.current() == before


def test_fingerprint_holds_exactly_the_options_that_affect_code():
    base = options.fingerprint()
    assert dict(base).keys() == {
        "off", "chunks", "fold_limit_bytes", "opt_level", "spin_count", "stack_limit_bytes",
        "k_unroll", "yield_count", "bf16_dots", "int8_activations",
    }  # fmt: skip
    with options.override(opt_level=0):
        assert options.fingerprint() != base
    with options.override(jobs=1, verify=False, dump_dir="x", threads=3):
        assert options.fingerprint() == base


def test_a_child_process_sees_the_options_in_force():
    with options.override(
        verify=False, jobs=3, dump_dir="Some/Where", codegen_timeout_s=2.5, off={"winograd"}
    ) as here:
        child = options.child_environment(EXTRA="1")
    assert options.from_environment({k: v for k, v in child.items() if k != "EXTRA"}) == here
    assert child["EXTRA"] == "1" and "PATH" in child


def test_every_option_has_a_doc():
    rows = options.describe()
    assert len({name for name, _, _ in rows}) == len(rows)
    assert all(name.startswith("INGOT_") and doc for name, _, doc in rows)


def test_nothing_else_reads_the_environment():
    root = Path(ingot.__file__).parent
    reads = re.compile(r"\bos\.(environ|getenv)\b|from os import .*(environ|getenv)")
    guilty = [p for p in root.rglob("*.py") if reads.search(p.read_text(encoding="utf-8"))]
    assert [p.relative_to(root).as_posix() for p in guilty] == ["support/options.py"]


def test_optimisations_are_switched_off_by_name():
    got = options.from_environment({"INGOT_OFF": "attention, winograd"})
    assert got.off == {"attention", "winograd"}
    assert not got.has("attention") and got.has("layouts")
    with refused("bad-option", "'speed'", where="INGOT_OFF", hint="winograd"):
        options.from_environment({"INGOT_OFF": "winograd,speed"})
    with refused("bad-option", "'speed'", hint="winograd"):
        options.changed(off=["speed"])


def test_options_are_of_one_context():
    """Two compilations at once do not see each other's options."""
    seen = []
    with options.override(jobs=7):
        other = threading.Thread(target=lambda: seen.append(options.current().jobs))
        other.start()
        other.join()
        assert options.current().jobs == 7
    assert seen == [options.current().jobs]


def test_python_and_the_command_line_use_the_same_names():
    values = options.from_text({"off": "winograd", "jobs": "2", "verify": "off"})
    assert options.changed(**values) == options.changed(off=["winograd"], jobs=2, verify=False)
    assert options.Options.of(values) == options.changed(**values)
    with refused("bad-option", where="speed", hint="jobs"):
        options.from_text({"speed": "11"})


# --- ingot.Options --------------------------------------------------------------------------------


def test_options_as_a_value_are_checked_and_take_the_rest_from_the_environment(monkeypatch):
    monkeypatch.setenv("INGOT_JOBS", "3")
    options._from_process.cache_clear()
    try:
        given = ingot.Options(verify=False, off="winograd, attention")  # type: ignore[arg-type]
        assert (given.jobs, given.verify) == (3, False)
        assert given.off == {"winograd", "attention"} and not given.has("winograd")
        assert ingot.Options(off={"prefetch"}).off == {"prefetch"}  # type: ignore[arg-type]
        with options.override(jobs=2):
            assert (
                ingot.Options(verify=False).jobs == options.Options.of({"verify": False}).jobs == 2
            )
    finally:
        monkeypatch.undo()
        options._from_process.cache_clear()


@pytest.mark.parametrize(
    "wrong, facts, hint",
    [
        ({"jobs": 0}, ("jobs", 0, 1), False),
        ({"verify": 1}, (1, "on", "off"), False),
        ({"off": "winogard"}, ("'winogard'",), ("winograd",)),
    ],
)
def test_wrong_values_of_options_are_refused_when_they_are_made(wrong, facts, hint):
    with refused("bad-option", *facts, hint=hint):
        ingot.Options(**wrong)


def test_options_apply_to_one_compilation():
    exe = ingot.compile(
        small_model(), options=ingot.Options(off="fast_path", cache_dir="off", jobs=1)
    )
    x = np.ones((2, 4), np.float32)
    for _ in range(3):
        exe(x)
    assert not exe._loaded._fast_paths
