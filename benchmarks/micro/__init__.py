"""Micro-benchmarks: Ingot beside libraries on many small models of one operator or a few.

models.py     one ONNX model of a few nodes
contest.py    all cases, each runtime in a process of its own, in turns
peers.py      numpy (OpenBLAS) and torch (MKL, oneDNN) as runtimes
table.py      rows, geometric mean, the worst five, how many are too slow
command.py    the options that benchmarks/products.py, convs.py and patterns.py share
"""
