"""PyTorch models → graphs: exported programs, .pt2 files, FX graphs of ATen operators. Level 5."""
