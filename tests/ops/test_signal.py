"""DFT, STFT, windows and MelWeightMatrix, compiled, against numpy's transforms in f64 and ONNX
Runtime: lengths that are constants, sizes of inputs and values of a call."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.frontends.common import fourier
from ingot.support.errors import IngotError
from tests.ops.compiled_nodes import EITHER, compiled, model, node, run, run_peer

RNG = np.random.default_rng(18)


def transform(x: np.ndarray, length: int, inverse: bool, onesided: bool) -> np.ndarray:
    """Along axis -2, by numpy."""
    wide = x.astype(np.float64)
    signal = wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]
    if inverse and onesided:
        return np.fft.irfft(signal, length)[..., None]
    found = np.fft.ifft(signal, length) if inverse else np.fft.fft(signal, length)
    found = found[..., : length // 2 + 1] if onesided else found
    return np.stack([found.real, found.imag], -1)


def agree(got: np.ndarray, want: np.ndarray, length: int) -> None:
    """Within a few units in the last place for each factor of two of the length."""
    assert got.shape == want.shape
    limit = 4 * np.log2(length + 1) * np.finfo(got.dtype).eps
    rms = np.sqrt(np.mean(want**2))
    assert np.abs(got - want).max() <= limit * rms


# parts of the input, inverse, onesided
KINDS = [(1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 1, 0), (2, 1, 1), (1, 1, 0)]


def check_lengths(build, sizes: list[tuple[int, int]], dtype: type = np.float32) -> None:
    """Rows of the first size, transforms of the second: one model of all kinds."""
    nodes, inputs, constants, wants = [], {}, {}, []
    feeds = {}
    for number, (size, length) in enumerate(sizes):
        constants[f"n{number}"] = np.array(length)
        for parts in (1, 2):
            name = f"x{number}_{parts}"
            feeds[name] = RNG.standard_normal((2, size, parts)).astype(dtype)
            inputs[name] = (dtype, feeds[name].shape)
        for parts, inverse, onesided in KINDS:
            name = f"x{number}_{parts}"
            attrs = {"inverse": inverse, "onesided": onesided, "axis": 1}
            nodes.append(node("DFT", [name, f"n{number}"], [f"y{len(nodes)}"], **attrs))
            wants.append((transform(feeds[name], length, bool(inverse), bool(onesided)), length))
    exe = build(nodes, inputs, constants, opset=17)
    for got, (want, length) in zip(run(exe, **feeds), wants, strict=True):
        agree(got, want, length)


@EITHER
def test_direct_transforms(build) -> None:
    check_lengths(build, [(1, 1), (2, 2), (7, 7), (10, 16), (20, 9)])


@EITHER
def test_transforms_by_factors(build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every algorithm at small sizes: 24 and 45 have factors, 26 and 13 a prime that is long."""
    monkeypatch.setattr(fourier, "PASS_COST", 0)
    monkeypatch.setattr(fourier, "LARGEST_GEMM", 6)
    monkeypatch.setattr(fourier, "DIRECT_LIMIT", 1)
    for function in (fourier.cost_of_factors, fourier.largest_factor):
        function.cache_clear()
    try:
        check_lengths(build, [(24, 24), (13, 13), (45, 45)])
        check_lengths(build, [(9, 26)], np.float64)
    finally:
        for function in (fourier.cost_of_factors, fourier.largest_factor):
            function.cache_clear()


@EITHER
@pytest.mark.parametrize("length", [97, 400, 1021, 1024, 4099])
def test_long_transforms(build, length: int) -> None:
    check_lengths(build, [(length, length)], np.float64 if length == 400 else np.float32)


@pytest.mark.parametrize("kinds", [KINDS[1:2], pytest.param(KINDS, marks=pytest.mark.long)])
def test_lengths_of_a_call(kinds: list[tuple[int, int, int]]) -> None:
    """The length is an input, the rows' own length dynamic."""
    nodes = []
    for number, (parts, inverse, onesided) in enumerate(kinds):
        attrs = {"inverse": inverse, "onesided": onesided}
        nodes.append(node("DFT", [f"x{parts}", "n"], [f"y{number}"], **attrs))
    used = {parts for parts, _, _ in kinds}
    inputs = {f"x{p}": (np.float32, ("b", "m", p)) for p in used}
    exe = compiled(nodes, {**inputs, "n": (np.int64, ())}, opset=20)
    for batch, size, length in ((1, 5, 5), (3, 12, 16), (2, 30, 8), (2, 7, 97), (1, 1, 1)):
        feeds = {f"x{p}": RNG.standard_normal((batch, size, p)).astype(np.float32) for p in used}
        for got, (parts, inverse, onesided) in zip(run(exe, **feeds, n=length), kinds):
            want = transform(feeds[f"x{parts}"], length, bool(inverse), bool(onesided))
            agree(got, want, length)
    with pytest.raises(IngotError, match="length is less than 1"):
        run(exe, **feeds, n=0)


@EITHER
@pytest.mark.parametrize("shape", [(4, 6, 5), ("a", "b", "c")])
def test_axes_of_a_call(build, shape: tuple) -> None:
    nodes = [
        node("DFT", ["x1", "", "axis"], ["y0"], onesided=1),
        node("DFT", ["x2", "", "axis"], ["y1"], inverse=1, onesided=1),
    ]
    inputs = {f"x{p}": (np.float32, (*shape, p)) for p in (1, 2)}
    exe = build(nodes, {**inputs, "axis": (np.int64, ())}, opset=20)
    feeds = {f"x{p}": RNG.standard_normal((4, 6, 5, p)).astype(np.float32) for p in (1, 2)}
    for axis in (0, 2, -3):
        real, back = run(exe, **feeds, axis=axis)
        for got, parts, inverse in ((real, 1, False), (back, 2, True)):
            rows = np.moveaxis(feeds[f"x{parts}"], axis, -2)
            size = rows.shape[-2]
            want = transform(rows, 2 * (size - 1) if inverse else size, inverse, True)
            agree(got, np.moveaxis(want, -2, axis), size)
    for axis in (3, -1, 9):
        with pytest.raises(IngotError, match=r"axis is out of range|elements"):
            run(exe, **feeds, axis=axis)


def test_refused_transforms() -> None:
    cases = [
        ((2, 8, 3), {}, "no last axis of 1"),
        ((2, 8, 2), {"onesided": 1}, "no one-sided transform"),
        ((2, 8, 1), {"axis": 2}, "its axis is that of"),
    ]
    for shape, attrs, reason in cases:
        with pytest.raises(IngotError, match=reason) as caught:
            compiled([node("DFT", ["x"], ["y"], **attrs)], {"x": (np.float32, shape)}, opset=17)
        assert caught.value.code == "bad-model"


# --- STFT ---------------------------------------------------------------------------------------


def spectrogram(
    x: np.ndarray, step: int, window: np.ndarray | None, length: int, onesided: bool
) -> np.ndarray:
    frames = [x[:, i : i + length] for i in range(0, x.shape[1] - length + 1, step)]
    rows = np.stack(frames, 1).astype(np.float64)
    if window is not None:
        rows = rows * window.astype(np.float64)[:, None]
    return transform(rows, length, False, onesided)


@EITHER
def test_stft_of_static_frames(build) -> None:
    """Windows as constants, inputs and made in the graph; the signal's sizes are dynamic."""
    window = np.hamming(40).astype(np.float32)
    nodes = [
        node("STFT", ["x", "step", "w", "n"], ["y0"]),
        node("STFT", ["x", "step", "", "n"], ["y1"], onesided=0),
        node("STFT", ["x", "step", "v"], ["y2"]),
        node("STFT", ["z", "step", "w", "n"], ["y3"], onesided=0),
        node("HannWindow", ["n"], ["u"]),
        node("STFT", ["x", "step", "u"], ["y4"]),
    ]
    inputs = {"x": (np.float32, ("b", "m", 1)), "z": (np.float32, ("b", "m", 2))}
    constants = {"step": np.array(16), "n": np.array(40), "w": window}
    exe = build(nodes, {**inputs, "v": (np.float32, (40,))}, constants, opset=17)
    other = RNG.standard_normal(40).astype(np.float32)
    hann = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(40) / 40)).astype(np.float32)
    for batch, size in ((1, 40), (2, 200), (3, 101)):
        x, z = (RNG.standard_normal((batch, size, p)).astype(np.float32) for p in (1, 2))
        found = run(exe, x=x, z=z, v=other)
        wants = [
            spectrogram(x, 16, window, 40, True), spectrogram(x, 16, None, 40, False),
            spectrogram(x, 16, other, 40, True), spectrogram(z, 16, window, 40, False),
            spectrogram(x, 16, hann, 40, True),
        ]  # fmt: skip
        for got, want in zip(found, wants, strict=True):
            agree(got, want, 40)


def test_stft_compiled() -> None:
    """Frames of a constant length in a signal of dynamic length, against ONNX Runtime."""
    nodes = [node("STFT", ["x", "step", "w"], ["y"])]
    inputs = {"x": (np.float32, (1, "m", 1))}
    constants = {"step": np.array(40), "w": np.hanning(100).astype(np.float32)}
    exe, proto = (f(nodes, inputs, constants, opset=17) for f in (compiled, model))
    for size in (100, 1000):
        x = RNG.standard_normal((1, size, 1)).astype(np.float32)
        agree(run(exe, x=x)[0], spectrogram(x, 40, constants["w"], 100, True), 100)
        np.testing.assert_allclose(run(exe, x=x)[0], run_peer(proto, x=x)[0], atol=1e-3)


@EITHER
def test_stft_frames_of_a_call(build) -> None:
    nodes = [
        node("STFT", ["x", "step", "", "n"], ["y0"]),
        node("STFT", ["x", "step", "w", "n"], ["y1"], onesided=0),
    ]
    inputs = {
        "x": (np.float32, ("b", "m", 1)), "step": (np.int64, ()), "n": (np.int64, ()),
        "w": (np.float32, ("k",)),
    }  # fmt: skip
    proto = model(nodes, inputs, opset=17)
    exe = build(nodes, inputs, opset=17)
    for size, step, length in ((128, 8, 16), (100, 7, 30), (64, 64, 64)):
        x = RNG.standard_normal((2, size, 1)).astype(np.float32)
        feeds = {"x": x, "step": step, "n": length, "w": np.hanning(length).astype(np.float32)}
        found, peer = run(exe, **feeds), run_peer(proto, **feeds)
        agree(found[0], spectrogram(x, step, None, length, True), length)
        agree(found[1], spectrogram(x, step, feeds["w"], length, False), length)
        for got, want in zip(found, peer, strict=True):
            np.testing.assert_allclose(got, want, atol=1e-3)
    with pytest.raises(IngotError, match="window has another length"):
        run(exe, **{**feeds, "n": 63})
    with pytest.raises(IngotError, match="step is less than 1"):
        run(exe, **{**feeds, "step": 0})


# --- windows, MelWeightMatrix --------------------------------------------------------------------


@EITHER
def test_windows_of_a_call(build) -> None:
    """The size is an input; of each kind a symmetric and a periodic window."""
    kinds = ("HannWindow", "HammingWindow", "BlackmanWindow")
    nodes = [
        node(op, ["n"], [f"{op}{p}"], periodic=p, output_datatype=1) for op in kinds for p in (0, 1)
    ]
    exe = build(nodes, {"n": (np.int64, ())}, opset=17)
    for size in (5, 16, 101):
        found = iter(run(exe, n=size))
        for op in kinds:
            for over in (size - 1, size):
                turn = 2 * np.pi * np.arange(size) / over
                wants = {
                    "HannWindow": 0.5 - 0.5 * np.cos(turn),
                    "HammingWindow": 25 / 46 - 21 / 46 * np.cos(turn),
                    "BlackmanWindow": 0.42 - 0.5 * np.cos(turn) + 0.08 * np.cos(2 * turn),
                }
                np.testing.assert_allclose(next(found), wants[op], atol=1e-6)


@EITHER
def test_mel_weight_matrix(build) -> None:
    names = ("bands", "length", "rate", "low", "high")
    types = [np.int64, np.int64, np.int64, np.float32, np.float32]
    inputs = {name: (dtype, ()) for name, dtype in zip(names, types)}
    nodes = [node("MelWeightMatrix", list(names), ["y"])]
    proto, exe = model(nodes, inputs, opset=17), build(nodes, inputs, opset=17)
    for row in ((8, 16, 8192, 0, 4096), (40, 512, 16000, 20, 7600), (80, 400, 16000, 0, 8000)):
        feeds = {name: np.array(v, t) for name, t, v in zip(names, types, row)}
        np.testing.assert_array_equal(run(exe, **feeds)[0], run_peer(proto, **feeds)[0])
