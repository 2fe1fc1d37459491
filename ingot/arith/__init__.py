"""Integer expressions: indices, extents, offsets and tensor sizes. Level 1."""
