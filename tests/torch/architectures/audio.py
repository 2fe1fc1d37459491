"""Architectures of sound and of time series. Rows of Architecture, by name."""

from __future__ import annotations

from typing import Any

import torch

from tests.torch.architectures.architecture import Architecture as A
from tests.torch.architectures.inputs import tensors, text, tokens, waves

WAVES = {
    "vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "conv_dim": [16, 16, 16], "conv_stride": [5, 4, 2],
    "conv_kernel": [10, 4, 3], "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2,
    "num_feat_extract_layers": 3,
}  # fmt: skip
WHISPER = {
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "num_mel_bins": 20, "max_source_positions": 25,
    "max_target_positions": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 3,
}  # fmt: skip
QUIET = {"noise_scale": 0.0, "noise_scale_duration": 0.0}  # drawn numbers are not eager's


def mel(config: Any) -> dict[str, Any]:
    shape = 2, config.num_mel_bins, 2 * config.max_source_positions
    return {"input_features": torch.randn(shape), "decoder_input_ids": tokens(2, 7)}


def mel_alone(config: Any) -> dict[str, Any]:
    return {"input_features": mel(config)["input_features"]}


def speech_rows(config: Any) -> dict[str, Any]:
    mask = torch.tensor([[1] * 41, [1] * 30 + [0] * 11])
    return {"input_features": torch.randn(2, 41, config.input_feat_per_channel),
            "attention_mask": mask, "decoder_input_ids": tokens(2, 7)}  # fmt: skip


def past(config: Any) -> dict[str, Any]:
    shape = 2, config.context_length, config.num_input_channels
    return {"past_values": torch.randn(shape)}


TABLE: dict[str, A] = {
    "whisper": A("WhisperModel", WHISPER, {}, mel),
    "whisper_encoder": A("WhisperModel", WHISPER, {}, mel_alone, wrap="Encoder"),
    "whisper_generation": A("WhisperForConditionalGeneration", WHISPER, {}, mel),
    "wav2vec2": A("Wav2Vec2Model", WAVES, {}, waves()),
    "wav2vec2_ctc": A("Wav2Vec2ForCTC", WAVES, {}, waves(mask=False)),
    "hubert": A("HubertModel", WAVES, {}, waves()),
    "wavlm": A("WavLMModel", WAVES, {}, waves()),
    "sew": A("SEWModel", {**WAVES, "squeeze_factor": 2}, {}, waves()),
    "sew_d": A("SEWDModel", {**WAVES, "squeeze_factor": 2, "max_position_embeddings": 64,
                             "position_buckets": 8}, {}, waves()),
    "unispeech_sat": A("UniSpeechSatModel", WAVES, {}, waves()),
    "data2vec_audio": A("Data2VecAudioModel", WAVES, {}, waves()),
    "wav2vec2_conformer": A("Wav2Vec2ConformerModel",
                            {**WAVES, "position_embeddings_type": "relative"},
                            {"num_hidden_layers": 4, "hidden_size": 512,
                             "num_attention_heads": 8}, waves()),
    "audio_spectrogram": A("ASTModel", {"hidden_size": 32, "num_hidden_layers": 2,
                                        "num_attention_heads": 4, "intermediate_size": 64,
                                        "patch_size": 8, "max_length": 40, "num_mel_bins": 20},
                           {"max_length": 40, "num_mel_bins": 20},
                           tensors(input_values=(2, 40, 20))),
    "speech_to_text": A(
        "Speech2TextModel",
        {k: WHISPER[k] for k in WHISPER if k not in ("num_mel_bins",)}
        | {"input_feat_per_channel": 20, "conv_channels": 16, "max_source_positions": 64},
        {}, speech_rows,
    ),
    "speecht5_encoder": A(
        "SpeechT5ForSpeechToText",
        {"vocab_size": 99, "hidden_size": 32, "encoder_layers": 2, "decoder_layers": 2,
         "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
         "decoder_ffn_dim": 64, "conv_dim": [16, 16, 16], "conv_stride": [5, 4, 2],
         "conv_kernel": [10, 4, 3], "num_feat_extract_layers": 3,
         "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2},
        {}, waves(), wrap="Encoder",
    ),
    "encodec": A(
        "EncodecModel",
        {"num_filters": 4, "hidden_size": 16, "codebook_size": 16, "codebook_dim": 16,
         "upsampling_ratios": [4, 2], "num_lstm_layers": 1, "target_bandwidths": [48.0],
         "sampling_rate": 24000},
        {}, tensors(input_values=(2, 1, 801)),
    ),
    "dac": A("DacModel", {"encoder_hidden_size": 8, "downsampling_ratios": [2, 4],
                          "decoder_hidden_size": 32, "upsampling_ratios": [4, 2],
                          "codebook_size": 16, "codebook_dim": 4, "n_codebooks": 2}, {},
             tensors(input_values=(2, 1, 800))),
    "vits": A(
        "VitsModel",
        {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "ffn_dim": 64, **QUIET}, QUIET, text(1, 9, mask=False),
    ),
    "univnet": A("UnivNetModel", {"model_hidden_channels": 8, "resblock_stride_sizes": [4, 4],
                                  "resblock_kernel_sizes": [3, 3],
                                  "resblock_dilation_sizes": [[1, 3], [1, 3]],
                                  "model_in_channels": 8, "num_mel_bins": 12,
                                  "kernel_predictor_hidden_channels": 8}, {},
                 tensors(input_features=(2, 9, 12), noise_sequence=(2, 9, 8))),
    "patchtst": A("PatchTSTModel", {"num_input_channels": 3, "context_length": 24,
                                    "patch_length": 4, "patch_stride": 4, "d_model": 16,
                                    "num_hidden_layers": 2, "num_attention_heads": 4,
                                    "ffn_dim": 32}, {}, past),
    "patchtsmixer": A("PatchTSMixerModel", {"num_input_channels": 3, "context_length": 24,
                                            "patch_length": 4, "patch_stride": 4, "d_model": 8,
                                            "num_layers": 2}, {}, past),
}  # fmt: skip
