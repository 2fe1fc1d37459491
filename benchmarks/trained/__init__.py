"""Trained models as they lie in packages of a registry, compared with ONNX Runtime."""
