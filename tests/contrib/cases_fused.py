"""Cases of the fused operators: convolutions, matmuls, biases, normalisations."""

from __future__ import annotations

import numpy as np

from tests.contrib.data import bytes_, made_of, real, whole
from tests.contrib.harness import Case


def fused_conv() -> list[Case]:
    x, w, b = real(2, 4, 7, 6), real(6, 4, 3, 3), real(6)
    z, grouped = real(2, 6, 5, 4, key="z"), real(8, 2, 3, 3)
    activations = [
        ("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 1.5]),
        ("HardSigmoid", [0.3, 0.4]),
    ]  # fmt: skip
    cases = [
        Case("FusedConv", [x, w, b], {"activation": name, "activation_params": list(params)} if
             params else {"activation": name}, const=(1, 2), dynamic=k % 2 == 1, fixed=[(0, 1)])
        for k, (name, params) in enumerate(activations)
    ]  # fmt: skip
    padded = {"activation": "Relu", "pads": [1, 1, 1, 1], "strides": [2, 1]}
    cases += [
        Case("FusedConv", [x, w, b, z], {"activation": "Relu"}, const=(1, 2)),
        Case("FusedConv", [x, w, b, z], {"activation": "Relu"}, const=(1, 2), dynamic=True,
             fixed=[(0, 1)]),
        Case("FusedConv", [x, w], padded, const=(1,)),
        Case("FusedConv", [x, grouped], {**padded, "group": 2}, const=(1,)),
        Case("FusedConv", [real(1, 3, 9), real(2, 3, 4)], {"auto_pad": "SAME_UPPER", "activation":
             "Tanh"}, const=(1,)),
        Case("FusedConv", [x, w], {"dilations": [2, 2], "activation": "Relu"}),
    ]  # fmt: skip
    return cases


def nhwc() -> list[Case]:
    """Not in the CPU build but for the pool: a convolution between two transposes."""
    cases = []
    for k in range(10):
        x, w, b = real(2, 5 + k, 6, 4, key=k), real(3, 4, 3, 2, key=k), real(3)
        attrs = {"strides": [1 + k % 2, 1], "pads": [k % 2, 1, 0, 1]}
        bias = b if k % 3 else None
        names = "first i1" + (" i2" if k % 3 else "")
        nodes = [
            made_of("Transpose", "i0", "first", perm=[0, 3, 1, 2]),
            made_of("Conv", names, "conv", **attrs),
        ]
        last = made_of("Transpose", "conv", "o0", perm=[0, 2, 3, 1])
        more = {"const": (1, 2), "dynamic": k % 2 == 0, "fixed": [(0, 3)]}
        cases.append(Case("NhwcConv", [x, w, bias], attrs, composed=[*nodes, last], **more))
        shape = ((5 + k + k % 2 - 3) // (1 + k % 2) + 1, 7)
        z = real(2, *shape, 3, key="z")
        fused = [
            *nodes, made_of("Transpose", "conv", "last", perm=[0, 2, 3, 1]),
            made_of("Add", "last i3", "sum"), made_of("Relu", "sum"),
        ]  # fmt: skip
        cases.append(
            Case("NhwcFusedConv", [x, w, bias, z], {**attrs, "activation": "Relu"},
                 composed=fused, **more)
        )  # fmt: skip
    for k, dtype in enumerate([np.uint8, np.int8] * 5):
        attrs = {"kernel_shape": [2, 3], "strides": [1 + k % 3, 2], "pads": [k % 2, 1, 0, 1]}
        attrs |= {"ceil_mode": int(k > 5)} if k % 2 else {"dilations": [1, 1 + k % 3 // 2]}
        cases.append(Case("NhwcMaxPool", [bytes_(2, 9, 8, 1 + k, dtype=dtype)], attrs,
                          dynamic=k % 2 == 0))  # fmt: skip
    return cases


def conv_transpose() -> list[Case]:
    cases = []
    for k in range(10):
        x, w = real(1 + k % 2, 4, 5, 6, key=k), real(4, 2 + k % 2, 3, 3, key=k)
        pads = whole(4, key=k, high=2, dtype=np.int64)
        attrs = {"strides": [1 + k % 2, 2]}
        attrs |= {"output_padding": [0, 1]} if k % 3 == 1 else {}
        attrs |= {"group": 2} if k % 4 == 2 else {}
        attrs |= {"dilations": [2, 1]} if k % 5 == 4 else {}
        bias = real((2 + k % 2) * attrs.get("group", 1)) if k % 2 else None
        const = (1, 2) if k < 5 else (1,)
        cases.append(Case("ConvTransposeWithDynamicPads", [x, w, pads, bias], attrs, const=const))
    return cases


def fused_matmul() -> list[Case]:
    cases = []
    for k in range(16):
        bits = {name: k >> n & 1 for n, name in enumerate(("transA", "transB"))}
        batch = {name: k >> (n + 2) & 1 for n, name in enumerate(("transBatchA", "transBatchB"))}
        shapes = [[2, 3, 4, 5], [2, 3, 5, 6]]  # (batch, batch, rows, columns)
        arrays = []
        for which, (b0, b1, m, n) in zip("AB", shapes):
            m, n = (n, m) if bits[f"trans{which}"] else (m, n)
            shape = (m, b0, b1, n) if batch[f"transBatch{which}"] else (b0, b1, m, n)
            arrays.append(real(*shape, key=which))
        attrs = {**bits, **batch, "alpha": 0.5 + k}
        cases.append(Case("FusedMatMul", arrays, attrs, dynamic=k % 2 == 1))
    cases += [
        Case("FusedMatMul", [real(4), real(4, 5)]), Case("FusedMatMul", [real(3, 4), real(4)]),
        Case("FusedMatMul", [real(3, 4), real(2, 5, 4)], {"transB": 1, "alpha": -2.0}),
    ]  # fmt: skip
    for k in range(10):
        a = real(2, 5, 4, key=k) if k & 1 else real(2, 4, 5, key=k)
        b = real(6, 5) if k & 2 else real(5, 6)
        attrs = {"transA": k & 1, "transB": k >> 1 & 1, "alpha": 1.0 + k}
        cases.append(Case("TransposeMatMul", [a, b], attrs, dynamic=k % 3 == 0))
    for k, (name, extra) in enumerate([
        ("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.3}), ("Tanh", {}), ("Sigmoid", {}),
        ("Softplus", {}), ("Elu", {"activation_alpha": 0.7}), ("Softsign", {}), ("Selu", {}),
        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
        ("Softmax", {"activation_axis": -1}),
    ]):  # fmt: skip
        inner = {key.removeprefix("activation_"): v for key, v in extra.items()}
        nodes = [
            made_of("Transpose", "i1", "b", perm=[0, 2, 1]), made_of("MatMul", "i0 b", "m"),
            made_of("Mul", "m i2", "s"), made_of(name, "s", **inner),
        ]  # fmt: skip
        attrs = {"activation": name, "transB": 1, "alpha": 0.25, **extra}
        cases.append(
            Case("FusedMatMulActivation", [real(2, 3, 4, key=k), real(2, 5, 4, key=k)], attrs,
                 composed=[made_of("Constant", "", "i2", value_float=0.25), *nodes],
                 dynamic=k % 2 == 0)
        )  # fmt: skip
    return cases


def fused_gemm() -> list[Case]:
    cases = []
    rows = [
        ("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("Softplus", {}), ("Softsign", {}),
        ("LeakyRelu", {"activation_alpha": 0.3}), ("Elu", {"activation_alpha": 0.7}),
        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
        ("ThresholdedRelu", {"activation_alpha": 0.5}),
        ("Selu", {"activation_alpha": 1.5, "activation_gamma": 1.1}), ("Relu", {}),
    ]  # fmt: skip
    for k, (name, extra) in enumerate(rows):
        a = real(5, 4, key=k) if k & 1 else real(4, 5, key=k)
        b = real(6, 5) if k & 2 else real(5, 6)
        c = [None, real(6), real(4, 6), real(4, 1), real(1)][k % 5]
        attrs = {"transA": k & 1, "transB": k >> 1 & 1, "alpha": 0.5, "beta": 2.0}
        attrs |= {"activation": name, **extra}
        cases.append(Case("FusedGemm", [a, b, c], attrs, const=(1,), dynamic=k % 2 == 0,
                          fixed=[(2, 0), (2, 1)] if k > 3 else []))  # fmt: skip
    return cases


def gelus() -> list[Case]:
    cases = []
    for k in range(10):
        shape = [(7,), (2, 3, 8), (1, 1), (4, 0, 8) if k < 5 else (2, 1, 4, 3), (3, 16)][k % 5]
        x, b = real(*shape, key=k, scale=3), real(shape[-1], key=k)
        more = {"dynamic": k >= 5, "tolerance": 1e-5}
        cases += [
            Case("Gelu", [x], **more), Case("QuickGelu", [x], {"alpha": 1.0 + k / 4}, **more),
            Case("FastGelu", [x, b if k % 2 else None][: 1 + k % 2], **more),
            Case("BiasGelu", [x, b], **more),
        ]  # fmt: skip
        d = 2 * (k + 1)
        y, bias, skip = real(2, 3, d, key=k), real(d, key=k), real(2, 3, d, key="skip")
        halves = [
            made_of("Add", "i0 i1", "s"),
            made_of("Split", "s", "l r", axis=-1, num_outputs=2),
            made_of("Gelu", "r", "a"), made_of("Mul", "l a"),
        ]  # fmt: skip
        cases.append(Case("BiasSplitGelu", [y, bias], composed=halves, dynamic=k % 2 == 1))
        added = [made_of("Add", "i0 i1", "s"), made_of("Add", "s i2")]
        cases.append(Case("BiasAdd", [y, bias, skip], composed=added, dynamic=k % 2 == 1))
    return cases


def norms() -> list[Case]:
    cases = []
    for k in range(10):
        shape, h = [(2, 3), (1, 7), (4, 1), (3, 5), (1, 1)][k % 5], 8 + k
        x, skip = real(*shape, h, key=k), real(*shape, h, key="s")
        skip = skip[:1] if k == 7 else skip[0] if k == 8 else skip
        gamma, beta, bias = real(h, key="g"), real(h, key="b"), real(h, key="c")
        more = {"dynamic": k % 2 == 1 and k != 7, "const": (2,)}
        attrs = {"epsilon": 1e-5 if k % 2 else 1e-3}
        inputs = [x, skip, gamma, beta if k % 3 else None, bias if k % 4 else None]
        cases.append(Case("SkipLayerNormalization", inputs, attrs if k else {}, (0, 3)[: 1 + k % 2],
                          **more))  # fmt: skip
        inputs = [x, real(*shape, h, key="s"), gamma, bias if k % 2 else None]
        cases.append(Case("SkipSimplifiedLayerNormalization", inputs, attrs, (0, 3)[: 1 + k // 5],
                          **more))  # fmt: skip
        plain = [x, gamma if k % 2 else real(shape[1], h, key="g")]
        axis = {"axis": -1 if k % 2 else 1}
        cases.append(Case("SimplifiedLayerNormalization", plain, {**axis, **attrs}, domain="",
                          dynamic=k % 2 == 1, outputs=(0, 1)[: 1 + k // 7]))  # fmt: skip
        as_root = [
            made_of("Mul", "i0 i0", "q"), made_of("ReduceMean", "q axis", "m"),
            made_of("Add", "m eps", "e"), made_of("Sqrt", "e", "r"), made_of("Div", "i0 r", "n"),
            made_of("Mul", "n i1"),
        ]  # fmt: skip
        consts = [
            made_of("Constant", "", "axis", value_ints=[2]),
            made_of("Constant", "", "eps", value_float=attrs["epsilon"]),
        ]
        cases.append(Case("SimplifiedLayerNormalization", [x, gamma], attrs,
                          composed=[*consts, *as_root], dynamic=k % 3 == 0))  # fmt: skip
        layer = made_of("LayerNormalization", "i0 i1 i2", axis=2, epsilon=attrs["epsilon"])
        cases.append(Case("LayerNormalization", [x, gamma, beta], {"axis": 2, **attrs},
                          composed=[layer], dynamic=k % 3 == 1))  # fmt: skip
    return cases


def embeddings() -> list[Case]:
    cases = []
    for k in range(12):
        batch, length, h = 1 + k % 3, 3 + k, 8
        ids, segments = whole(batch, length, key=k), whole(batch, length, key="s", high=2)
        tables = [real(10, h, key="w"), real(20, h, key="p"), real(2, h, key="t")]
        mask = np.sort(whole(batch, length, key="m", high=2), axis=1)[:, ::-1].copy()
        mask = whole(batch, length, key="m", high=2) if k == 5 else mask
        positions = whole(batch if k % 2 else 1, length, key="pos", high=20)
        has_segment = k % 4 != 3
        inputs = [
            ids, segments if has_segment else None, tables[0], tables[1],
            tables[2] if has_segment else None, real(h, key="g"), real(h, key="b"),
            mask if k % 2 else None, positions if k > 7 else None,
        ]  # fmt: skip
        outputs = [(0, 1), (0, 1, 2)][k // 2 % 2]
        cases.append(Case("EmbedLayerNormalization", inputs, {"epsilon": 1e-6} if k % 2 else {},
                          outputs, const=(2, 3, 4, 5, 6), dynamic=k in (0, 3, 6)))  # fmt: skip
    return cases


def group_norms() -> list[Case]:
    """Not in the CPU build: GroupNormalization between transposes."""
    cases = []
    for k in range(10):
        is_last, groups, channels = int(k % 2 == 0), [1, 2, 4][k % 3], 8
        shape = (2, 3, 4 + k, channels) if is_last else (2, channels, 3, 4 + k)
        x, gamma, beta = real(*shape, key=k), real(channels, key="g"), real(channels, key="b")
        attrs = {"groups": groups, "activation": k % 3 % 2, "channels_last": is_last}
        attrs |= {"epsilon": 1e-4} if k % 2 else {}
        norm = {"num_groups": groups, "epsilon": attrs.get("epsilon", 1e-5)}

        def nodes(source: str, attrs=attrs, norm=norm, is_last=is_last) -> list:
            made = [made_of("Transpose", source, "first", perm=[0, 3, 1, 2])] if is_last else []
            inner = "first" if is_last else source
            made.append(made_of("GroupNormalization", f"{inner} i1 i2", "norm", **norm))
            last = "norm"
            if attrs["activation"]:
                made += [made_of("Sigmoid", "norm", "sig"), made_of("Mul", "norm sig", "act")]
                last = "act"
            perm = [0, 2, 3, 1] if is_last else [0, 1, 2, 3]
            return [*made, made_of("Transpose", last, "o0", perm=perm)]

        more = {"const": (1, 2), "dynamic": k % 4 == 0, "tolerance": 1e-4, "fixed": [(0, 3)]}
        cases.append(Case("GroupNorm", [x, gamma, beta], attrs, composed=nodes("i0"), **more))
        kinds = [shape, (2, 1, 1, channels) if is_last else (2, channels, 1, 1), (2, channels)]
        skip = real(*kinds[k % 3], key="skip")
        bias = real(channels, key="bias") if k % 2 else None
        axes = [1, 2] if is_last else [2, 3]
        name = "i3"
        before = []
        if k % 3 == 2:
            before = [
                made_of("Constant", "", "axes", value_ints=axes),
                made_of("Unsqueeze", "i3 axes", "wide"),
            ]
            name = "wide"
        before.append(made_of("Add", f"i0 {name}", "xs" if bias is not None else "o1"))
        if bias is not None:
            tail = [-1, 1, 1] if not is_last else [-1]
            before += [
                made_of("Constant", "", "shape", value_ints=tail),
                made_of("Reshape", "i4 shape", "column"), made_of("Add", "xs column", "o1"),
            ]  # fmt: skip
        cases.append(
            Case("SkipGroupNorm", [x, gamma, beta, skip, bias], attrs, (0, 1),
                 composed=[*before, *nodes("o1")], const=(1, 2), tolerance=1e-4)
        )  # fmt: skip
    return cases


CASES = [
    *fused_conv(), *nhwc(), *conv_transpose(), *fused_matmul(), *fused_gemm(), *gelus(), *norms(),
    *embeddings(), *group_norms(),
]  # fmt: skip
