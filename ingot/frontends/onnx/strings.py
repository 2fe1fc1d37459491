"""Converters of the operators on strings, and of ImageDecoder: steps of the host (ops/strings.py).

Equal, Where, Gather and all others that move strings are native, and converted with their families.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value
from ingot.runtime.regex import matcher


@onnx_op("StringConcat")
def string_concat(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [ctx.g.add("string_concat", [ctx.value(node, 0), ctx.value(node, 1)])]


@onnx_op("StringSplit")
def string_split(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    attrs = {
        "delimiter": node.attr("delimiter", ""),
        "maxsplit": node.attr("maxsplit"),
        "symbols": (ctx.g.symbol("parts"),),
    }
    return ctx.g.add_all("string_split", [ctx.value(node, 0)], **attrs)


@onnx_op("StringNormalizer")
def string_normalizer(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    attrs = {
        "case": node.attr("case_change_action", "NONE"),
        "is_case_sensitive": bool(node.attr("is_case_sensitive", 0)),
        "stopwords": tuple(node.attr("stopwords", ())),
        "symbols": (ctx.g.symbol("words", low=1),),
    }
    return [ctx.g.add("string_normalizer", [ctx.value(node, 0)], **attrs)]


@onnx_op("RegexFullMatch")
def regex_full_match(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    pattern = node.attr("pattern", "")
    matcher(pattern)  # refuses an invalid one
    return [ctx.g.add("regex_full_match", [ctx.value(node, 0)], pattern=pattern)]


@onnx_op("ImageDecoder")
def image_decoder(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    attrs = {
        "pixel_format": node.attr("pixel_format", "RGB"),
        "symbols": (ctx.g.symbol("height", low=1), ctx.g.symbol("width", low=1)),
    }
    return [ctx.g.add("decode_image", [ctx.value(node, 0)], **attrs)]
