"""ONNX Runtime's own operators, domain com.microsoft: converters, one file per family.

| file | operators |
|---|---|
| fused.py | FusedConv, FusedGemm, FusedMatMul and kin, NHWC variants, biases |
| norm.py | SkipLayerNormalization and kin, EmbedLayerNormalization, GroupNorm |
| masks.py, scores.py | masks and softmax(Q·Kᵀ)·V of all attention operators |
| attention.py | Attention, QAttention, MultiHeadAttention, DecoderMaskedMultiHeadAttention |
| group_query.py, rotary.py | GroupQueryAttention, RotaryEmbedding |
| qlinear.py | QLinearAdd and the other operators on quantised tensors |
| qmatmul.py | MatMulIntegerToFloat, DynamicQuantizeMatMul, QGemm, DynamicQuantizeLSTM |
| nbits.py | MatMulNBits, MatMulBnb4, GatherBlockQuantized |
| gates.py | GatedAdd, ScaledSiLU, GatedRMSNorm, BranchwiseRMSNorm, UnfoldTensor |
| others.py | what has a standard counterpart, CDist, Unique, Rfft, NGramRepeatBlock and the like |

The onnx library has no schemas of this domain: a converter checks its own attributes (checks.py).
Gelu and kin are in frontends/onnx/activation.py. Not imported: GreedySearch, BeamSearch, Sampling
(whole generation loops with sub-graphs), Tokenizer and MurmurHash3 (strings), SparseToDenseMatMul
(sparse tensors), WordConvEmbedding, AttnLSTM, MoE, and what only a GPU runs.
"""
