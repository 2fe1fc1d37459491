"""ONNX importer. `walker.py` visits the nodes; one file per family has the operator converters."""
