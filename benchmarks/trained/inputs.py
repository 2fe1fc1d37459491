"""Inputs of the kind that a trained model was made for: speech, rendered text, an image.

In: an input's name, element type and shape. Out: an array. Networks behave differently on noise:
a detector finds nothing, a recurrence saturates, a threshold cuts everything off.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.trained.files import Trained
from benchmarks.zoo.common import normal, rng

SAMPLE_RATE = 16000  # samples per second
SCALARS = {"sr": 16000}  # values of inputs that configure a model
MOST_CODES = {"bytes": 256, "diac_inputs": 8}  # of integer inputs: sizes of their tables
PARTS_OF_SPEECH = np.array(["名詞", "助詞", "動詞", "助動詞", "*", "一般"])  # of string inputs
GLYPHS = (  # letters of 5 x 7 pixels, a row of 5 bits each
    (0x0E, 0x11, 0x11, 0x1F, 0x11, 0x11, 0x11), (0x1E, 0x11, 0x11, 0x1E, 0x11, 0x11, 0x1E),
    (0x0F, 0x10, 0x10, 0x10, 0x10, 0x10, 0x0F), (0x1F, 0x10, 0x10, 0x1E, 0x10, 0x10, 0x1F),
    (0x11, 0x11, 0x11, 0x1F, 0x11, 0x11, 0x11), (0x11, 0x19, 0x15, 0x13, 0x11, 0x11, 0x11),
    (0x1F, 0x04, 0x04, 0x04, 0x04, 0x04, 0x04), (0x11, 0x0A, 0x04, 0x04, 0x0A, 0x11, 0x11),
)  # fmt: skip


def feeds_of(
    model: Trained, other: Mapping[str, tuple[int, ...]] | None = None
) -> dict[str, np.ndarray]:
    """All inputs of a model, seeded; in `other` shapes than those of the list if given."""
    shapes = {name: shape for name, (_, shape) in model.inputs.items()} | {**(other or {})}
    return {
        name: np.asarray(_array(name, shapes[name], dtype, shapes)).astype(np.dtype(dtype))
        for name, (dtype, _) in model.inputs.items()
    }


def _array(
    name: str, shape: tuple[int, ...], dtype: str, shapes: Mapping[str, tuple[int, ...]]
) -> np.ndarray:
    if name in SCALARS:
        return np.full(shape, SCALARS[name])
    if name.endswith(("_lens", "_lengths")):
        longest = max(s[1] for other, s in shapes.items() if other != name and len(s) > 1)
        return np.full(shape, longest)
    if name == "img_size":
        return np.array([712, 488])
    if dtype == "object":
        return rng(3).choice(PARTS_OF_SPEECH, shape)
    if dtype.startswith("int"):
        return rng(3).integers(1, MOST_CODES.get(name, 30), shape)
    if len(shape) == 4:
        return _image(shape)
    if name in ("state", "h", "c"):
        return 0.1 * normal(*shape)
    if shape[-1] == 1 and len(shape) == 3:
        return _speech(shape[:-1])[..., None]
    if (max(shape) >= 512 and len(shape) == 2) or shape[-1] >= 10_000:
        return _speech(shape)
    if name == "input_1":  # character codes as floats
        return rng(3).integers(1, 30, shape)
    return _log_spectrum(shape)


def _speech(shape: tuple[int, ...]) -> np.ndarray:
    """Voiced syllables: harmonics of a gliding pitch, under two formants and an envelope."""
    *outer, samples = shape
    time = np.arange(samples) / SAMPLE_RATE
    phase = 2 * np.pi * np.cumsum(120 + 25 * np.sin(2 * np.pi * 1.3 * time)) / SAMPLE_RATE
    voice = np.zeros(samples)
    for harmonic in range(1, 25):
        hertz = 120 * harmonic
        gain = 1 / (1 + ((hertz - 600) / 250) ** 2) + 0.5 / (1 + ((hertz - 1500) / 300) ** 2)
        voice += gain * np.sin(harmonic * phase)
    envelope = np.clip(np.sin(2 * np.pi * 3 * time) + 0.3, 0, 1)
    return 0.1 * voice * envelope + 0.003 * normal(*outer, samples)


def _log_spectrum(shape: tuple[int, ...]) -> np.ndarray:
    """Smooth over time and frequency, in decades."""
    *outer, frames, bins = shape
    rows, columns = np.mgrid[0:frames, 0:bins]
    smooth = -2 + np.sin(rows / 9) * np.cos(columns / 17) - columns / bins
    return smooth + 0.2 * normal(*outer, frames, bins)


def _image(shape: tuple[int, ...]) -> np.ndarray:
    """Dark letters on a light, unevenly lit page; channels first, or last where there are 3."""
    batch, *rest = shape
    is_last = rest[-1] == 3
    height, width = rest[:2] if is_last else rest[1:]
    channels = rest[-1] if is_last else rest[0]
    page = 0.9 - 0.2 * np.mgrid[0:height, 0:width][1] / width
    size = max(1, min(height // 10, 6))  # pixels of a dot
    letters = rng(5).integers(0, len(GLYPHS), height * width)
    for line, top in enumerate(range(size, height - 8 * size, 12 * size)):
        for position, left in enumerate(range(size, width - 6 * size, 7 * size)):
            glyph = GLYPHS[letters[97 * line + position]]
            dots = np.array([[row >> (4 - bit) & 1 for bit in range(5)] for row in glyph])
            ink = np.kron(dots, np.ones((size, size)))
            page[top : top + 7 * size, left : left + 5 * size] -= 0.8 * ink
    image = np.broadcast_to(page, (batch, channels, height, width)) * 2 - 1
    image = image + 0.02 * normal(batch, channels, height, width)
    return image.transpose(0, 2, 3, 1) if is_last else image
