"""ONNX's own test suite, run through Ingot: `make conformance`."""
