"""Codes of 2, 4 or 8 bits in bytes and in panels of words, as arrays.

    rows      (columns, bytes): the codes of a column along k, the low bits first; as in files
    panels    (panels, words, panel, units of a word): a word of 32 bits has units of 8, 16 or 32
              bits; unit i holds the codes k = i, i + g, i + 2g …, the low bits first, where g is
              the number of units

In: arrays. Out: arrays. Called by ops/matmul_packed.py, by passes and by front ends.
"""

from __future__ import annotations

import numpy as np

WORD = 32  # bits
BITS = (2, 4, 8)
UNITS = {8: np.uint8, 16: np.uint16, 32: np.uint32}


def unpack_rows(rows: np.ndarray, bits: int) -> np.ndarray:
    """The codes of rows of bytes: the last axis grows 8 / bits times."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = rows[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return codes.reshape(*rows.shape[:-1], -1)


def pack_rows(codes: np.ndarray, bits: int) -> np.ndarray:
    """The inverse of `unpack_rows`."""
    parts = codes.astype(np.uint8).reshape(*codes.shape[:-1], -1, 8 // bits)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(parts << shifts, axis=-1)


def pack_panels(rows: np.ndarray, bits: int, panel: int, unit: int) -> np.ndarray:
    """Rows of bytes as words in panels of columns, padded with zeros."""
    columns, words = rows.shape[0], rows.shape[1] * 8 // WORD
    count, made = (
        WORD // unit,
        np.zeros((-(-columns // panel), words, panel, WORD // unit), UNITS[unit]),
    )
    for first in range(0, columns, panel):  # a panel at a time: weights may be gigabytes
        codes = unpack_rows(rows[first : first + panel], bits)
        fields = codes.reshape(len(codes), words, unit // bits, count).astype(UNITS[unit])
        shifts = np.arange(0, unit, bits, dtype=UNITS[unit])[:, None]
        units = np.bitwise_or.reduce(fields << shifts, axis=2)
        made[first // panel, :, : len(codes)] = units.transpose(1, 0, 2)
    return made


def unpack_panels(panels: np.ndarray, bits: int, columns: int) -> np.ndarray:
    """The codes of each column along k."""
    unit = panels.dtype.itemsize * 8
    shifts = np.arange(0, unit, bits, dtype=panels.dtype)[:, None]
    fields = panels[..., None, :] >> shifts & panels.dtype.type((1 << bits) - 1)
    codes = fields.transpose(0, 2, 1, 3, 4).reshape(panels.shape[0] * panels.shape[2], -1)
    return codes[:columns].astype(np.uint8)


def param_panels(param: np.ndarray, panel: int) -> np.ndarray:
    """A number for each column and block as (panels, blocks, panel), padded with zeros."""
    columns, length = param.shape
    padded = np.zeros((-(-columns // panel) * panel, length), param.dtype)
    padded[:columns] = param
    return np.ascontiguousarray(padded.reshape(-1, panel, length).transpose(0, 2, 1))


def param_rows(panels: np.ndarray, columns: int) -> np.ndarray:
    """The inverse of `param_panels`."""
    return panels.transpose(0, 2, 1).reshape(-1, panels.shape[1])[:columns]
