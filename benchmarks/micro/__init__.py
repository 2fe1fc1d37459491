"""Micro-benchmarks: Ingot versus libraries on many small models of one or a few operators.

models.py     one ONNX model of a few nodes
rounds.py     all cases, each runtime in a process of its own, in interleaved rounds
peers.py      numpy (OpenBLAS) and torch (MKL, oneDNN) as runtimes
table.py      rows, geometric mean, the worst five cases, the number of slow ones
command.py    the command line of benchmarks/gemm.py, convs.py and patterns.py
"""
