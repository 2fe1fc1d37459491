"""Level 0, used by all: errors, options, ABI, rewrite engine, text, dumps, cache, lazy imports."""
