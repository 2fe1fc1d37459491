"""The native part of the CPU's runtime, as LLVM IR text that codegen compiles for a target.

It is here and not in codegen/ because it is one half of the runtime: the Python modules of
runtime/cpu/ and this text share the records of support/abi.py and change together. It is plain
text, without a printer of loops or programs, so the runtime still imports no compiler.
"""
