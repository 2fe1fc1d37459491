"""Operators on strings and images, done by the host, against ONNX Runtime and ONNX's evaluator."""

from __future__ import annotations

import builtins
import io

import numpy as np
import pytest
from onnx import TensorProto as P
from onnx import helper

import ingot
from ingot.runtime import regex
from ingot.support.errors import IngotError
from tests.ops.string_models import by_onnx, check, info, model, node, one, texts

S = P.STRING
WORDS = texts("Monday", "tuesday", "", "É l", "a,b,,c", " x  y ", "monday", "日本 語")


@pytest.mark.parametrize("shapes", [((4,), (4,)), ((2, 1), (3,)), ((), (2,)), ((0,), (1,))])
def test_concat_broadcasts(shapes):
    rng = np.random.default_rng(1)
    a, b = (np.array(WORDS[rng.integers(0, len(WORDS), shape)], object) for shape in shapes)
    made = model(
        [node("StringConcat", "a,b", "y")],
        [info("a", S, shapes[0]), info("b", S, shapes[1])],
        [info("y", S, None)],
    )
    check(made, {"a": a, "b": b})


@pytest.mark.parametrize(
    "attrs", [{}, {"delimiter": ","}, {"delimiter": "", "maxsplit": 1}, {"delimiter": "day"}]
)
def test_split(attrs):
    x = WORDS.reshape(2, 4)
    made = model(
        [node("StringSplit", "x", "y,n", **attrs)],
        [info("x", S, ["a", 4])],
        [info("y", S, None), info("n", P.INT64, None)],
    )
    exe = ingot.compile(made)
    for rows in (x, x[:1], x[:, :]):
        check(made, {"x": rows}, by_onnx, exe)


@pytest.mark.parametrize("case", ["NONE", "LOWER", "UPPER"])
@pytest.mark.parametrize("sensitive", [0, 1])
def test_normalizer(case, sensitive):
    x = texts("Monday", "tuesday", "monday", "Sunday", "É")
    attrs = {"case_change_action": case, "is_case_sensitive": sensitive, "stopwords": ["monday"]}
    (y,) = ingot.compile(one("StringNormalizer", x, S, **attrs))(x)
    stop = [t for t in x if (t if sensitive else t.lower()) != "monday"]
    change = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}[case]
    assert y.tolist() == [change(t) for t in stop]
    if case != "NONE" or sensitive:  # ONNX's evaluator strips accents, and ignores case otherwise
        check(one("StringNormalizer", x, S, **attrs), {"x": x[:-1]}, by_onnx)


def test_normalizer_leaves_an_empty_string():
    x = texts("a", "b").reshape(1, 2)
    (y,) = ingot.compile(one("StringNormalizer", x, S, stopwords=["a", "b"]))(x)
    assert y.tolist() == [[""]]


@pytest.mark.parametrize("pattern", ["[a-z]+day", r"(\w+|,)*", "", ".*", "日本.語", "(?i)MONDAY"])
def test_regex(pattern):
    check(one("RegexFullMatch", WORDS, P.BOOL, pattern=pattern), {"x": WORDS})


def without_re2(monkeypatch) -> None:
    plain = builtins.__import__

    def importing(name, *args):
        if name == "re2":
            raise ImportError(name)
        return plain(name, *args)

    monkeypatch.setattr(builtins, "__import__", importing)
    regex.matcher.cache_clear()


def test_regex_without_re2(monkeypatch):
    without_re2(monkeypatch)
    try:
        for pattern in ("[a-z]+day", ".*", "(?i)MONDAY", "(a|b)*c{2,3}"):
            assert regex.matcher(pattern)("monday") == (pattern != "(a|b)*c{2,3}")
        for pattern in ("(a+)+b", r"\p{Greek}", "[[:alpha:]]", "((a*)|b)*"):
            with pytest.raises(IngotError, match="google-re2") as caught:
                regex.matcher(pattern)
            assert caught.value.code == "unsupported-op"
        for pattern in (r"(a)\1", "(?=a)b", "("):
            with pytest.raises(IngotError, match="not a pattern of RE2"):
                regex.matcher(pattern)
    finally:
        regex.matcher.cache_clear()


def test_bad_patterns_name_the_node():
    for pattern in (r"(a)\1", "["):
        with pytest.raises(IngotError, match="not a pattern of RE2") as caught:
            ingot.compile(one("RegexFullMatch", WORDS, P.BOOL, pattern=pattern))
        assert "RegexFullMatch" in caught.value.where


def test_a_catastrophic_pattern_is_linear_in_re2():
    (y,) = ingot.compile(one("RegexFullMatch", WORDS, P.BOOL, pattern="(a+)+b"))(texts("a" * 5000))
    assert not y[0]


# --- numbers ------------------------------------------------------------------------------------

NUMBERS = texts("3.14", "1e-5", "1E8", "-0.5", "NaN", "INF", "-INF", "+INF", "42")


@pytest.mark.parametrize("to", [P.FLOAT, P.DOUBLE])
def test_texts_to_floats(to):
    check(one("Cast", NUMBERS, to, to=to), {"x": NUMBERS}, by_onnx)


def test_texts_to_narrow_floats():
    """Through f32, which is rounded once more."""
    for to in (P.FLOAT16, P.BFLOAT16, P.FLOAT8E4M3FN):
        (y,) = ingot.compile(one("Cast", NUMBERS, to, to=to))(NUMBERS)
        kind = helper.tensor_dtype_to_np_dtype(to)
        want = np.array([float(t) for t in NUMBERS]).astype(np.float32).astype(kind)
        assert y.tobytes() == want.tobytes()


@pytest.mark.parametrize("to", ["INT8", "UINT8", "INT32", "INT64", "UINT64"])
def test_texts_to_integers(to):
    kind = getattr(P, to)
    limits = np.iinfo(helper.tensor_dtype_to_np_dtype(kind))
    x = texts("7", "0", str(limits.min), str(limits.max))
    (y,) = ingot.compile(one("Cast", x, kind, to=kind))(x)
    assert y.dtype == limits.dtype and y.tolist() == [7, 0, limits.min, limits.max]


@pytest.mark.parametrize("text", ["x", "", "1_0", "300", "1.5.2", "0x10"])
def test_texts_that_are_no_numbers(text):
    with pytest.raises(IngotError) as caught:
        ingot.compile(one("Cast", NUMBERS, P.INT8, to=P.INT8))(texts("1", text))
    assert caught.value.code == "run-failed" and "Cast" in caught.value.where


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16, np.int64, np.uint8])
def test_numbers_to_texts(kind):
    x = np.array([0.1, 1e-7, 3, 12345, 0.30000001192092896]).astype(kind)
    (y,) = ingot.compile(one("Cast", x, S, to=S))(x)
    assert y.tolist() == [str(v) for v in x]
    (back,) = ingot.compile(one("Cast", y, P.FLOAT, to=helper.np_dtype_to_tensor_dtype(x.dtype)))(y)
    assert back.tobytes() == x.tobytes()


def test_special_numbers_to_texts():
    x = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    (y,) = ingot.compile(one("Cast", x, S, to=S))(x)
    assert y.tolist() == ["NaN", "INF", "-INF", "-0.0"]


# --- images -------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["RGB", "BGR", "Grayscale"])
def test_images(layout):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(2).integers(0, 256, (7, 5, 3), np.uint8)
    made = one("ImageDecoder", np.zeros(1, np.uint8), P.UINT8, pixel_format=layout)
    exe = ingot.compile(made)
    for size in (7, 4):
        data = io.BytesIO()
        image.fromarray(pixels[:size]).save(data, "png")
        x = np.frombuffer(data.getvalue(), np.uint8)
        check(made, {"x": x}, by_onnx, exe)
    with pytest.raises(IngotError, match="decode_image") as caught:
        exe(x[:20])
    assert "ImageDecoder" in caught.value.where


def test_images_without_pillow(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    made = one("ImageDecoder", np.zeros(1, np.uint8), P.UINT8)
    with pytest.raises(IngotError, match="pillow") as caught:
        ingot.compile(made)(np.zeros(4, np.uint8))
    assert caught.value.hint == "pip install pillow"


# --- refusals -----------------------------------------------------------------------------------


def test_operands_that_are_no_strings():
    numbers = np.zeros(3, np.float32)
    for op, attrs in [("StringSplit", {}), ("StringNormalizer", {}), ("RegexFullMatch", {})]:
        with pytest.raises(IngotError, match="not one of str") as caught:
            ingot.compile(one(op, numbers, S, **attrs))
        assert op in caught.value.where


def test_shapes_that_the_normalizer_refuses():
    x = texts("a", "b", "c", "d").reshape(2, 2)
    made = model([node("StringNormalizer", "x", "y")], [info("x", S, [2, 2])], [info("y", S, None)])
    with pytest.raises(IngotError, match=r"not \[C\] or \[1, C\]"):
        ingot.compile(made)(x)
