"""Networks of transformers that the other lists do not have: decoders of
language models, detectors, segmenters, speech, series, and heads."""
import torch

from sweep_models import Entry, gen
from sweep_more import IDS, PIXELS, SOUND, TEXT, model, pixels
from sweep_transformers import One, Three, Two, text

MOE = dict(n_routed_experts=4, n_group=1, topk_group=1, first_k_dense_replace=1)
LATENT = dict(q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, v_head_dim=16, qk_nope_head_dim=8, head_dim=8, num_key_value_heads=4)
MAMBA = dict(mamba_n_heads=8, mamba_d_head=16, mamba_n_groups=2, mamba_d_state=8, mamba_expand=2, mamba_chunk_size=16)

DECODERS = [
    "Qwen3MoeModel", "Olmo3Model", "OlmoeModel", "FlexOlmoModel", "PhimoeModel", ("Glm4Model", {"head_dim": 16}), ("Glm4MoeModel", MOE),
    "GraniteMoeModel", "GraniteMoeSharedModel", ("GraniteMoeHybridModel", {**MAMBA, "layer_types": ["mamba", "attention"]}), ("BambaModel", {**MAMBA, "attn_layer_indices": [1]}),
    ("JambaModel", {"mamba_d_state": 8, "mamba_dt_rank": 4, "attn_layer_offset": 1, "attn_layer_period": 2, "use_mamba_kernels": False}), ("FalconH1Model", {**MAMBA, "mamba_d_ssm": 128}),
    ("Cohere2Model", {"sliding_window": 8}), "Ernie4_5Model", "Exaone4Model", "HunYuanDenseV1Model", ("DeepseekV2Model", {**MOE, **LATENT}), "DiffLlamaModel", "DogeModel",
    "ApertusModel", ("VaultGemmaModel", {"head_dim": 16, "query_pre_attn_scalar": 16}), "NanoChatModel", ("MiniCPM3Model", LATENT), "MinistralModel", "Ministral3Model", "GPTNeoXJapaneseModel",
    ("Qwen3NextModel", {"head_dim": 16, "layer_types": ["linear_attention", "full_attention"], "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16}),
    ("Llama4TextModel", {"head_dim": 16, "intermediate_size_mlp": 96, "attention_chunk_size": 8}), ("Gemma3nTextModel", {"head_dim": 16, "vocab_size_per_layer_input": 200, "hidden_size_per_layer_input": 8, "laurel_rank": 8, "altup_num_inputs": 2, "num_kv_shared_layers": 0, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}),
    ("MiniMaxModel", {"head_dim": 16, "block_size": 16}), "JetMoeModel", "xLSTMModel", "CwmModel", ("Lfm2MoeModel", {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1}), "Jais2Model",
    "Phi3ForCausalLM", "Qwen3ForCausalLM", ("Gemma3ForCausalLM", {"head_dim": 16}), "MistralForCausalLM", ("FalconForCausalLM", {"head_dim": None}), "Qwen2ForTokenClassification", ("LlamaForSequenceClassification", {"pad_token_id": 0}), "BertGenerationDecoder", "BertLMHeadModel", "RobertaForCausalLM", "TrOCRForCausalLM", "MarianForCausalLM", "BartForCausalLM", ("ProphetNetForCausalLM", {"num_hidden_layers": None}),
]
HEADS = [
    "BertForPreTraining", "ElectraForTokenClassification", "ElectraForSequenceClassification", "ElectraForMaskedLM", "DebertaForMaskedLM", "DebertaV2ForMaskedLM", "DebertaV2ForTokenClassification", ("DebertaV2ForQuestionAnswering", {"num_labels": 2}),
    "XLMRobertaForTokenClassification", "XLMRobertaForMaskedLM", ("XLMRobertaForQuestionAnswering", {"num_labels": 2}), "DistilBertForTokenClassification", "MPNetForSequenceClassification", "ModernBertForSequenceClassification", "ModernBertForTokenClassification",
    "AlbertForSequenceClassification", "CamembertForTokenClassification", "BartForSequenceClassification", "RoFormerForMaskedLM", "FNetForSequenceClassification", "NystromformerForMaskedLM", ("EsmForMaskedLM", {"pad_token_id": 1, "mask_token_id": 5}), "BigBirdForMaskedLM", "LayoutLMForTokenClassification", ("XLNetLMHeadModel", {"max_position_embeddings": None}), "T5ForTokenClassification", "GPT2ForTokenClassification",
    ("Siglip2TextModel", {"max_position_embeddings": 64}), ("MetaClip2TextModel", {"eos_token_id": 2}), "CLIPSegTextModel", "BlipTextModel", ("Owlv2TextModel", {"eos_token_id": 2}), "DPRContextEncoder", ("DPRReader", {"projection_dim": 0}), "VisualBertModel", "ErnieForMaskedLM", "MegatronBertForMaskedLM", "MobileBertForMaskedLM",
    ("T5GemmaEncoderModel", {"is_encoder_decoder": False}), "EmbeddingGemma2TextModel", ("PerceiverForMaskedLM", {"initializer_range": 0.02, "d_latents": 64, "num_latents": 16, "num_self_attends_per_block": 2}), "UltrabertModel", "ChineseCLIPTextModel", "FlavaTextModel", "NomicBertModel", ("EsmcModel", {}),
]
SAM = dict(output_channels=16, global_attn_indexes=[1], window_size=2, num_pos_feats=8, mlp_dim=96)
STAGES = dict(depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 40, 64])
SWIN = dict(embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4, patch_size=4, hidden_size=48, num_attention_heads=None)
PICTURES = [
    ("ViTMAEModel", {"mask_ratio": 0.0}), ("ViTForMaskedImageModeling", {}), ("Dinov2ForImageClassification", {}), ("Dinov2WithRegistersForImageClassification", {}), ("DINOv3ViTForImageClassification", {}), ("Swinv2ForImageClassification", SWIN),
    ("SegformerModel", {**STAGES, "num_attention_heads": [1, 2, 5, 8]}), ("GLPNModel", {**STAGES, "num_attention_heads": [1, 2, 5, 8]}), ("DPTModel", {}), ("DPTForSemanticSegmentation", {"num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [16, 16, 32, 32], "fusion_hidden_size": 16, "is_hybrid": False}),
    ("MLCDVisionModel", {}), ("MetaClip2VisionModel", {}), ("Owlv2VisionModel", {}), ("OwlViTVisionModel", {}), ("Blip2VisionModel", {}), ("InstructBlipVisionModel", {}), ("FlavaImageModel", {}), ("CLIPSegVisionModel", {}), ("GitVisionModel", {}), ("PixioModel", {}), ("RadioModel", {}), ("Sapiens2Model", {}), ("SamHQVisionModel", SAM),
    ("Sam2HieraDetModel", dict(embed_dim_per_stage=[16, 32, 64, 64], num_attention_heads_per_stage=[1, 2, 4, 4], blocks_per_stage=[1, 1, 1, 1], global_attention_blocks=[2], hidden_size=16)),
    ("MobileViTForImageClassification", dict(hidden_sizes=[32, 40, 48], neck_hidden_sizes=[8, 16, 24, 32, 40, 48, 64])), ("MobileViTV2ForSemanticSegmentation", dict(width_multiplier=0.5)), ("MobileNetV2ForSemanticSegmentation", {}), ("MobileNetV1ForImageClassification", {}), ("ConvNextV2ForImageClassification", dict(hidden_sizes=[16, 32], depths=[1, 1], num_stages=2)),
    ("PvtV2ForImageClassification", {**STAGES, "num_attention_heads": [1, 2, 5, 8]}), ("PoolFormerForImageClassification", dict(depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 40, 64])), ("LevitForImageClassification", dict(hidden_sizes=[16, 32, 48], num_attention_heads=[1, 2, 2], depths=[1, 1, 1], key_dim=[8, 8, 8])), ("FocalNetForImageClassification", dict(embed_dim=16, depths=[1, 1], focal_levels=[2, 2], focal_windows=[3, 3])),
    ("HieraForImageClassification", dict(image_size=[64, 64], embed_dim=24, depths=[1, 1, 1, 1], num_heads=[1, 2, 4, 8], patch_size=[7, 7], hidden_size=None)), ("SwiftFormerForImageClassification", dict(depths=[1, 1, 1, 1], embed_dims=[16, 24, 32, 48])), ("BitForImageClassification", dict(embedding_size=16, hidden_sizes=[32, 64], depths=[1, 1], num_groups=8)), ("SwinForMaskedImageModeling", SWIN),
    ("PPLCNetForImageClassification", {}), ("UVDocModel", {}), ("PPOCRV5ServerRecModel", {}), ("PPOCRV5MobileDetForObjectDetection", {}), ("PPOCRV5ServerDetForObjectDetection", {}), ("TextNetForImageClassification", {}),
]
DETECT = [
    ("Deimv2ForObjectDetection", {}), ("PPDocLayoutV3ForObjectDetection", {}), ("UperNetForSemanticSegmentation", {}), ("VitMatteForImageMatting", {"hidden_size": 768, "fusion_hidden_sizes": [256, 128, 64, 32]}), ("DepthAnythingForDepthEstimation", {"patch_size": 14}), ("ZoeDepthForDepthEstimation", {}), ("PromptDepthAnythingForDepthEstimation", {"patch_size": 14}), ("DepthProForDepthEstimation", {}),
]


class Four(One):
    def forward(self, a, b, c, d):
        return self.call(a, b, c, d)


class Five(One):
    def forward(self, a, b, c, d, e):
        return self.call(a, b, c, d, e)


class Six(One):
    def forward(self, a, b, c, d, e, f):
        return self.call(a, b, c, d, e, f)


def made(name, own, names, fixed=None, part=None):
    """As `model`, of up to six inputs, or of one part of the model."""
    def f():
        if len(names) < 4 and not part:
            return model(name, own, names, fixed or {})()
        whole = model(name, own, IDS, {})().m
        for step in (part or "").split("."):
            whole = getattr(whole, step) if step else whole
        return {1: One, 2: Two, 3: Three, 4: Four, 5: Five, 6: Six}[len(names)](whole, names, **(fixed or {}))
    return f


def entry(name, own, kinds, fixed=None, part=None, shown=None, batched=True):
    """kinds: input name -> (shape without batch, greatest value or None), or
    what makes it of a batch and a generator."""
    letters = "abcdef"[:len(kinds)]

    def inputs(b, n=None):
        g = gen(b)
        made_up = {}
        for letter, kind in zip(letters, kinds.values()):
            if callable(kind):
                made_up[letter] = kind(b, g)
                continue
            shape, high = kind
            if high is None:
                made_up[letter] = torch.randn(b, *shape, generator=g)
            elif high == 1:
                made_up[letter] = torch.ones(b, *shape, dtype=torch.long)
            else:
                made_up[letter] = torch.randint(3, high, (b, *shape), generator=g)
        return made_up
    return Entry("transformers", shown or name, made(name, own, tuple(kinds), fixed, part), inputs, {k: {0: "batch"} for k in letters} if batched else {})


WORDS = ((16,), 197)
KEEP = ((16,), 1)
SEVEN = ((7,), 197)
IMAGE = ((3, 64, 64), None)
AUDIO = ((4000,), None)


def waves(n, features):
    return ((n, features), None)


def placed_patches(b, g):
    """Row, column, pixels."""
    places = torch.cartesian_prod(torch.arange(3.0), torch.arange(4.0)).expand(b, 12, 2)
    return torch.cat([places, torch.randn(b, 12, 48, generator=g)], 2)


def boxes(b, g):
    return torch.rand(b, 16, 4, generator=g).cumsum(2) / 4


SERIES = dict(prediction_length=8, context_length=24, lags_sequence=[1, 2, 3], num_time_features=2, num_static_real_features=0, num_static_categorical_features=0, cardinality=None)
PAST = {"past_values": ((27,), None), "past_time_features": ((27, 2), None), "past_observed_mask": ((27,), 1), "future_time_features": ((8, 2), None)}

ANY = [
    ("SpeechT5ForSpeechToText", SOUND, {"input_values": AUDIO, "decoder_input_ids": ((7,), 30)}), ("SpeechT5ForTextToSpeech", {**SOUND, "vocab_size": 200, "speech_decoder_prenet_dropout": 0.0, "speaker_embedding_dim": 8}, {"input_ids": WORDS, "decoder_input_values": waves(12, 80), "speaker_embeddings": ((8,), None)}),
    ("SpeechT5HifiGan", {"model_in_dim": 16, "upsample_initial_channel": 32}, {"spectrogram": waves(20, 16)}), ("Speech2TextModel", {"input_feat_per_channel": 16, "conv_channels": 32, "max_source_positions": 64}, {"input_features": waves(60, 16), "decoder_input_ids": SEVEN}),
    ("FastSpeech2ConformerModel", {}, {"input_ids": WORDS, "attention_mask": KEEP}), ("MoonshineModel", {}, {"input_values": ((8000,), None), "decoder_input_ids": SEVEN}), ("ParakeetForCTC", {"encoder_config": {"subsampling_conv_channels": 8, "num_mel_bins": 16}}, {"input_features": waves(64, 16)}),
    ("LasrEncoder", {"num_mel_bins": 16}, {"input_features": waves(64, 16)}), ("ClapAudioModel", {"spec_size": 64, "num_mel_bins": 16, "patch_size": 4, "patch_stride": [4, 4], "depths": [1, 1], "num_attention_heads": [2, 4], "num_hidden_layers": 2, "patch_embeds_hidden_size": 16, "hidden_size": 32, "window_size": 4, "enable_fusion": False}, {"input_features": ((1, 64, 16), None)}),
    ("VoxtralEncoder", {"num_mel_bins": 16, "max_source_positions": 60}, {"input_features": ((16, 120), None)}), ("MusicgenForCausalLM", {"num_codebooks": 1}, {"input_ids": WORDS}), ("BarkSemanticModel", {"input_vocab_size": 200, "output_vocab_size": 200, "hidden_size": 64, "block_size": 128}, {"input_ids": WORDS}),
    ("Wav2Vec2ForXVector", {**SOUND, "tdnn_dim": [16, 16, 32], "tdnn_kernel": [3, 3, 1], "tdnn_dilation": [1, 2, 1], "xvector_output_dim": 16}, {"input_values": AUDIO}), ("Wav2Vec2ForAudioFrameClassification", SOUND, {"input_values": AUDIO}), ("UniSpeechSatForXVector", {**SOUND, "tdnn_dim": [16, 16, 32], "tdnn_kernel": [3, 3, 1], "tdnn_dilation": [1, 2, 1], "xvector_output_dim": 16}, {"input_values": AUDIO}),
    ("Wav2Vec2ForPreTraining", SOUND, {"input_values": AUDIO}), ("HubertForSequenceClassification", SOUND, {"input_values": AUDIO}), ("WavLMForCTC", SOUND, {"input_values": AUDIO}), ("SEWForCTC", {**SOUND, "squeeze_factor": 2}, {"input_values": AUDIO}), ("ASTForAudioClassification", {"max_length": 64, "num_mel_bins": 32}, {"input_values": waves(64, 32)}),
    ("WhisperForAudioClassification", {"num_mel_bins": 16, "max_source_positions": 60}, {"input_features": ((16, 120), None)}), ("UnivNetModel", {"num_mel_bins": 16, "model_hidden_channels": 8, "initializer_range": 0.01}, {"input_features": waves(20, 16), "noise_sequence": waves(20, 64)}), ("Pop2PianoForConditionalGeneration", {}, {"input_features": waves(20, 64), "decoder_input_ids": SEVEN}),
    ("TimeSeriesTransformerModel", SERIES, PAST), ("InformerModel", SERIES, PAST), ("AutoformerModel", SERIES, PAST), ("PatchTSTForClassification", dict(num_input_channels=3, context_length=32, patch_length=8, patch_stride=8, num_targets=4), {"past_values": ((32, 3), None)}), ("PatchTSTForRegression", dict(num_input_channels=3, context_length=32, patch_length=8, patch_stride=8, num_targets=4), {"past_values": ((32, 3), None)}),
    ("PatchTSMixerForTimeSeriesClassification", dict(num_input_channels=3, context_length=32, patch_length=8, patch_stride=8, num_targets=4), {"past_values": ((32, 3), None)}), ("PatchTSTForPretraining", dict(num_input_channels=3, context_length=32, patch_length=8, patch_stride=8, do_mask_input=False), {"past_values": ((32, 3), None)}),
    ("DecisionTransformerModel", {"state_dim": 5, "act_dim": 3, "max_ep_len": 200}, {"states": waves(6, 5), "actions": waves(6, 3), "returns_to_go": waves(6, 1), "timesteps": ((6,), 100)}),
    ("PerceiverForImageClassificationLearned", {"num_latents": 8, "d_latents": 32, "image_size": 32, "num_blocks": 1, "num_self_attends_per_block": 2, "num_self_attention_heads": 4, "num_cross_attention_heads": 1}, {"inputs": ((3, 32, 32), None)}),
    ("VJEPA2Model", {"crop_size": 64, "frames_per_clip": 4, "tubelet_size": 2, "pred_hidden_size": 32, "pred_num_attention_heads": 2, "pred_num_hidden_layers": 1}, {"pixel_values_videos": ((4, 3, 64, 64), None)}, dict(skip_predictor=True)), ("SegGptForImageSegmentation", {"image_size": [64, 32], "num_hidden_layers": 5, "intermediate_hidden_state_indices": [1, 2, 3, 4], "decoder_hidden_size": 8, "merge_index": 0}, {"pixel_values": ((3, 32, 32), None), "prompt_pixel_values": ((3, 32, 32), None), "prompt_masks": ((3, 32, 32), None)}),
    ("Pix2StructVisionModel", {"patch_embed_hidden_size": 48, "seq_len": 64}, {"flattened_patches": placed_patches}), ("LayoutLMv3ForTokenClassification", {"coordinate_size": 10, "shape_size": 12, "input_size": 64}, {"input_ids": WORDS, "bbox": ((16, 4), 100), "pixel_values": IMAGE, "attention_mask": KEEP}),
    ("LxmertModel", {"visual_feat_dim": 16, "l_layers": 1, "x_layers": 1, "r_layers": 1}, {"input_ids": WORDS, "visual_feats": waves(5, 16), "visual_pos": waves(5, 4)}), ("FlavaModel", {}, {"input_ids": WORDS, "pixel_values": IMAGE, "attention_mask": KEEP}), ("BridgeTowerModel", {"num_hidden_layers": 2}, {"input_ids": WORDS, "pixel_values": IMAGE, "attention_mask": KEEP}),
    ("XCLIPModel", {"projection_dim": 32, "vision_config": {"mit_hidden_size": 32, "mit_intermediate_size": 48, "mit_num_attention_heads": 4}}, {"input_ids": WORDS, "pixel_values": ((8, 3, 64, 64), None), "attention_mask": KEEP}), ("GitModel", {}, {"input_ids": WORDS, "pixel_values": IMAGE, "attention_mask": KEEP}), ("AlignModel", {}, {"input_ids": WORDS, "pixel_values": IMAGE, "attention_mask": KEEP}), ("MetaClip2Model", {}, {"input_ids": WORDS, "pixel_values": IMAGE, "attention_mask": KEEP}),
    ("Aimv2Model", {}, {"input_ids": WORDS, "pixel_values": IMAGE, "attention_mask": KEEP}), ("Owlv2Model", {}, {"input_ids": WORDS, "pixel_values": IMAGE, "attention_mask": KEEP}), ("Owlv2ForObjectDetection", {"projection_dim": 64}, {"input_ids": WORDS, "pixel_values": IMAGE, "attention_mask": KEEP}), ("OwlViTForObjectDetection", {"projection_dim": 64}, {"input_ids": WORDS, "pixel_values": IMAGE, "attention_mask": KEEP}),
    ("BlipForConditionalGeneration", {}, {"pixel_values": IMAGE, "input_ids": WORDS, "attention_mask": KEEP}), ("BlipForImageTextRetrieval", {}, {"input_ids": WORDS, "pixel_values": IMAGE, "attention_mask": KEEP}), ("ViltForQuestionAnswering", dict(max_image_length=-1), {"input_ids": WORDS, "attention_mask": KEEP, "pixel_values": IMAGE}),
    ("SiglipForImageClassification", {}, {"pixel_values": IMAGE}), ("CLIPForImageClassification", {}, {"pixel_values": IMAGE}), ("CLIPSegForImageSegmentation", {"extract_layers": [0, 1], "reduce_dim": 16}, {"input_ids": WORDS, "pixel_values": IMAGE, "attention_mask": KEEP}), ("Swin2SRModel", dict(embed_dim=24, depths=[2], num_heads=[2], window_size=4, patch_size=1, hidden_size=None, num_attention_heads=None, num_hidden_layers=None), {"pixel_values": IMAGE}),
    ("Qwen2VLTextModel", {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}}, {"input_ids": WORDS, "attention_mask": KEEP}), ("Qwen3VLTextModel", {"head_dim": 16}, {"input_ids": WORDS, "attention_mask": KEEP}), ("InstructBlipQFormerModel", {"encoder_hidden_size": 32}, {"input_ids": WORDS, "encoder_hidden_states": waves(9, 32)}), ("GroupViTModel", {}, {"input_ids": WORDS, "pixel_values": IMAGE, "attention_mask": KEEP}),
    ("NllbMoeModel", {"num_experts": 4, "encoder_sparse_step": 1, "decoder_sparse_step": 1}, {"input_ids": WORDS, "attention_mask": KEEP, "decoder_input_ids": SEVEN}), ("T5GemmaModel", {}, {"input_ids": WORDS, "attention_mask": KEEP, "decoder_input_ids": SEVEN}), ("MT5Model", {}, {"input_ids": WORDS, "attention_mask": KEEP, "decoder_input_ids": SEVEN}), ("SeamlessM4TModel", {}, {"input_ids": WORDS, "decoder_input_ids": SEVEN}), ("XcodecModel", {"hidden_size": None, "codebook_size": 32, "acoustic_model_config": {"encoder_hidden_size": 8, "decoder_hidden_size": 64, "hidden_size": 32, "downsampling_ratios": [8, 5, 4, 2], "upsampling_ratios": [8, 5, 4, 2]}, "semantic_model_config": dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, conv_dim=(16,) * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, apply_spec_augment=False)}, {"input_values": ((1, 4000), None)}),
    ("SamModel", {"vision_config": dict(output_channels=16, global_attn_indexes=[1], window_size=2, num_pos_feats=8, mlp_dim=96), "prompt_encoder_config": dict(hidden_size=16, image_size=64, image_embedding_size=4, mask_input_channels=8), "mask_decoder_config": dict(hidden_size=16, iou_head_hidden_dim=16, mlp_dim=32)}, {"pixel_values": IMAGE, "input_points": ((1, 2, 2), None)}),
    ("GroundingDinoForObjectDetection", {"num_queries": 9}, {"pixel_values": ((3, 128, 128), None), "input_ids": WORDS, "attention_mask": KEEP}), ("OmDetTurboForObjectDetection", {"num_queries": 9, "d_model": None}, {"pixel_values": IMAGE, "classes_input_ids": WORDS, "classes_attention_mask": KEEP, "tasks_input_ids": WORDS, "tasks_attention_mask": KEEP, "classes_structure": lambda b, g: torch.ones(b, dtype=torch.long)}, None, ""), ("LightGlueForKeypointMatching", {}, {"pixel_values": ((2, 3, 64, 64), None)}), ("EfficientLoFTRModel", {"hidden_size": 256, "num_attention_heads": 8, "head_dim": None, "num_key_value_heads": None, "num_attention_layers": 2, "stage_num_blocks": [1, 1, 1, 1]}, {"pixel_values": ((2, 3, 64, 64), None)}),
    ("TimesFm2_5Model", dict(patch_length=8, horizon_length=8, context_length=32), {"past_values": ((32,), None)}), ("TvpModel", {"max_img_size": 64, "visual_prompt_size": 8, "num_frames": 4}, {"input_ids": lambda b, g: torch.randint(3, 197, (1, 16), generator=g), "pixel_values": lambda b, g: torch.randn(1, 4, 3, 64, 64, generator=g), "attention_mask": lambda b, g: torch.ones(1, 16, dtype=torch.long)}, None, None, None, False), ("VideoMAEForVideoClassification", dict(num_frames=4), {"pixel_values": ((4, 3, 64, 64), None)}), ("TimesformerForVideoClassification", dict(num_frames=4), {"pixel_values": ((4, 3, 64, 64), None)}),
    ("Llama4VisionModel", {"intermediate_size": 256, "vision_output_dim": 32, "projector_input_dim": 32, "projector_output_dim": 32}, {"pixel_values": IMAGE}), ("Florence2VisionBackbone", {"patch_size": None, "num_heads": None, "hidden_size": None}, {"hidden_states": IMAGE}), ("Siglip2Model", {}, {"input_ids": WORDS, "pixel_values": waves(16, 768), "pixel_attention_mask": KEEP, "spatial_shapes": lambda b, g: torch.full((b, 2), 4), "attention_mask": KEEP}), ("VisualBertModel", {"visual_embedding_dim": 16}, {"input_ids": WORDS, "attention_mask": KEEP, "visual_embeds": waves(5, 16)}),
    ("BrosModel", {}, {"input_ids": WORDS, "bbox": boxes, "attention_mask": KEEP}), ("ImageGPTModel", {"vocab_size": 513}, {"input_ids": WORDS}), ("Kosmos2Model", {}, {"pixel_values": IMAGE}, None, "vision_model", "Kosmos2VisionModel"),
    ("VideoLlama3VisionModel", {}, {"pixel_values": lambda b, g: torch.randn(16 * b, 768, generator=g), "grid_thw": lambda b, g: torch.tensor([[1, 4, 4]] * b), "merge_sizes": lambda b, g: torch.ones(b, dtype=torch.long)}, None, None, None, False),
    ("EomtForUniversalSegmentation", {"num_upscale_blocks": 1, "num_blocks": 1}, {"pixel_values": IMAGE}), ("PPOCRV5MobileRecModel", {}, {"pixel_values": ((3, 96, 160), None)}),
    ("LwDetrForObjectDetection", {"num_queries": 9, "projector_scale_factors": [1.0]}, {"pixel_values": ((3, 256, 256), None)}), ("VitPoseForPoseEstimation", {}, {"pixel_values": ((3, 256, 192), None)}), ("RfDetrForObjectDetection", {"num_queries": 9}, {"pixel_values": ((3, 224, 224), None)}), ("OneFormerForUniversalSegmentation", {}, {"pixel_values": ((3, 128, 128), None), "task_inputs": ((77,), 197)}),
    ("UdopEncoderModel", {}, {"input_ids": WORDS, "bbox": boxes, "attention_mask": KEEP}), ("XLMWithLMHeadModel", {}, {"input_ids": WORDS, "attention_mask": KEEP}), ("LongformerForSequenceClassification", {"attention_window": 8}, {"input_ids": WORDS, "attention_mask": KEEP}),
]


def transformers_popular():
    both = {0: "batch", 1: "seq"}
    for row in DECODERS + HEADS:
        name, own = (row, {}) if isinstance(row, str) else row
        yield Entry("transformers", name, model(name, own, TEXT, {}), text(TEXT), {"a": both, "b": both}, (24,))
    for name, own in PICTURES:
        yield Entry("transformers", name, model(name, own, PIXELS, {}), pixels(3, 64, 64), {"a": {0: "batch"}})
    for name, own in DETECT:
        yield Entry("transformers", name, model(name, own, PIXELS, {}), pixels(3, 128, 128), {"a": {0: "batch"}})
    for name, own, kinds, *fixed in ANY:
        yield entry(name, own, kinds, *fixed)
