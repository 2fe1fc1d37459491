"""Networks built from configurations with seeded random weights, exported by torch.onnx (dynamo).

`transformers` has the architectures; a few small ones are in networks.py. Convolution weights are
scaled by their fan-in and batch-norm scales are near one, so that activations neither vanish nor
grow with depth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.zoo.common import Entry, Feeds, Sizes, normal, rng

Axes = Mapping[int, str]  # axis → its dynamic dimension
LAYERS, HEADS, WIDTH = 12, 12, 64  # of GPT-2's KV cache


@dataclass(frozen=True)
class Network:
    """How to make a module, its inputs, and their dynamic axes by input name."""

    make: Callable[[], Any]
    feeds: Callable[[Sizes], Feeds]
    axes: Mapping[str, Axes]
    sizes: tuple[Sizes, ...]
    largest: Mapping[str, int] | None = None  # upper bounds of dynamic dimensions, e.g. positions


def entries() -> list[Entry]:
    return [
        Entry(name, partial(_export, network), network.feeds, network.sizes, "torch.onnx, random",
              write_torch=partial(_export_to_torch, network))
        for name, network in NETWORKS.items()
    ]  # fmt: skip


# --- inputs -------------------------------------------------------------------------------------


def tokens(sizes: Sizes, vocabulary: int = 1000) -> Feeds:
    """Token ids and an attention mask; the last sequence of a batch is half padding."""
    batch, length = sizes["batch"], sizes["length"]
    mask = np.ones((batch, length), np.int64)
    if batch > 1:
        mask[-1, (length + 1) // 2 :] = 0
    return {"input_ids": rng(1).integers(0, vocabulary, (batch, length)), "attention_mask": mask}


def ids(sizes: Sizes) -> Feeds:
    return {"input_ids": tokens(sizes)["input_ids"]}


def decode(sizes: Sizes) -> Feeds:
    """One new token per sequence, and the KV cache of the tokens before it."""
    batch, past = sizes["batch"], sizes["past"]
    feeds: Feeds = {"input_ids": rng(2).integers(0, 1000, (batch, 1))}
    for layer in range(LAYERS):
        for index, kind in enumerate(("key", "value")):
            name = f"past_{layer}_{kind}"
            feeds[name] = normal(batch, HEADS, past, WIDTH, key=10 + 2 * layer + index)
    return feeds


def image(sizes: Sizes, side: int = 224, channels: int = 3) -> Feeds:
    return {"pixel_values": normal(sizes["batch"], channels, side, side)}


def rows(sizes: Sizes) -> Feeds:
    return {"x": normal(sizes["batch"], 64)}


# --- modules ------------------------------------------------------------------------------------


def transformer(config: str, model: str, **options: Any) -> Any:
    """A network of `transformers` from its configuration; classifiers have 1000 classes."""
    import transformers

    settings = getattr(transformers, config)(num_labels=1000, **options)
    return getattr(transformers, model)(settings)


def convolutional(config: str, model: str, **options: Any) -> Any:
    return _refilled(transformer(config, model, **options))


def small(name: str, **options: Any) -> Any:
    from benchmarks.zoo import networks

    return _refilled(getattr(networks, name)(**options))


def detector() -> Any:
    from benchmarks.zoo.detector import Detector

    return _refilled(Detector())


def _refilled(module: Any) -> Any:
    import torch

    for layer in module.modules():
        if isinstance(layer, torch.nn.Conv2d | torch.nn.ConvTranspose2d):
            fan_in = layer.weight[0].numel()
            torch.nn.init.normal_(layer.weight, std=(2 / fan_in) ** 0.5)
        elif isinstance(layer, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(layer.weight, 0.5, 1.5)
            torch.nn.init.normal_(layer.bias, std=0.1)
    return module


def _calibrated(module: Any, example: dict[str, Any]) -> Any:
    """Set the running mean and variance of batch norms from the example, as training does: without
    them a deep network's activations vanish."""
    import torch

    norms = [layer for layer in module.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    if norms:
        with torch.no_grad():
            module(**example)
    return module.eval()


def _made(network: Network) -> tuple[Any, dict[str, Any]]:
    """The module with its seeded weights, and the example inputs it was calibrated with."""
    import torch

    torch.manual_seed(0)
    example = _tensors(_example(network))
    return _calibrated(network.make().eval(), _nested(example)), example


def _tensors(feeds: Feeds) -> dict[str, Any]:
    import torch

    return {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in feeds.items()}


def _export_to_torch(network: Network, path: Path) -> None:
    import torch

    torch.export.save(program(network, network.sizes[0]), path)


def program(network: Network, sizes: Sizes | None = None) -> Any:
    """The network exported by `torch.export` with positional inputs: at these sizes, or with its
    sizes dynamic."""
    import torch

    from benchmarks.zoo.networks import ByPosition

    feeds = _tensors(network.feeds(sizes) if sizes else _example(network))
    module = ByPosition(_made(network)[0], list(feeds), _nested)
    dims = None if sizes else (tuple(_dynamic_axes(network, feeds).values()),)
    return torch.export.export(module, tuple(feeds.values()), dynamic_shapes=dims)


def _dynamic_axes(network: Network, names: Iterable[str]) -> dict[str, dict[int, Any]]:
    """For each input the dimensions of its dynamic axes, by axis."""
    import torch

    limits = network.largest or {}
    dims = {
        name: torch.export.Dim(name, max=limits.get(name))
        for axes in network.axes.values()
        for name in axes.values()
    }
    return {
        name: {axis: dims[size] for axis, size in network.axes.get(name, {}).items()}
        for name in names
    }


def _export(network: Network, path: Path) -> None:
    import torch

    module, example = _made(network)
    shapes = _dynamic_axes(network, example)
    torch.onnx.export(
        module,
        kwargs=_nested(example),
        f=str(path),
        dynamo=True,
        dynamic_shapes=_nested(shapes),
        input_names=list(example),
        external_data=False,
        verbose=False,
    )


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    """The module's keyword arguments: the KV cache is one dictionary, `past`."""
    past = {name: value for name, value in values.items() if name.startswith("past_")}
    plain = {name: value for name, value in values.items() if name not in past}
    return {**plain, "past": past} if past else plain


def _example(network: Network) -> Feeds:
    """Dynamic dimensions are at least 2 in the example: torch specialises a size of 1."""
    sizes = {name: max(2, size) for name, size in network.sizes[0].items()}
    return network.feeds(sizes)


# --- the table ----------------------------------------------------------------------------------

TEXT: Mapping[str, Axes] = {
    "input_ids": {0: "batch", 1: "length"},
    "attention_mask": {0: "batch", 1: "length"},
}
PAST: Mapping[str, Axes] = {
    "input_ids": {0: "batch"},
    **{
        f"past_{layer}_{kind}": {0: "batch", 2: "past"}
        for layer in range(LAYERS)
        for kind in ("key", "value")
    },
}
IMAGES: Mapping[str, Axes] = {"pixel_values": {0: "batch"}}
ONE_OR_TWO = ({"batch": 1}, {"batch": 2})
EAGER = {"attn_implementation": "eager"}
B0 = {"image_size": 224, "width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280}


def texts(*lengths: int) -> tuple[Sizes, ...]:
    first, *others = lengths
    return ({"batch": 1, "length": first}, *({"batch": 2, "length": n} for n in others))


NETWORKS: dict[str, Network] = {
    "gpt2_decode": Network(
        partial(small, "CachedGpt2"), decode, PAST,
        ({"batch": 1, "past": 64}, {"batch": 2, "past": 7}), {"past": 1000},
    ),
    "mobilenet_v2": Network(
        partial(convolutional, "MobileNetV2Config", "MobileNetV2ForImageClassification"),
        image, IMAGES, ONE_OR_TWO,
    ),
    "efficientnet_b0": Network(
        partial(convolutional, "EfficientNetConfig", "EfficientNetForImageClassification", **B0),
        image, IMAGES, ONE_OR_TWO,
    ),
    "convnext_tiny": Network(
        partial(convolutional, "ConvNextConfig", "ConvNextForImageClassification"),
        image, IMAGES, ONE_OR_TWO,
    ),
    "vit_b16": Network(
        partial(transformer, "ViTConfig", "ViTForImageClassification"), image, IMAGES, ONE_OR_TWO
    ),
    "bert_base": Network(
        partial(transformer, "BertConfig", "BertModel"), tokens, TEXT, texts(128, 17),
        {"length": 512},
    ),
    "distilbert": Network(
        partial(transformer, "DistilBertConfig", "DistilBertModel"), tokens, TEXT, texts(32, 9),
        {"length": 512},
    ),
    "gpt2": Network(
        partial(transformer, "GPT2Config", "GPT2LMHeadModel", use_cache=False), ids,
        {"input_ids": TEXT["input_ids"]}, texts(64, 5), {"length": 1024},
    ),
    "resnet50": Network(
        partial(convolutional, "ResNetConfig", "ResNetForImageClassification"),
        image, IMAGES, ONE_OR_TWO,
    ),
    "vgg16": Network(partial(small, "vgg16"), image, IMAGES, ONE_OR_TWO[:1]),
    "unet": Network(
        partial(small, "UNet"), partial(image, side=128), IMAGES, ONE_OR_TWO
    ),
    "detector": Network(detector, partial(image, side=320), IMAGES, ONE_OR_TWO),
    "lstm_tagger": Network(
        partial(small, "Tagger"), ids, {"input_ids": TEXT["input_ids"]}, texts(40, 13, 1)
    ),
    "tiny_mlp": Network(partial(small, "tiny_mlp"), rows, {"x": {0: "batch"}},
                        ({"batch": 1}, {"batch": 33})),
    "tiny_cnn": Network(
        partial(small, "tiny_cnn"), partial(image, side=16, channels=1), IMAGES,
        ({"batch": 1}, {"batch": 5}),
    ),
}  # fmt: skip
