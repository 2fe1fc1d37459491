"""Models in, graphs out. Level 5."""
