"""Encoders of ai.onnx.ml, maps and n-grams against ONNX Runtime and ONNX's evaluator."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto as P
from onnx import helper, numpy_helper

import ingot
from ingot.support.errors import IngotError
from tests.ops.string_models import ML, by_onnx, check, info, model, node, one, texts

S = P.STRING
KEYS = {
    "strings": ["a", "b", "é", "long word"],
    "int64s": [3, -1, 500000, 7],
    "floats": [0.5, -2.0, 1e10, 0.0],
}
CODES = {"strings": S, "int64s": P.INT64, "floats": P.FLOAT}
GIVEN = {
    "strings": texts("a", "zz", "é", "b", "", "long word"),
    "int64s": np.array([3, 4, 500000, -1, 0, 7]),
    "floats": np.array([0.5, 0.25, np.nan, -2, -0.0, 1e10], np.float32),
}


PAIRS = [("strings", "int64s"), ("int64s", "strings"), ("floats", "floats"), ("floats", "strings"),
         ("strings", "strings")]  # fmt: skip


@pytest.mark.parametrize(("keys", "values"), PAIRS)
def test_label_encoder(keys, values):
    x = GIVEN[keys]
    attrs = {f"keys_{keys}": KEYS[keys], f"values_{values}": KEYS[values]}
    made = one("LabelEncoder", x, CODES[values], ML, **attrs)
    exe = ingot.compile(made)
    for some in (x, x[:1], x[::-1]):
        check(made, {"x": some}, exe=exe)


def test_label_encoder_defaults():
    given = {"default_string": "none", "default_int64": 5, "default_float": 0.5}
    for values, code in CODES.items():
        attrs = {"keys_strings": KEYS["strings"], f"values_{values}": KEYS[values], **given}
        check(one("LabelEncoder", GIVEN["strings"], code, ML, **attrs), {"x": GIVEN["strings"]})


@pytest.mark.parametrize("kind", [np.int64, np.int16, np.float64, object])
def test_label_encoder_of_tensors(kind):
    """Opset 4: NaN is a key."""
    keys = {"f": np.array([1.5, np.nan, -3]), "O": texts("p", "q", "r")}
    kinds = {np.int64: np.array([4, 5, 9]), np.int16: np.array([4, 5, -9], np.int16)}
    table = kinds[kind] if kind in kinds else keys[np.dtype(kind).kind].astype(kind)
    x = np.concatenate([table[::-1], table[:1]])
    x[-1] = "other" if kind is object else 77
    values = np.array([10, 20, 30], np.int16)
    attrs = {
        "keys_tensor": tensor("keys", table),
        "values_tensor": numpy_helper.from_array(values),
        "default_tensor": numpy_helper.from_array(np.array([-5], np.int16)),
    }
    made = one("LabelEncoder", x, P.INT16, ML, ml=4, **attrs)
    (y,) = ingot.compile(made)(x)
    assert y.dtype == np.int16 and y.tolist() == [30, 20, 10, -5]


def tensor(name: str, array: np.ndarray) -> onnx.TensorProto:
    if array.dtype == object:
        return helper.make_tensor(name, S, array.shape, [t.encode() for t in array])
    return numpy_helper.from_array(array, name)


def test_the_first_label_encoder():
    names = {"classes_strings": ["x", "y", "z"], "default_string": "?", "default_int64": -7}
    to_numbers = one("LabelEncoder", texts("y"), P.INT64, ML, ml=1, **names)
    check(to_numbers, {"x": texts("z", "q", "x")})
    to_names = one("LabelEncoder", np.array([1]), S, ML, ml=1, **names)
    check(to_names, {"x": np.array([2, -1, 0, 3])})


@pytest.mark.parametrize("x", [texts("b", "q", "a"), np.array([8, 1, 2, 100])], ids=["str", "int"])
def test_category_mapper(x):
    attrs = {"cats_strings": ["a", "b", "c"], "cats_int64s": [8, 1, 100]}
    gives = P.INT64 if x.dtype == object else S
    check(one("CategoryMapper", x, gives, ML, **attrs), {"x": x})


@pytest.mark.parametrize(
    "x",
    [
        texts("b", "q", "a").reshape(3, 1),
        np.array([[8, 1], [2, 100]]),
        np.array([8.5, 1, -1], np.float32),
    ],
    ids=["str", "int", "float"],
)
def test_one_hot_encoder(x):
    cats = {"cats_strings": ["a", "b", "c"]} if x.dtype == object else {"cats_int64s": [1, 8, 100]}
    check(one("OneHotEncoder", x, P.FLOAT, ML, **cats), {"x": x})


def test_one_hot_encoder_without_zeros():
    made = one("OneHotEncoder", texts("a"), P.FLOAT, ML, cats_strings=["a", "b"], zeros=0)
    exe = ingot.compile(made)
    check(made, {"x": texts("b", "a")}, exe=exe)
    with pytest.raises(IngotError, match="none of the categories") as caught:
        exe(texts("b", "c"))
    assert "OneHotEncoder" in caught.value.where


def test_encoders_in_a_row_are_native():
    made = model(
        [
            node("LabelEncoder", "x", "i", ML, keys_strings=["p", "q"], values_int64s=[1, 2]),
            node("LabelEncoder", "i", "y", ML, keys_int64s=[2, 1], values_strings=["two", "one"]),
        ],
        [info("x", S, ["n", 2])],
        [info("y", S, None)],
    )
    exe = ingot.compile(made)
    check(made, {"x": texts("p", "q", "z", "q").reshape(2, 2)}, exe=exe)
    assert not exe.package.host_steps


@pytest.mark.parametrize(
    ("op", "attrs", "what"),
    [
        ("LabelEncoder", {"keys_strings": ["a"], "values_int64s": [1, 2]}, "one length"),
        ("LabelEncoder", {"keys_strings": ["a"]}, "one length"),
        ("CategoryMapper", {"cats_strings": ["a"], "cats_int64s": [1, 2]}, "1 strings and 2 num"),
        ("OneHotEncoder", {"cats_int64s": [1]}, "no cats_strings"),
    ],
)
def test_attributes_that_do_not_fit(op, attrs, what):
    with pytest.raises(IngotError, match=what) as caught:
        ingot.compile(one(op, texts("a"), P.INT64, ML, **attrs))
    assert caught.value.code == "bad-model" and op in caught.value.where


# --- maps ---------------------------------------------------------------------------------------


def map_info(name: str, key: int, value: int) -> onnx.ValueInfoProto:
    values = helper.make_tensor_type_proto(value, [])
    return helper.make_value_info(name, helper.make_map_type_proto(key, values))


def maps_info(name: str, key: int) -> onnx.ValueInfoProto:
    values = helper.make_tensor_type_proto(P.FLOAT, [])
    kind = helper.make_sequence_type_proto(helper.make_map_type_proto(key, values))
    return helper.make_value_info(name, kind)


@pytest.mark.parametrize("labels", [["b", "a", "é"], [7, 2, 5]], ids=["str", "int"])
def test_zip_map(labels, tmp_path):
    is_text = isinstance(labels[0], str)
    attrs = {"classlabels_strings" if is_text else "classlabels_int64s": labels}
    made = model(
        [node("Softmax", "x", "p"), node("ZipMap", "p", "y", ML, **attrs)],
        [info("x", P.FLOAT, ["n", 3])],
        [maps_info("y", S if is_text else P.INT64), info("p", P.FLOAT, None)],
    )
    exe = ingot.compile(made)
    exe.save(tmp_path / "m.plan")
    x = np.random.default_rng(3).standard_normal((4, 3)).astype(np.float32)
    for each in (exe, ingot.load(tmp_path / "m.plan")):
        rows, p = each(x)
        assert [list(row) for row in rows] == [labels] * 4
        assert [list(row.values()) for row in rows] == p.tolist()
    assert exe.run(["y"], {"x": x[:0]}) == [[]]
    with pytest.raises(IngotError, match="list of dicts"):
        exe.run(None, {"x": x}, out={"y": np.empty((4, 3), np.float32)})


def test_zip_map_is_as_in_onnxruntime():
    made = model(
        [node("ZipMap", "x", "y", ML, classlabels_strings=["p", "q"])],
        [info("x", P.FLOAT, ["n", 2])],
        [maps_info("y", S)],
    )
    check(made, {"x": np.array([[0.25, 0.75], [1, 0]], np.float32)})


@pytest.mark.parametrize(
    ("given", "attrs"),
    [
        ({"b": 1.5, "a": 2.0, "zz": 3.0}, {"string_vocabulary": ["a", "q", "b"]}),
        ({7: 1.5, -2: 2.0}, {"int64_vocabulary": [9, -2]}),
    ],
    ids=["str", "int"],
)
def test_dict_vectorizer(given, attrs):
    key = S if isinstance(next(iter(given)), str) else P.INT64
    made = model(
        [node("DictVectorizer", "x", "y", ML, **attrs)],
        [map_info("x", key, P.FLOAT)],
        [info("y", P.FLOAT, None)],
    )
    exe = ingot.compile(made)
    assert [port.name for port in exe.inputs] == ["x"]
    check(made, {"x": given}, exe=exe)
    assert not exe({})[0].any()


@pytest.mark.parametrize("form", ["DENSE", "SPARSE"])
def test_cast_map(form):
    made = model(
        [node("CastMap", "x", "y", ML, cast_to="TO_FLOAT", map_form=form, max_map=6)],
        [map_info("x", P.INT64, P.FLOAT)],
        [info("y", P.FLOAT, None)],
    )
    check(made, {"x": {4: 1.5, 1: 3.0}})


@pytest.mark.parametrize(
    ("given", "what"),
    [([1], "not a dict"), ({1: 2.0}, "not an array of strings"), ({"a": "x"}, "not a map")],
)
def test_what_is_no_map(given, what):
    made = model(
        [node("DictVectorizer", "x", "y", ML, string_vocabulary=["a"])],
        [map_info("x", S, P.FLOAT)],
        [info("y", P.FLOAT, None)],
    )
    with pytest.raises(IngotError, match=what):
        ingot.compile(made)(given)


# --- n-grams ------------------------------------------------------------------------------------


def vectorizer(x: np.ndarray, **changes) -> onnx.ModelProto:
    """Unigrams a, b, c; bigrams (a b), (b b), (c a); trigrams (a b a)."""
    names = ["a", "b", "c", "a", "b", "b", "b", "c", "a", "a", "b", "a"]
    is_text = x.dtype == object
    pool = names if is_text else [10 * (ord(n) - ord("a")) for n in names]
    attrs = {
        "mode": "TF", "min_gram_length": 1, "max_gram_length": 3, "max_skip_count": 0,
        "ngram_counts": [0, 3, 9], "ngram_indexes": [0, 2, 1, 3, 5, 4, 6],
        "pool_strings" if is_text else "pool_int64s": pool, **changes,
    }  # fmt: skip
    return one("TfIdfVectorizer", x, P.FLOAT, **attrs)


def rows(is_text: bool, shape: tuple[int, ...], seed: int = 4) -> np.ndarray:
    found = np.random.default_rng(seed).integers(0, 4, shape)
    return np.array(["a", "b", "c", "d"], object)[found] if is_text else 10 * found


@pytest.mark.parametrize(
    ("is_text", "lengths", "skips"),
    [(True, (1, 2), 0), (False, (1, 1), 2), (True, (2, 3), 1), (False, (3, 3), 0)],
)
def test_n_grams(is_text, lengths, skips):
    low, high = lengths
    x = rows(is_text, (3, 9))
    more = {"min_gram_length": low, "max_gram_length": high, "max_skip_count": skips}
    check(vectorizer(x, **more), {"x": x})


@pytest.mark.parametrize("mode", ["IDF", "TFIDF"])
def test_n_grams_with_weights(mode):
    x = rows(True, (2, 7))
    weights = [0.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    check(vectorizer(x, mode=mode, weights=weights, max_gram_length=2), {"x": x})


def test_n_grams_of_vectors_and_short_rows():
    for x in (rows(True, (5,)), rows(False, (4, 1)).astype(np.int32)):
        check(vectorizer(x, max_gram_length=2), {"x": x}, by_onnx)


def test_n_grams_that_do_not_fit():
    x = rows(True, (2, 3))
    for changes in ({"ngram_indexes": [0]}, {"ngram_counts": [0, 99]}, {"mode": "?"}):
        with pytest.raises(IngotError) as caught:
            ingot.compile(vectorizer(x, **changes))
        assert caught.value.code == "bad-model"
