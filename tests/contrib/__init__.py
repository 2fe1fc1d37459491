"""ONNX Runtime's own operators (domain com.microsoft) against ONNX Runtime."""
