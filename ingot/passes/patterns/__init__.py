"""Patterns of primitive operators that form a composite one, one file each: passes/recognize.py."""
