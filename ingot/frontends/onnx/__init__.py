"""ONNX models → graph. `walker.py` goes over the nodes; one file per family spells operators."""
