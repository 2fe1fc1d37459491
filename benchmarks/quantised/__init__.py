"""Quantised models: written on demand, timed against other runtimes, and held to be exact.

    models.py       the models by name, their files in build/quantised
    static.py       onnxruntime.quantization.quantize_static and quantize_dynamic
    nncf_static.py  NNCF's quantiser, in an environment of its own
    __main__.py     Ingot and its peers side by side: make bench-quantised
    layers.py       what each layer runs as, and where the time goes
    exactness.py    whole models and their layers against ONNX Runtime without optimisations

runtimes.py and rounds.py are the timed processes, saturation.py asks whether their sums are exact,
cut.py splits a model into its layers.
"""
