"""More networks of transformers for the sweep: configurations are the
library's own, made tiny by the names of their fields."""
import torch

from sweep_models import Entry, gen
from sweep_transformers import One, Three, Two, seq2seq, text, wave

TINY = dict(
    vocab_size=200, hidden_size=64, d_model=64, n_embd=64, dim=64, emb_dim=64, d_kv=16, d_ff=96, embedding_size=64, head_dim=16,
    num_hidden_layers=2, n_layer=2, n_layers=2, num_layers=2, num_decoder_layers=2, encoder_layers=2, decoder_layers=2,
    num_encoder_layers=2, num_attention_heads=4, num_heads=4, n_head=4, n_heads=4, encoder_attention_heads=4,
    decoder_attention_heads=4, num_encoder_attention_heads=4, num_decoder_attention_heads=4, num_key_value_heads=2, num_kv_heads=2,
    intermediate_size=96, n_inner=96, ffn_dim=96, encoder_ffn_dim=96, decoder_ffn_dim=96, hidden_dim=96, ffn_hidden_size=96,
    max_position_embeddings=128, n_positions=128, max_seq_len=128, image_size=64, patch_size=16, type_vocab_size=2, use_cache=False,
    decoder_start_token_id=1, initializer_range=0.2, projection_dim=32, num_labels=5,
    num_experts=4, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=48, state_size=8, n_groups=2)
TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id", "mask_token_id")


def has(config, name):
    try:
        return hasattr(config, name)
    except Exception:    # a field that each layer has for itself
        return True


def shrunk(kind, own):
    """The default configuration with every field of TINY that it has."""
    default = kind()
    values = {k: v for k, v in TINY.items() if has(default, k) and k not in own}
    for i, name in enumerate(TOKENS):
        token = getattr(default, name, None)
        if isinstance(token, int) and token >= 200 and name not in own:
            values[name] = i + 1
    if isinstance(getattr(default, "eos_token_id", None), list):
        values["eos_token_id"] = 2
    for name, part in getattr(default, "sub_configs", {}).items():
        if name not in own and getattr(default, name, None) is not None and hasattr(part, "model_type") and part.model_type:
            values[name] = shrunk(type(getattr(default, name)), {}).to_dict()
    for name, value in own.items():
        if isinstance(value, dict) and isinstance(values.get(name), dict):
            value = {**values[name], **value}
        if isinstance(value, dict) and name in getattr(default, "sub_configs", {}):
            part = getattr(default, name, None)
            if part is not None:
                value = {**shrunk(type(part), {}).to_dict(), **value}
        values[name] = value
    return kind(**{k: v for k, v in values.items() if v is not None})


def model(name, own, names, fixed):
    def f():
        import transformers
        kind = getattr(transformers, name)
        config = shrunk(kind.config_class, own)
        return {1: One, 2: Two, 3: Three}[len(names)](kind(config), names, **fixed)
    return f


def pixels(*shape):
    return lambda b, n=None: {"a": torch.randn(b, *shape, generator=gen(b))}


def words_and_pixels(b, n=None):
    g = gen(b)
    ids = torch.randint(3, 197, (b, 16), generator=g)
    ids[:, -1] = 2
    return {"a": ids, "b": torch.randn(b, 3, 64, 64, generator=g), "c": torch.ones(b, 16, dtype=torch.long)}


def speech_and_words(b, n=None):
    g = gen(b)
    return {"a": torch.randn(b, 16, 120, generator=g), "b": torch.randint(3, 197, (b, 7), generator=g)}


IDS = ("input_ids",)
TEXT = ("input_ids", "attention_mask")
PIXELS = ("pixel_values",)
SOUND = dict(conv_dim=(16, 16, 16), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3), num_conv_pos_embeddings=16,
             num_conv_pos_embedding_groups=4, vocab_size=32, apply_spec_augment=False)
DETR = dict(use_timm_backbone=False, use_pretrained_backbone=False, d_model=32, num_queries=7)
MAMBA = dict(num_heads=8, head_dim=16, n_groups=2, expand=2)

# Text in, states out: [name, own fields].
TEXTS = [
    "DPRQuestionEncoder", "BertGenerationEncoder", "Data2VecTextModel", "RemBertModel", "RobertaPreLayerNormModel", "RoCBertModel",
    ("LukeModel", {"entity_vocab_size": 50, "entity_emb_size": 16}), "MarkupLMModel", ("EsmModel", {"pad_token_id": 1, "mask_token_id": 5}), ("IBertModel", {"quant_mode": False}), "GteModel", "JinaEmbeddingsV3Model", "SplinterModel",
    "TapasModel", ("XmodModel", {"languages": ["en_XX"], "default_language": "en_XX"}), ("LayoutLMv3Model", {"coordinate_size": 10, "shape_size": 12}), ("LiltModel", {"hidden_size": 48}),
    ("ReformerModel", {"attn_layers": ["local", "local"], "axial_pos_embds": False, "is_decoder": False, "local_attn_chunk_length": 8, "attention_head_size": 16, "num_hidden_layers": 2}),
    ("BertForQuestionAnswering", {"num_labels": 2}), "BertForTokenClassification", "RobertaForSequenceClassification", "RobertaForMaskedLM", ("RobertaForQuestionAnswering", {"num_labels": 2}),
    "ElectraForPreTraining", "AlbertForMaskedLM", "DebertaV2ForSequenceClassification", "XLMRobertaForSequenceClassification", "MPNetForMaskedLM",
    "DistilBertForSequenceClassification", "DistilBertForMaskedLM", "MobileBertForSequenceClassification", "SqueezeBertForSequenceClassification",
    "ModernBertForMaskedLM", "CamembertForMaskedLM", ("FunnelBaseModel", {"block_sizes": [1, 1], "num_hidden_layers": None}), ("MraModel", {"block_per_row": 1}),
    ("GPT2ForSequenceClassification", {"pad_token_id": 0}), ("GPTJModel", {"rotary_dim": 8}), "GPTBigCodeModel", ("FalconModel", {"head_dim": None}), "MptModel", "PersimmonModel", "StableLmModel", "OlmoModel",
    "Olmo2Model", "CohereModel", ("Gemma2Model", {"head_dim": 16, "query_pre_attn_scalar": 16}), ("Gemma3TextModel", {"head_dim": 16}), ("Qwen3Model", {"head_dim": 16}), "Phi3Model",
    "Starcoder2Model", "SmolLM3Model", "GraniteModel", "NemotronModel", ("HeliumModel", {"head_dim": 16}), ("GlmModel", {"head_dim": 16}), "OpenAIGPTModel", "CTRLModel",
    "XGLMModel", "BioGptModel", "ModernBertDecoderModel", "LlamaForCausalLM", "Qwen2ForCausalLM", "OPTForCausalLM", "BloomForCausalLM",
    "GPTNeoXForCausalLM", ("MistralForSequenceClassification", {"pad_token_id": 0}), ("DeepseekV3Model", dict(n_routed_experts=4, n_group=1, topk_group=1, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, v_head_dim=16, qk_nope_head_dim=8, first_k_dense_replace=1, head_dim=8, num_key_value_heads=4)), "MixtralModel", "Qwen2MoeModel", ("MambaModel", {"intermediate_size": 128, "time_step_rank": 4}),
    ("Mamba2Model", {**MAMBA, "hidden_size": 64, "chunk_size": 16}), ("FalconMambaModel", {"intermediate_size": 128, "time_step_rank": 4}), ("RwkvModel", {"attention_hidden_size": 64}), ("RecurrentGemmaModel", {"lru_width": 64, "attention_window_size": 8}), ("Lfm2Model", {"layer_types": ["conv", "full_attention"], "full_attn_idxs": [1]}),
    ("GptOssModel", {"head_dim": 16, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}), "SeedOssModel", "BitNetModel", "ArceeModel",
    "CLIPTextModelWithProjection", ("GroupViTTextModel", {"eos_token_id": 2}), "AltCLIPTextModel", "LongT5EncoderModel", "SwitchTransformersEncoderModel",
]
ONLY_IDS = ["CanineModel", "YosoModel", "FNetForMaskedLM"]
# Pictures in.
VISION = [
    ("ViTForImageClassification", {}), ("DeiTForImageClassification", {}), ("BeitForImageClassification", {}), ("SwinForImageClassification", dict(embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4, patch_size=4, hidden_size=48, num_attention_heads=None)),
    ("ResNetForImageClassification", dict(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1])), ("ConvNextForImageClassification", dict(hidden_sizes=[16, 32], depths=[1, 1], num_stages=2)),
    ("Data2VecVisionModel", {}), ("DINOv3ViTModel", dict(num_register_tokens=1)), ("DINOv3ConvNextModel", dict(hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 1, 1])), ("IJepaModel", {}), ("SamVisionModel", dict(output_channels=16, global_attn_indexes=[1], window_size=2, num_pos_feats=8, mlp_dim=96)),
    ("Swin2SRForImageSuperResolution", dict(embed_dim=24, depths=[2], num_heads=[2], window_size=4, patch_size=1, hidden_size=None, num_attention_heads=None, num_hidden_layers=None)),
    ("Siglip2VisionModel", {}), ("Idefics3VisionTransformer", {}), ("SmolVLMVisionTransformer", {}), ("PixtralVisionModel", {}), ("Aimv2VisionModel", {}),
    ("BlipVisionModel", {}), ("CLIPVisionModelWithProjection", {}), ("ChineseCLIPVisionModel", {}), ("AltCLIPVisionModel", {}), ("InternVLVisionModel", dict(image_size=[64, 64], patch_size=[16, 16])),
    ("BeitForSemanticSegmentation", dict(num_hidden_layers=4, out_indices=[1, 2, 3, 4], pool_scales=[1, 2])), ("Data2VecVisionForSemanticSegmentation", dict(num_hidden_layers=4, out_indices=[0, 1, 2, 3], pool_scales=[1, 2])), ("MobileViTForSemanticSegmentation", dict(hidden_sizes=[32, 40, 48], neck_hidden_sizes=[8, 16, 24, 32, 40, 48, 64])),
    ("MobileNetV2ForImageClassification", {}), ("EfficientNetForImageClassification", dict(hidden_dim=1280, width_coefficient=1.0, depth_coefficient=1.0)), ("RegNetForImageClassification", dict(embedding_size=16, hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 1, 1], groups_width=8, hidden_size=64)),
    ("SegformerForImageClassification", dict(depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 40, 64], num_attention_heads=[1, 2, 5, 8])), ("CvtForImageClassification", dict(depth=[1, 2, 3], embed_dim=[16, 48, 96], num_heads=[1, 3, 6], patch_sizes=[7, 3, 3])), ("PvtForImageClassification", dict(depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 40, 64], num_attention_heads=[1, 2, 5, 8])), ("DepthAnythingForDepthEstimation", dict(backbone_config=None)), ("ZoeDepthForDepthEstimation", dict(backbone_config=None)),
    ("VitDetModel", {}), ("ImageGPTModel", dict(vocab_size=513)), ("HGNetV2ForImageClassification", {}), ("MgpstrForSceneTextRecognition", dict(image_size=[32, 128], patch_size=4, num_character_labels=9, num_bpe_labels=50, num_wordpiece_labels=60)), ("SuperPointForKeypointDetection", {}), ("VitPoseForPoseEstimation", dict(backbone_config=None)),
]


def transformers_more():
    both = {0: "batch", 1: "seq"}
    for row in TEXTS + [(n, {}) for n in ONLY_IDS]:
        name, own = (row, {}) if isinstance(row, str) else row
        names = IDS if name in ONLY_IDS or "Mamba" in name or name == "RwkvModel" else TEXT
        yield Entry("transformers", name, model(name, own, names, {}), text(names), {k: both for k, _ in zip("ab", names)}, (24,))
    for name, own in VISION:
        if "backbone_config" in own or name == "ImageGPTModel" or name in ("Siglip2VisionModel", "PixtralVisionModel"):
            continue
        shape = (3, 32, 128) if name.startswith("Mgpstr") else (3, 64, 64)
        yield Entry("transformers", name, model(name, own, PIXELS, {}), pixels(*shape), {"a": {0: "batch"}})
    for name, frames, own in (("VideoMAEModel", 4, dict(num_frames=4)), ("TimesformerModel", 4, dict(num_frames=4)), ("VivitModel", 4, dict(num_frames=4, tubelet_size=[2, 16, 16]))):
        yield Entry("transformers", name, model(name, own, PIXELS, {}), pixels(frames, 3, 64, 64), {"a": {0: "batch"}})
    for name in ("Data2VecAudioModel", "UniSpeechModel", "Wav2Vec2ConformerModel", "SEWDModel", "HubertForCTC", "WavLMForSequenceClassification", "Wav2Vec2ForSequenceClassification"):
        extra = dict(squeeze_factor=2) if name.startswith("SEW") else {}
        yield Entry("transformers", name, model(name, {**SOUND, **extra}, ("input_values",), {}), wave, {"a": {0: "batch"}})
    yield Entry("transformers", "Wav2Vec2BertModel", model("Wav2Vec2BertModel", dict(feature_projection_input_dim=32, apply_spec_augment=False), ("input_features",), {}),
                pixels(60, 32), {"a": {0: "batch"}})
    for name in ("EncodecModel", "MimiModel", "DacModel"):
        yield Entry("transformers", name, codec(name), lambda b, n=None: {"a": torch.randn(b, 1, 4800, generator=gen(b))}, {"a": {0: "batch"}})
    yield Entry("transformers", "VitsModel", model("VitsModel", {}, IDS, {}), lambda b, n=None: {"a": torch.randint(1, 30, (1, 16))}, {})
    for name, own in (("BlenderbotModel", {}), ("BlenderbotSmallModel", {}), ("M2M100Model", {}), ("PLBartModel", {}), ("LEDModel", {"attention_window": 8, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64}),
                      ("LongT5Model", {}), ("SwitchTransformersModel", {}), ("ProphetNetModel", {"num_hidden_layers": None}), ("FSMTModel", dict(src_vocab_size=200, tgt_vocab_size=200, langs=["en", "de"])), ("BigBirdPegasusModel", {"attention_type": "original_full"}), ("PegasusXModel", {"block_size": 8, "num_global_tokens": 4}), ("UMT5Model", {}),
                      ("MvpModel", {}), ("BartForConditionalGeneration", {}), ("T5ForConditionalGeneration", {}), ("MT5ForConditionalGeneration", {}), ("MarianMTModel", {"pad_token_id": 1}), ("PegasusForConditionalGeneration", {}), ("M2M100ForConditionalGeneration", {})):
        yield Entry("transformers", name, model(name, own, ("input_ids", "attention_mask", "decoder_input_ids"), dict(use_cache=False)), seq2seq,
                    {"a": both, "b": both, "c": {0: "batch"}}, (24,))
    for name, own in (("WhisperModel", dict(num_mel_bins=16, max_source_positions=60, max_target_positions=32)), ("WhisperForConditionalGeneration", dict(num_mel_bins=16, max_source_positions=60, max_target_positions=32))):
        yield Entry("transformers", name, model(name, own, ("input_features", "decoder_input_ids"), dict(use_cache=False)), speech_and_words, {"a": {0: "batch"}, "b": {0: "batch"}})
    for name in ("DabDetrForObjectDetection", "DeformableDetrForObjectDetection"):
        yield Entry("transformers", name, model(name, DETR, PIXELS, {}), pixels(3, 128, 128), {"a": {0: "batch"}})
    for name, own in (("MaskFormerForInstanceSegmentation", {}), ("Mask2FormerForUniversalSegmentation", {}), ("UperNetForSemanticSegmentation", {}), ("RTDetrV2ForObjectDetection", {}), ("DFineForObjectDetection", {})):
        yield Entry("transformers", name, model(name, own, PIXELS, {}), pixels(3, 128, 128), {"a": {0: "batch"}})
    for name, own in (("BlipModel", {}), ("AltCLIPModel", {}), ("CLIPSegModel", {}), ("OwlViTModel", {}), ("ViltModel", dict(max_image_length=-1))):
        names = ("input_ids", "pixel_values", "attention_mask")
        yield Entry("transformers", name, model(name, own, names, {}), words_and_pixels, {k: {0: "batch"} for k in "abc"})
    series = dict(num_input_channels=3, context_length=32, patch_length=8, patch_stride=8, prediction_length=8)
    for name in ("PatchTSTModel", "PatchTSTForPrediction", "PatchTSMixerModel", "PatchTSMixerForPrediction"):
        yield Entry("transformers", name, model(name, series, ("past_values",), {}), lambda b, n=None: {"a": torch.randn(b, 32, 3, generator=gen(b))}, {"a": {0: "batch"}})
    yield Entry("transformers", "TimesFmModel", model("TimesFmModel", dict(patch_length=8, horizon_length=8, context_length=32), ("past_values", "past_values_padding", "freq"), {}),
                lambda b, n=None: {"a": torch.randn(b, 32, generator=gen(b)), "b": torch.zeros(b, 32, dtype=torch.long), "c": torch.zeros(b, 1, dtype=torch.long)}, {k: {0: "batch"} for k in "abc"})


def codec(name):
    def f():
        import transformers
        kind = getattr(transformers, name)
        own = {"EncodecModel": dict(num_filters=4, hidden_size=16, codebook_size=32, codebook_dim=16), "DacModel": dict(encoder_hidden_size=8, decoder_hidden_size=32, codebook_size=32),
               "MimiModel": dict(num_filters=4, hidden_size=32, upsample_groups=32, codebook_size=32, codebook_dim=16, vector_quantization_hidden_dimension=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=16, intermediate_size=48)}
        return One(kind(kind.config_class(**own[name])), ("input_values",))
    return f
