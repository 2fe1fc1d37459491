"""What a notebook shows of an executable, a graph and a profile."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

import ingot
from ingot import dtypes, ops
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.graph.text import show
from ingot.graph.types import tensor
from ingot.runtime.profile import Level, Peak, Profile, ProfileRow
from ingot.support.html import HINT_LENGTH, bar, page, table

assert ops.__all__  # importing them fills the operator table

NAME = "<script>alert('x')</script>&\"long\"" + "x" * HINT_LENGTH
VOID = {"br", "hr", "img", "meta", "link", "input"}


class Reader(HTMLParser):
    """The tags, which must be balanced, and the text."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert tag not in VOID
        self.open.append(tag)
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read(html: str) -> Reader:
    """Only what is written here: no script, nothing from elsewhere."""
    found = Reader(html)
    assert found.tags <= {"style", "div", "h4", "table", "thead", "tbody", "tr", "th", "td",
                          "details", "summary", "span"}  # fmt: skip
    assert found.attributes <= {"class", "style", "title"}
    assert "http" not in html and "url(" not in html and "@import" not in html
    return found


@pytest.fixture(scope="module")
def graph() -> Graph:
    g = GraphBuilder("<b>model</b>", ConstantStore())
    x = g.input(NAME, tensor(dtypes.f32, 4, 4))
    return g.finish([g.add("relu", [x])])


def test_names_are_escaped(graph):
    for html in (graph._repr_html_(), ingot.compile(graph, jobs=1)._repr_html_()):
        found = read(html)
        assert NAME in found.texts and "script" not in found.tags
        assert any("<b>model</b>" in text for text in found.texts)


def test_a_graph(graph):
    texts = read(graph._repr_html_()).texts
    assert "f32[4, 4]" in texts and "relu" in texts
    bundle = graph._repr_mimebundle_()
    assert bundle == {"text/plain": show(graph), "text/html": graph._repr_html_()}


def test_an_executable():
    exe = ingot.compile("examples/digits/digits.onnx")
    texts = read(exe._repr_html_()).texts
    assert "image" in texts and "f32[batch, 1, 8, 8]" in texts and "logits" in texts
    assert "node_linear + node_relu_3" in texts and "weights" in texts
    exe.close()
    closed = read(exe._repr_html_()).texts
    assert any("closed" in text for text in closed) and "image" in closed
    assert len(closed) == len(texts)


def test_a_profile():
    peak = Peak(2, 100.0, (Level("memory", None, 5.0),))
    row = ProfileRow("k<1>", f"node {NAME!r} (Conv)", 80.0, 1.0, 1000, 2000, 8, "fma", 40.0)
    profile = Profile((row, row), peak, 200.0, 2, 3)
    found = read(profile._repr_html_())
    assert {"k<1>", NAME, "80.0", "40.0 %", "50 % fma"} <= set(found.texts)
    assert profile._repr_mimebundle_()["text/plain"] == str(profile)
    assert read(Profile((), peak, 0.0, 1, 1)._repr_html_()).texts


def test_parts():
    html = page("t<", "a>", table(("h&",), [(bar(2.0, "<5"),), ("y",)]))
    assert "width: 100.0%" in html and {"t<", "a>", "h&", "<5", "y"} <= set(read(html).texts)
