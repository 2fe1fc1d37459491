"""Runs compiled models: loader, thread pool, memory, calls. Imports nothing of the compiler. L2."""
