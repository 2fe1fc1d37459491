"""Attacks by the meaning of single operators: trees with cycles, images that unpack to gigabytes,
patterns that never end, sequences that grow, sizes that data decides.

In: a ModelProto that is changed, a random generator. `ALL` has those of attacks.py too; called by
mutate.py and test_bad_models.py. One whose operator is not supported is refused for that.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
from onnx import TensorProto as P
from onnx import helper

from tests.fuzz.bad_models.attacks import ATTACKS, Model, Rng, _i64, _put
from tests.models.parts import graph, info, node

ML = "ai.onnx.ml"


def tree_of_no_end(proto: Model, rng: Rng) -> None:
    """Nodes that lead back, to themselves, or nowhere; features that there are not."""
    step = rng.choice((0, 1, 7, -1, 1 << 40))
    count = rng.choice((1, 2, 3))
    attrs = {
        "nodes_treeids": [0] * count, "nodes_nodeids": list(range(count)),
        "nodes_featureids": [rng.choice((0, 1, 5, -1, 1 << 40)) for _ in range(count)],
        "nodes_values": [rng.choice((0.5, float("nan"))) for _ in range(count)],
        "nodes_modes": [rng.choice(("BRANCH_LEQ", "LEAF", "BRANCH_XX")) for _ in range(count)],
        "nodes_truenodeids": [(i + step) % (1 << 41) for i in range(count)],
        "nodes_falsenodeids": [0] * count,
        "target_treeids": [0], "target_nodeids": [rng.choice((0, 9))], "target_weights": [1.0],
        "target_ids": [rng.choice((0, 3, -1))], "n_targets": rng.choice((1, 0, 1 << 40)),
    }  # fmt: skip
    made = node("TreeEnsembleRegressor", "tree_x", "tree_y", domain=ML, **attrs)
    _put(proto, [made], "tree_y", tree_x=np.ones((2, 2), np.float32))


def ragged_trees(proto: Model, rng: Rng) -> None:
    """Lists of an ensemble whose lengths disagree."""
    lengths = rng.choices((0, 1, 2, 3), k=4)
    attrs = {
        "tree_roots": [0] * lengths[0], "nodes_featureids": [0] * lengths[1],
        "nodes_truenodeids": [0] * lengths[2], "nodes_falsenodeids": [0] * lengths[3],
        "nodes_trueleafs": [1] * lengths[0], "nodes_falseleafs": [1] * lengths[0],
        "leaf_targetids": [0] * lengths[1], "n_targets": 1,
        "leaf_weights": helper.make_tensor("w", P.FLOAT, [1], [1.0]),
        "nodes_splits": helper.make_tensor("s", P.FLOAT, [1], [1.0]),
        "nodes_modes": helper.make_tensor("m", P.UINT8, [1], [rng.choice((0, 6, 200))]),
    }  # fmt: skip
    given = {name: value for name, value in attrs.items() if value != []}
    made = node("TreeEnsemble", "trees_x", "trees_y", domain=ML, **given)
    proto.opset_import.append(helper.make_opsetid(ML, 5))
    _put(proto, [made], "trees_y", trees_x=np.ones((2, 2), np.float32))


def short_coefficients(proto: Model, rng: Rng) -> None:
    """Attributes of linear and support vector models that do not fit the features."""
    op = rng.choice(("LinearRegressor", "LinearClassifier", "SVMRegressor", "Scaler", "Imputer"))
    attrs: dict = {"coefficients": [1.0] * rng.choice((0, 1, 5))}
    match op:
        case "LinearRegressor":
            attrs |= {"targets": rng.choice((1, 0, -1, 1 << 50)), "intercepts": [0.5]}
        case "LinearClassifier":
            attrs |= {"classlabels_ints": [1] * rng.choice((1, 2, 5)), "intercepts": [0.5]}
        case "SVMRegressor":
            attrs |= {"n_supports": rng.choice((1, 3, -1, 1 << 50)), "rho": [0.5],
                      "support_vectors": [1.0] * rng.choice((1, 2, 7)), "kernel_type": "POLY",
                      "kernel_params": [1.0] * rng.choice((1, 3))}  # fmt: skip
        case "Scaler":
            attrs = {"offset": [1.0] * rng.choice((0, 1, 5)), "scale": [1.0] * rng.choice((1, 5))}
        case _:
            attrs = {
                "imputed_value_floats": [1.0] * rng.choice((1, 3)),
                "replaced_value_float": 1.0,
            }
    attrs = {name: value for name, value in attrs.items() if value != []}
    made = node(op, "lin_x", "lin_y", domain=ML, **attrs)
    _put(proto, [made], "lin_y", lin_x=np.ones((2, 2), np.float32))


def growing_sequence(proto: Model, rng: Rng) -> None:
    """A loop that inserts into the sequence that it carries, for ever."""
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(P.FLOAT, None))
    body = graph(
        "body",
        [node("Identity", "go", "go_on"), node("SequenceInsert", "s seq_x", "s_next")],
        [info("turn", [], P.INT64), info("go", [], P.BOOL), helper.make_value_info("s", kind)],
        [info("go_on", [], P.BOOL), helper.make_value_info("s_next", kind)],
    )
    nodes = [
        node("SequenceEmpty", "", "seq_0"),
        node("Loop", "seq_n seq_yes seq_0", "seq_end", body=body),
        node("SequenceAt", "seq_end seq_at", "seq_one"),
    ]
    _put(proto, nodes, "seq_one", seq_n=np.int64(rng.choice((3, 1 << 60))), seq_yes=np.array(True),
         seq_x=np.ones(rng.choice((2, 1 << 16)), np.float32),
         seq_at=np.int64(rng.choice((0, -1, 5, 1 << 40))))  # fmt: skip


def huge_random(proto: Model, rng: Rng) -> None:
    shape = rng.choices((2, 1 << 20, 1 << 40, 0, -1), k=2)
    op = rng.choice(("RandomNormal", "RandomUniform"))
    _put(proto, [node(op, "", "rand", shape=shape, dtype=rng.choice((1, 10, 11, 7)))], "rand")


def many_samples(proto: Model, rng: Rng) -> None:
    size = rng.choice((0, -1, 1 << 40))
    _put(proto, [node("Multinomial", "odds", "drawn", sample_size=size)], "drawn",
         odds=np.array([[0, np.nan, -1]], np.float32))  # fmt: skip


def long_transform(proto: Model, rng: Rng) -> None:
    """A transform or a filter bank of a length that data gives."""
    length = np.int64(rng.choice((0, -3, 1 << 40, 7)))
    if rng.random() < 0.5:
        made = node("DFT", "wave wave_n", "waves", axis=1, onesided=rng.choice((0, 1)))
        _put(proto, [made], "waves", wave=np.ones((1, 8, 1), np.float32), wave_n=length)
    else:
        made = node("MelWeightMatrix", "mel_bins mel_n mel_rate mel_low mel_high", "mel")
        _put(proto, [made], "mel", mel_bins=length, mel_n=np.int64(rng.choice((16, 1 << 50))),
             mel_rate=np.int64(rng.choice((0, 8000))), mel_low=np.float32(rng.choice((-1, 0))),
             mel_high=np.float32(rng.choice((np.nan, 4000))))  # fmt: skip


def endless_pattern(proto: Model, rng: Rng) -> None:
    pattern = rng.choice(("(a+)+$", "(", "[", "a{1,99999}", "(?P<x>a)(?P=x)", "\\", "(a|a)*b"))
    text = np.array(["a" * rng.choice((3, 40, 4000)) + "!"], object)
    _put(proto, [node("RegexFullMatch", "re_x", "re_y", pattern=pattern)], "re_y", re_x=text)


def image_bomb(proto: Model, rng: Rng) -> None:
    """A picture of a few bytes that says it has a thousand million pixels, or is cut short."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        sealed = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", sealed)

    side = rng.choice((0, 1, 1 << 15, 1 << 30))
    head = struct.pack(">IIBBBBB", side, side, 8, rng.choice((0, 2, 6, 9)), 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 999))
    data = rng.choice(
        (data, data + chunk(b"IEND", b""), data[:20], b"", b"\xff\xd8\xff\xe0", b"BM")
    )
    _put(
        proto, [node("ImageDecoder", "png", "pixels")], "pixels", png=np.frombuffer(data, np.uint8)
    )


def far_boxes(proto: Model, rng: Rng) -> None:
    """Regions and grids outside of their image, of no size, and not a number."""
    kind = rng.choice(("RoiAlign", "GridSample", "MaxUnpool", "NonMaxSuppression", "CenterCropPad"))
    spot = np.float32(rng.choice((np.nan, np.inf, -1e30, 1e30, 5)))
    image = np.ones((1, 1, 4, 4), np.float32)
    match kind:
        case "RoiAlign":
            sizes = {"sampling_ratio": rng.choice((0, -1, 1 << 30)), "output_height": 1 << 30}
            made = node("RoiAlign", "im boxes which", "far", **sizes)
            given = {"boxes": np.full((1, 4), spot), "which": _i64(rng.choice((0, 7, -1)))}
        case "GridSample":
            mode = rng.choice(("linear", "cubic", "bilinear"))
            made = node("GridSample", "im grid", "far", mode=mode, padding_mode="reflection")
            given = {"grid": np.full((1, 2, 2, 2), spot)}
        case "MaxUnpool":
            made = node("MaxUnpool", "im where", "far", kernel_shape=[2, 2], strides=[2, 2])
            given = {"where": np.full((1, 1, 4, 4), rng.choice((0, -1, 64, 1 << 40)))}
        case "NonMaxSuppression":
            made = node("NonMaxSuppression", "boxes scores top", "far", center_point_box=1)
            given = {"boxes": np.full((1, 9, 4), spot), "scores": np.full((1, 1, 9), spot),
                     "top": _i64(rng.choice((-1, 0, 1 << 62)))}  # fmt: skip
        case _:
            made = node("CenterCropPad", "im size", "far", axes=[rng.choice((2, -9, 99))])
            given = {"size": _i64(rng.choice((-1, 0, 1 << 40)))}
    _put(proto, [made], "far", im=image, **given)


def odd_grams(proto: Model, rng: Rng) -> None:
    """A table of n-grams whose parts do not lie one after the other."""
    made = node(
        "TfIdfVectorizer", "gram_x", "gram_y", mode=rng.choice(("TF", "IDF", "XX")),
        min_gram_length=rng.choice((1, 0, -1, 9)), max_gram_length=rng.choice((1, 2, 1 << 40)),
        max_skip_count=rng.choice((0, -1, 1 << 40)), pool_int64s=[1, 2, 3, 4],
        ngram_counts=rng.choice(([0, 2], [2, 0], [0, 99], [-1])),
        ngram_indexes=rng.choice(([0, 1, 2], [0, 1 << 40, 1], [-1, 0, 0])),
    )  # fmt: skip
    _put(proto, [made], "gram_y", gram_x=_i64(1, 2, 3))


OPERATOR_ATTACKS = [
    tree_of_no_end, ragged_trees, short_coefficients, growing_sequence, huge_random, many_samples,
    long_transform, endless_pattern, image_bomb, far_boxes, odd_grams,
]  # fmt: skip
ALL = [*ATTACKS, *OPERATOR_ATTACKS]
