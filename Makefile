# Two targets set up a fresh machine:  make demo   make test
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test bench bench-full bench-torch bench-half bench-quantised bench-trained conformance \
	conformance-torch conformance-ml micro zoo clean long math-long aarch64

$(VENV)/.base: pyproject.toml
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

# install the pinned torch first, so that no other package pulls in a CUDA build
$(VENV)/.test: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,bench]'
	touch $@

demo: $(VENV)/.base
	$(BIN)/python examples/digits/demo.py

test: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist worksteal

# benchmark Ingot versus its peers; some models: make bench MODELS="digits resnet50-8"
bench: $(VENV)/.test
	$(BIN)/python benchmarks/peers.py $(MODELS)

# the same with torch on every model that came from torch
bench-full: $(VENV)/.test
	$(BIN)/python benchmarks/peers.py --torch all $(MODELS)

# PyTorch modules versus torch: eager, channels-last, torch.compile, freezing; then one dynamic
# export versus fixed ones
bench-torch: $(VENV)/.test
	$(BIN)/python benchmarks/peers.py --from-torch $(MODELS)
	$(BIN)/python benchmarks/dynamic.py --torch

# trained models as packages hold them, sizes dynamic; some: make bench-trained MODELS="silero ocr"
bench-trained: $(VENV)/.test
	$(BIN)/python -m benchmarks.trained $(MODELS)

# quantised models versus peers; for AVX2: make bench-quantised ARGS="--target x86-64-v3"
bench-quantised: $(VENV)/.test
	$(BIN)/python -m benchmarks.quantised $(ARGS)

# f16 and bf16: GEMMs, a decoding step, vision models versus ONNX Runtime
bench-half: $(VENV)/.test
	$(BIN)/python -m benchmarks.half $(ARGS)

# compare every zoo model with ONNX Runtime (long); some: make zoo MODELS="magika unet"
zoo: $(VENV)/.test
	$(BIN)/python -m benchmarks.zoo.compare --table $(MODELS)

# ONNX's own test suite through Ingot; some: make conformance CASES=resize
conformance: $(VENV)/.test
	$(BIN)/python -m tests.conformance.run --match "$(CASES)"

# PyTorch's own samples through torch.compile; some: make conformance-torch CASES=conv
conformance-torch: $(VENV)/.test
	$(BIN)/python -m tests.conformance_torch.run --match "$(CASES)"

# classical ML: skl2onnx's own tests with ONNX Runtime and with Ingot in its place, then models of
# XGBoost, LightGBM and CatBoost against these libraries; some: make conformance-ml TESTS=svm
conformance-ml: build/ml/.ready
	build/ml/bin/python -m tests.ml.skl2onnx_suite --match "$(TESTS)"
	build/ml/bin/python -m tests.ml.boosters

build/ml/.ready: tests/ml/requirements.txt pyproject.toml
	test -d build/ml || $(PYTHON) -m venv build/ml
	build/ml/bin/python -m pip install --quiet --disable-pip-version-check -e . -r $<
	touch $@

# tests that are too long for every change
long: $(VENV)/.test aarch64
	$(BIN)/python -m pytest -n 2 -m long --ignore tests/aarch64

# run AArch64 plans with Debian's arm64 Python under qemu; needs apt-get, no root
aarch64: $(VENV)/.test build/aarch64/.ready
	$(BIN)/python -m pytest tests/aarch64 -m long

build/aarch64/.ready: tests/aarch64/install.py $(VENV)/.base
	$(BIN)/python tests/aarch64/install.py
	touch $@

# evaluate every math function at every f32, and print its largest error in ulp
math-long: $(VENV)/.test
	$(BIN)/python -m pytest tests/math -m long -s

# micro-benchmarks of single operators versus libraries; a quick look: make micro FEW="--few 6"
micro: $(VENV)/.test
	$(BIN)/python benchmarks/gemm.py $(FEW)
	$(BIN)/python benchmarks/convs.py $(FEW)
	$(BIN)/python benchmarks/patterns.py $(FEW)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
