"""Architectures of images, of images with text, and of video. Rows of Architecture, by name."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from tests.torch.architectures.architecture import Architecture as A
from tests.torch.architectures.inputs import images, text, text_and_images, video

PATCHES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "image_size": 30, "patch_size": 6,
}  # fmt: skip
TEXT_PART = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 16, "eos_token_id": 98, "pad_token_id": 0,
    "bos_token_id": 1,
}  # fmt: skip
SWIN = {"image_size": 28, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4],
        "window_size": 4}  # fmt: skip
RESNET = {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [2, 1]}
SEGFORMER = {
    "depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 32, 32], "num_attention_heads": [1, 2, 2, 4],
    "decoder_hidden_size": 32,
}  # fmt: skip


def resnet_config(**given: Any) -> Any:
    return transformers.ResNetConfig(out_features=["stage2"], **given)


def detr_backbone() -> Any:
    return resnet_config(**RESNET)


def detr_large_backbone() -> Any:
    return transformers.ResNetConfig(out_features=["stage4"])


def dinov2_backbone() -> Any:
    return transformers.Dinov2Config(
        hidden_size=32, num_hidden_layers=4, num_attention_heads=4, image_size=42, patch_size=14,
        out_features=["stage1", "stage2", "stage3", "stage4"], reshape_hidden_states=False,
    )  # fmt: skip


def convnext_backbone() -> Any:
    return transformers.ConvNextConfig(
        hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1],
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )  # fmt: skip


def masked_images(config: Any) -> dict[str, Any]:
    """The patches that are left out are those of the smallest noise."""
    count = (config.image_size // config.patch_size) ** 2
    return {**images()(config), "noise": torch.rand(2, count)}


def token_ids(config: Any) -> dict[str, Any]:
    return text(mask=False)(config)


DETR = {
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_queries": 5,
    "backbone": None, "use_timm_backbone": False, "use_pretrained_backbone": False,
}  # fmt: skip

TABLE: dict[str, A] = {
    "vit": A("ViTModel", PATCHES, {}, images()),
    "vit_classes": A("ViTForImageClassification", PATCHES, {}, images(3)),
    "vit_mae": A("ViTMAEModel", PATCHES, {}, masked_images),
    "deit": A("DeiTModel", PATCHES, {}, images()),
    "beit": A("BeitModel", {**PATCHES, "use_relative_position_bias": True},
              {"use_relative_position_bias": True}, images()),
    "dinov2": A("Dinov2Model", PATCHES, {}, images(2, (36, 48))),
    "dinov3_vit": A("DINOv3ViTModel", {**PATCHES, "num_register_tokens": 2},
                    {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8},
                    images(2, (48, 36))),
    "swin": A("SwinModel", SWIN, {}, images()),
    "swinv2": A("Swinv2Model", SWIN, {}, images()),
    "swin2sr": A("Swin2SRModel", {"embed_dim": 16, "depths": [2], "num_heads": [2],
                                  "window_size": 4, "image_size": 16},
                 {"embed_dim": 60, "depths": [2, 2], "num_heads": [6, 6]}, images(2, (12, 16))),
    "convnext": A("ConvNextModel", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]}, {},
                  images(2, (67, 45))),
    "convnextv2": A("ConvNextV2Model", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]},
                    {}, images(2, (67, 45))),
    "resnet": A("ResNetForImageClassification", {**RESNET, "num_labels": 7}, {},
                images(2, (61, 45))),
    "regnet": A("RegNetModel", {**RESNET, "groups_width": 8}, {"hidden_sizes": [64, 128, 256, 512],
                "groups_width": 64, "depths": [1, 2, 4, 2]}, images(2, (61, 45))),
    "bit": A("BitModel", {**RESNET, "num_groups": 4, "layer_type": "bottleneck"}, {},
             images(2, (61, 45))),
    "mobilenet_v1": A("MobileNetV1Model", {"depth_multiplier": 0.25}, {}, images(2, (65, 47))),
    "mobilenet_v2": A("MobileNetV2ForImageClassification",
                      {"depth_multiplier": 0.25, "num_labels": 7}, {}, images(2, (65, 47))),
    "mobilevit": A("MobileViTModel",
                   {"hidden_sizes": [16, 20, 24], "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32],
                    "image_size": 64, "num_attention_heads": 2}, {}, images()),
    "mobilevitv2": A("MobileViTV2Model", {"image_size": 64, "width_multiplier": 0.25}, {},
                     images()),
    "efficientnet": A(
        "EfficientNetModel",
        {"width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320},
        {"width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280},
        images(2, (65, 71)),
    ),
    "segformer": A("SegformerForSemanticSegmentation", SEGFORMER, {}, images(2, (64, 96))),
    "levit": A("LevitModel",
               {"image_size": 64, "hidden_sizes": [16, 24, 32], "num_attention_heads": [1, 2, 2],
                "depths": [1, 1, 1], "key_dim": [8, 8, 8]}, {}, images()),
    "cvt": A("CvtModel", {"embed_dim": [8, 16, 32], "num_heads": [1, 2, 4], "depth": [1, 2, 3],
                          "cls_token": [False, False, True]},
             {}, images(2, (64, 48))),
    "poolformer": A("PoolFormerModel", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]},
                    {}, images(2, (64, 48))),
    "pvt": A("PvtModel", {"image_size": 64, "hidden_sizes": [8, 16, 24, 32],
                          "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4]}, {},
             images()),
    "pvt_v2": A("PvtV2Model", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1],
                               "num_attention_heads": [1, 2, 2, 4]}, {}, images(2, (64, 48))),
    "focalnet": A("FocalNetModel", {"image_size": 32, "patch_size": 2, "embed_dim": 16,
                                    "depths": [2, 2], "hidden_sizes": [16, 32],
                                    "focal_levels": [2, 2], "focal_windows": [3, 3]}, {},
                  images()),
    "hiera": A("HieraModel", {"embed_dim": 8, "image_size": [64, 64], "depths": [1, 1, 1, 1],
                              "num_heads": [1, 2, 2, 4], "patch_stride": [4, 4]}, {}, images()),
    "swiftformer": A("SwiftFormerModel", {"embed_dims": [8, 16, 24, 32], "depths": [1, 1, 1, 1]},
                     {}, images(2, (64, 96))),
    "textnet": A("TextNetModel", {"stem_out_channels": 8,
                                             "hidden_sizes": [8, 8, 16, 16, 16]}, {},
                            images(2, (64, 96))),
    "hgnet_v2": A("HGNetV2ForImageClassification", {}, {}, images(2, (64, 96))),
    "yolos": A("YolosModel", {**PATCHES, "image_size": [30, 42], "num_detection_tokens": 3}, {},
               images()),
    "detr": A("DetrForObjectDetection", {**DETR, "backbone_config": detr_backbone},
              {"backbone_config": detr_large_backbone, "use_timm_backbone": False,
               "backbone": None, "use_pretrained_backbone": False}, images(2, (64, 96))),
    "conditional_detr": A("ConditionalDetrModel", {**DETR, "backbone_config": detr_backbone},
                          {"backbone_config": detr_large_backbone, "use_timm_backbone": False,
                           "backbone": None, "use_pretrained_backbone": False},
                          images(2, (64, 96))),
    "depth_anything": A(
        "DepthAnythingForDepthEstimation",
        {"backbone_config": dinov2_backbone, "patch_size": 14, "reassemble_hidden_size": 32,
         "neck_hidden_sizes": [8, 16, 24, 24], "fusion_hidden_size": 16, "head_hidden_size": 16,
         "reassemble_factors": [4, 2, 1, 0.5]},
        {}, images(2, (42, 56)),
    ),
    "dpt": A("DPTForDepthEstimation",
             {**PATCHES, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3],
              "neck_hidden_sizes": [8, 16, 24, 24], "fusion_hidden_size": 16, "image_size": 32,
              "patch_size": 16, "is_hybrid": False}, {}, images()),
    "glpn": A("GLPNForDepthEstimation", {**SEGFORMER}, {}, images(2, (64, 96))),
    "upernet": A("UperNetForSemanticSegmentation",
                 {"backbone_config": convnext_backbone, "hidden_size": 16, "num_labels": 5,
                  "auxiliary_in_channels": 24, "auxiliary_channels": 8, "pool_scales": [1, 2, 3]},
                 {"backbone_config": convnext_backbone}, images(2, (64, 96))),
    "sam_vision": A(
        "SamVisionModel",
        {**PATCHES, "image_size": 48, "output_channels": 16, "window_size": 3, "mlp_dim": 64,
         "global_attn_indexes": [1], "num_pos_feats": 16},
        {"image_size": 256, "num_hidden_layers": 4, "global_attn_indexes": [1, 3]}, images(),
    ),
    "vitdet": A("VitDetModel", {"hidden_size": 32, "num_hidden_layers": 2,
                                "num_attention_heads": 4, "image_size": 32, "patch_size": 4,
                                "pretrain_image_size": 32, "window_size": 3,
                                "window_block_indices": [0], "residual_block_indices": [1],
                                "use_relative_position_embeddings": True}, {}, images()),
    "imagegpt": A("ImageGPTModel", {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4,
                                    "n_positions": 64},
                  {"n_layer": 4, "n_embd": 512}, token_ids),
    # with text
    "clip": A("CLIPModel", {"text_config": TEXT_PART, "vision_config": PATCHES,
                            "projection_dim": 16}, {}, text_and_images()),
    "siglip": A("SiglipModel", {"text_config": TEXT_PART, "vision_config": PATCHES},
                {"text_config": {"num_hidden_layers": 4}, "vision_config": {}},
                text_and_images(16)),
    "owlvit": A("OwlViTModel", {"text_config": TEXT_PART, "vision_config": PATCHES,
                                "projection_dim": 16}, {}, text_and_images(16)),
    "clipseg": A("CLIPSegModel", {"text_config": TEXT_PART, "vision_config": PATCHES,
                                  "projection_dim": 16}, {}, text_and_images()),
    "align_vision": A("AlignVisionModel", {"width_coefficient": 0.25, "depth_coefficient": 0.25,
                                           "hidden_dim": 320},
                      {"width_coefficient": 1.0, "depth_coefficient": 1.0}, images(2, (64, 64))),
    "blip": A("BlipModel", {"text_config": TEXT_PART, "vision_config": PATCHES,
                            "projection_dim": 16},
              {"text_config": {"num_hidden_layers": 4}, "vision_config": {}}, text_and_images()),
    "vilt": A("ViltModel", {**PATCHES, "vocab_size": 99, "max_position_embeddings": 16,
                            "max_image_length": -1},
              {}, text_and_images()),
    # video
    "videomae": A("VideoMAEModel", {**PATCHES, "num_frames": 4, "tubelet_size": 2}, {}, video(4)),
    "timesformer": A("TimesformerModel", {**PATCHES, "num_frames": 3}, {"num_frames": 3},
                     video(3)),
    "vivit": A("VivitModel", {**PATCHES, "num_frames": 4, "tubelet_size": [2, 6, 6]},
               {"num_frames": 4}, video(4)),
}  # fmt: skip
