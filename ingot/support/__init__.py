"""What every level may lean on: errors, knobs, the rewrite engine, text, dumps, lazy imports."""
