"""The loop IR: one kernel as buffers, loop nests and blocks. Level 2."""
