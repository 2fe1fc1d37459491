"""Level 0, used by all: errors, knobs, ABI, rewrite engine, text, dumps, cache, lazy imports."""
