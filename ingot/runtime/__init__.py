"""Runs compiled programs: loading, threads, memory, calls. Imports nothing of the compiler. L2."""
