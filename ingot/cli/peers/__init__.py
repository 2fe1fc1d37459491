"""Ingot and other runtimes, each in a process of its own. Used by `ingot bench`.

with_*.py: one runtime each, with the same methods. roofline_probes.py: the machine's GEMM rate and
memory bandwidth. child.py: the process. process.py: the parent's end of its pipe. rounds.py: timed
rounds, and whether outputs match the reference.
"""
