"""Every converter module: importing this one fills registry.TABLE. Imported by walker."""

from __future__ import annotations

from ingot.frontends.onnx import (
    activation,
    control,
    conv,
    detection,
    elementwise,
    encoders,
    features,
    gather,
    linalg,
    linear,
    loop,
    matmul,
    movement,
    ngrams,
    norm,
    optional,
    pool,
    quant,
    random,
    reduce,
    resize,
    rnn,
    scan,
    sequence,
    signal,
    softmax,
    sources,
    strings,
    svm,
    training,
    trees,
    unique,
    vision,
)
from ingot.frontends.onnx.contrib import converters as contrib

FAMILIES = (
    activation, control, conv, detection, elementwise, encoders, features, gather, linalg, linear,
    loop, matmul, movement, ngrams, norm, optional, pool, quant, random, reduce, resize, rnn, scan,
    sequence, signal, softmax, sources, strings, svm, training, trees, unique, vision,
    *contrib.FAMILIES,
)  # fmt: skip
