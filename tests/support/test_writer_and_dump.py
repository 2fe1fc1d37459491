"""The text writer and the recorder of stages."""

from __future__ import annotations

import pytest

from ingot.support.dump import Dump
from ingot.support.text import Writer, columns


def test_writer_indents():
    w = Writer()
    with w.indent("def f() {", "}"):
        w.line("one")
        w.line()
        with w.indent():
            w.block("two\nthree")
    assert str(w) == "def f() {\n    one\n\n        two\n        three\n}\n"


def test_writer_depth_survives_a_failure():
    w = Writer("  ")
    with pytest.raises(RuntimeError), w.indent("open", "close"):
        raise RuntimeError
    w.line("after")
    assert w.text() == "open\nafter\n"


def test_columns_align():
    assert columns([("a", "bb", "c"), ("aaa", "b")]) == ["a    bb  c", "aaa  b"]
    assert columns([]) == []


def test_dump_writes_numbered_files(tmp_path):
    dump = Dump(tmp_path / "deep" / "er")
    dump.record("import", "graph text")
    with dump.stage("lower/all") as stage:
        stage.show(lambda: "loops text", suffix="py")
    names = {p.name: p.read_text() for p in (tmp_path / "deep" / "er").iterdir()}
    assert names == {"00-import.txt": "graph text", "01-lower-all.py": "loops text"}
    assert [e.stage for e in dump.entries] == ["import", "lower/all"]


def test_dump_makes_no_text_that_nobody_wants():
    def unwanted() -> str:
        raise AssertionError("made for nobody")

    dump = Dump()
    dump.record("stage", unwanted, time_s=0.25)
    dump.record("stage", unwanted, time_s=0.5)
    assert dump.times_s == {"stage": 0.75}
    assert "stage" in dump.table() and "750.0 ms" in dump.table()


def test_dump_keeps_texts_for_show():
    dump = Dump(keep=True)
    with dump.stage("fuse") as stage:
        stage.show("text")
    assert dump.entries[0].text == "text" and dump.entries[0].time_s >= 0


def test_a_failed_stage_is_not_recorded():
    dump = Dump()
    with pytest.raises(RuntimeError), dump.stage("breaks"):
        raise RuntimeError
    assert dump.entries == []
