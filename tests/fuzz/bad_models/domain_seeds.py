"""Small valid models of `ai.onnx.ml` and `com.microsoft`, of which ONNX's suite has few or none.

In: the table below. Out: models by name. Called by corpus.py; a test shows that ONNX Runtime
accepts each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ingot import dtypes
from ingot.ops.common import floats, integers
from tests.ops.peers import node_model

ML, MS = "ai.onnx.ml", "com.microsoft"
X, ROWS = floats(3, 4), floats(2, 3, 8)
U8, I8 = integers(3, 4, dtype=dtypes.u8), integers(4, 5, dtype=dtypes.i8)
SCALE, ZERO = np.float32(0.05), np.uint8(3)
WORDS = np.array(["a", "b", "c"], object)
TREE = {  # two trees over four features: a split with two leaves, and a leaf
    "nodes_treeids": [0, 0, 0, 1], "nodes_nodeids": [0, 1, 2, 0], "nodes_featureids": [2, 0, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0, 0.0], "nodes_truenodeids": [1, 0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF", "LEAF"], "nodes_falsenodeids": [2, 0, 0, 0],
}  # fmt: skip
TARGETS = {"target_treeids": [0, 0, 1], "target_nodeids": [1, 2, 0], "target_ids": [0, 0, 0],
           "target_weights": [1.0, -1.0, 0.5], "n_targets": 1}  # fmt: skip
CLASSES = {"class_treeids": [0, 0, 1], "class_nodeids": [1, 2, 0], "class_ids": [0, 1, 1],
           "class_weights": [1.0, 0.7, 0.2], "classlabels_int64s": [3, 5]}  # fmt: skip
SVM = {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0], "coefficients": [1.0, -1.0],
       "support_vectors": [0.1, 0.2, 0.3, 0.4, 0.4, 0.3, 0.2, 0.1], "rho": [0.1]}  # fmt: skip
QUERY = floats(2, 3, 8)

Row = tuple[str, str, Sequence[Any], dict[str, Any], Sequence[int], int]
TABLE: list[Row] = [  # domain, operator, operands, attributes, constant operands, outputs
    (ML, "Scaler", [X], {"offset": [1.0, 2.0, 3.0, 4.0], "scale": [2.0, 1.0, 1.0, 0.5]}, (), 1),
    (ML, "Normalizer", [X], {"norm": "L2"}, (), 1),
    (ML, "Binarizer", [X], {"threshold": 0.5}, (), 1),
    (ML, "Imputer", [X], {"imputed_value_floats": [1.0], "replaced_value_float": 0.0}, (), 1),
    (ML, "LinearRegressor", [X], {"coefficients": [1.0] * 8, "intercepts": [0.5, 1.0],
                                  "targets": 2}, (), 1),
    (ML, "LinearClassifier", [X], {"coefficients": [0.5] * 8, "intercepts": [0.0, 1.0],
                                   "classlabels_ints": [0, 1], "post_transform": "SOFTMAX"}, (), 2),
    (ML, "SVMRegressor", [X], {**SVM, "n_supports": 2}, (), 1),
    (ML, "SVMClassifier", [X], {**SVM, "classlabels_ints": [0, 1], "vectors_per_class": [1, 1],
                                "prob_a": [0.5], "prob_b": [0.1]}, (), 2),
    (ML, "OneHotEncoder", [np.array([[1], [3]])], {"cats_int64s": [1, 2, 3]}, (), 1),
    (ML, "LabelEncoder", [np.array([1, 2, 9])], {"keys_int64s": [1, 2],
                                                 "values_floats": [0.5, 1.5]}, (), 1),
    (ML, "LabelEncoder", [WORDS], {"keys_strings": ["a", "b"], "values_int64s": [1, 2]}, (), 1),
    (ML, "ArrayFeatureExtractor", [X, np.array([0, 2])], {}, (1,), 1),
    (ML, "FeatureVectorizer", [X, X], {"inputdimensions": [4, 4]}, (), 1),
    (ML, "CategoryMapper", [WORDS], {"cats_strings": ["a", "b"], "cats_int64s": [1, 2]}, (), 1),
    (ML, "TreeEnsembleRegressor", [X], {**TREE, **TARGETS}, (), 1),
    (ML, "TreeEnsembleClassifier", [X], {**TREE, **CLASSES, "post_transform": "LOGISTIC"}, (), 2),
    (ML, "ZipMap", [floats(2, 3)], {"classlabels_strings": ["a", "b", "c"]}, (), 1),
    (MS, "Gelu", [X], {}, (), 1), (MS, "FastGelu", [X, floats(4)], {}, (1,), 1),
    (MS, "BiasGelu", [X, floats(4)], {}, (1,), 1), (MS, "QuickGelu", [X], {"alpha": 1.7}, (), 1),
    (MS, "FusedMatMul", [X, floats(5, 4)], {"transB": 1, "alpha": 0.5}, (1,), 1),
    (MS, "FusedGemm", [X, floats(4, 5), floats(5)], {"activation": "Relu"}, (1, 2), 1),
    (MS, "FusedConv", [floats(1, 2, 5, 5), floats(3, 2, 3, 3)], {"activation": "Relu"}, (1,), 1),
    (MS, "SkipLayerNormalization", [ROWS, ROWS, floats(8), floats(8)], {}, (2, 3), 1),
    (MS, "SkipSimplifiedLayerNormalization", [ROWS, ROWS, floats(8)], {}, (2,), 1),
    (MS, "EmbedLayerNormalization",
     [integers(2, 3, dtype=dtypes.i32, high=3), None, floats(4, 8), floats(5, 8), None, floats(8),
      floats(8)], {}, (2, 3, 5, 6), 2),
    (MS, "Attention", [QUERY, floats(8, 24), floats(24)], {"num_heads": 2}, (1, 2), 1),
    (MS, "MultiHeadAttention", [QUERY, QUERY, QUERY], {"num_heads": 2}, (), 1),
    (MS, "GroupQueryAttention",
     [QUERY, floats(2, 3, 4), floats(2, 3, 4), None, None, np.full(2, 2, np.int32),
      np.array(3, np.int32)], {"num_heads": 2, "kv_num_heads": 1}, (5, 6), 3),
    (MS, "RotaryEmbedding", [floats(2, 2, 3, 8), np.array([0]), floats(6, 4), floats(6, 4)], {},
     (1, 2, 3), 1),
    (MS, "QLinearAdd", [U8, SCALE, ZERO, U8, SCALE, ZERO, SCALE, ZERO], {}, (1, 2, 4, 5, 6, 7), 1),
    (MS, "QLinearMul", [U8, SCALE, ZERO, U8, SCALE, ZERO, SCALE, ZERO], {}, (1, 2, 4, 5, 6, 7), 1),
    (MS, "QLinearSigmoid", [U8, SCALE, ZERO, SCALE, ZERO], {}, (1, 2, 3, 4), 1),
    (MS, "QLinearLeakyRelu", [U8, SCALE, ZERO, SCALE, ZERO], {"alpha": 0.1}, (1, 2, 3, 4), 1),
    (MS, "QLinearConcat", [SCALE, ZERO, U8, SCALE, ZERO, U8, SCALE, ZERO], {"axis": 0},
     (0, 1, 3, 4, 6, 7), 1),
    (MS, "QLinearGlobalAveragePool",
     [integers(1, 2, 4, 4, dtype=dtypes.u8), SCALE, ZERO, SCALE, ZERO], {}, (1, 2, 3, 4), 1),
    (MS, "DynamicQuantizeMatMul", [X, I8, SCALE], {}, (1, 2), 1),
    (MS, "MatMulIntegerToFloat", [U8, I8, SCALE, SCALE], {}, (1, 2, 3), 1),
    (MS, "MatMulNBits", [floats(3, 32), integers(4, 1, 16, dtype=dtypes.u8), floats(4)],
     {"K": 32, "N": 4, "bits": 4, "block_size": 32}, (1, 2), 1),
    (MS, "DynamicQuantizeLSTM",
     [floats(5, 2, 4), integers(1, 4, 12, dtype=dtypes.i8), integers(1, 3, 12, dtype=dtypes.i8),
      None, None, None, None, None, np.full(1, SCALE), np.zeros(1, np.int8), np.full(1, SCALE),
      np.zeros(1, np.int8)], {"hidden_size": 3}, (1, 2, 8, 9, 10, 11), 1),
    (MS, "Inverse", [floats(2, 3, 3)], {}, (), 1),
    (MS, "CropAndResize", [floats(1, 2, 6, 6), np.float32([[0, 0, 1, 1]]), np.zeros(1, np.int32),
                           np.array([3, 3], np.int32)], {}, (3,), 1),
]  # fmt: skip


def domain_models() -> dict[str, onnx.ModelProto]:
    models = {}
    for index, (domain, op, operands, attrs, constants, outputs) in enumerate(TABLE):
        arrays = [None if a is None else np.asarray(a) for a in operands]
        names = [f"y{i}" for i in range(outputs)]
        made = node_model(op, arrays, attrs, 17, names, constants, (), domain)
        made.opset_import.append(helper.make_opsetid(domain, 3 if domain == ML else 1))
        models[f"{op}@{index}"] = made
    return models
