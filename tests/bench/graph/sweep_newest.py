"""Networks of transformers younger than the other lists, and heads of those
that these have; tiny configurations, random weights."""
from sweep_models import Entry
from sweep_more import PIXELS, TEXT, model, pixels
from sweep_popular import AUDIO, IMAGE, KEEP, LATENT, MOE, SEVEN, WORDS, entry, waves
from sweep_transformers import text

DELTA = {"head_dim": 16, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16}
MIXED = {"layer_types": ["linear_attention", "full_attention"]}
EXPERTS = {"n_routed_experts": 4, "n_group": 1, "topk_group": 1}
MROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}}
SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}

DECODERS = [
    "AfmoeModel", "AriaTextModel", ("AXK1Model", {**EXPERTS, **LATENT}), "BailingHybridModel", "BeamModel", "Cohere2MoeModel", "CpmAntModel",
    ("DeepseekV32Model", {**MOE, **LATENT}), "DeepseekV4Model", ("Dots1Model", {**EXPERTS, "n_shared_experts": 1, "num_experts_per_tok": 2}), ("Dots3NoteTextModel", {**EXPERTS, **LATENT}), "Ernie4_5_MoeModel", ("ExaoneMoeModel", SLIDING), "FlintModel",
    ("Gemma4TextModel", {"head_dim": 16, **SLIDING}), ("Glm4MoeLiteModel", {**MOE, **LATENT}), ("Glm4vTextModel", MROPE), ("Glm4vMoeTextModel", {**MOE, "rope_parameters": {**MROPE["rope_parameters"], "partial_rotary_factor": 1.0}}), ("GlmMoeDsaModel", {**MOE, **LATENT}),
    "GraniteSWAModel", "GraniteMoeSWAModel", "HrmTextModel", "HunYuanMoEV1Model", "HYV3Model", "HyperCLOVAXModel", "InklingTextModel", "KimiLinearModel", "Kolibri1Model", "LagunaModel", "Lfm3Model",
    ("LongcatFlashModel", LATENT), "MellumModel", "MiMoV2FlashModel", "MiniMaxM2Model", "Molmo2TextModel", "NemotronHModel",
    ("OlmoHybridModel", {**DELTA, **MIXED}), ("Qwen2_5_VLTextModel", MROPE), ("Qwen3_5TextModel", {**DELTA, **MIXED}), ("Qwen3_5MoeTextModel", {**DELTA, **MIXED}), "Qwen3VLMoeTextModel", "Qwen4ExpTextModel", ("SolarOpenModel", MOE), ("YoutuModel", LATENT),
    ("ZayaModel", {"num_experts_per_tok": 1}), "OpenAIPrivacyFilterModel", "Tipsv2TextModel",
    ("Gemma3ForSequenceClassification", {}), ("GemmaForCausalLM", {"head_dim": 16}), ("Gemma2ForCausalLM", {"head_dim": 16, "query_pre_attn_scalar": 16}), "PhiForCausalLM", ("GPTJForCausalLM", {"rotary_dim": 8}), "GPTNeoXForSequenceClassification", "MptForCausalLM",
    "CohereForCausalLM", "OlmoeForCausalLM", "Qwen2MoeForCausalLM", "MixtralForCausalLM", "StableLmForCausalLM", "SmolLM3ForCausalLM", "GraniteForCausalLM", "NemotronForCausalLM", "Starcoder2ForCausalLM", "ElectraForCausalLM", "CTRLLMHeadModel", "OpenAIGPTLMHeadModel", "BioGptForCausalLM", "XGLMForCausalLM", "Qwen3ForSequenceClassification", "LlamaForTokenClassification",
    ("LlamaForQuestionAnswering", {"num_labels": 2}), "GptOssForCausalLM", ("Lfm2ForCausalLM", {"layer_types": ["conv", "full_attention"], "full_attn_idxs": [1]}),
]
HEADS = [
    "ConvBertForMaskedLM", "EuroBertForMaskedLM", "FlaubertWithLMHeadModel", "LayoutLMForMaskedLM", "NomicBertForMaskedLM", "RemBertForMaskedLM", "SqueezeBertForMaskedLM", ("TapasForMaskedLM", {}), "XLMRobertaXLForMaskedLM", ("XmodForMaskedLM", {"languages": ["en_XX"], "default_language": "en_XX"}), "YosoForMaskedLM",
    ("LukeForMaskedLM", {"entity_vocab_size": 50, "entity_emb_size": 16}), "GteForMaskedLM", "JinaEmbeddingsV3ForMaskedLM", "UltrabertForMaskedLM", ("EsmForTokenClassification", {"pad_token_id": 1, "mask_token_id": 5}), ("BigBirdForSequenceClassification", {"attention_type": "original_full"}), "ConvBertForSequenceClassification", "DebertaForSequenceClassification", "RoFormerForSequenceClassification",
    ("ModernBertForQuestionAnswering", {"num_labels": 2}), "NystromformerForSequenceClassification", "MegatronBertForSequenceClassification", "CamembertForSequenceClassification", ("AlbertForQuestionAnswering", {"num_labels": 2}), ("SplinterForQuestionAnswering", {"num_labels": 2}), "BertForNextSentencePrediction", "OPTForSequenceClassification", "BloomForTokenClassification",
]
PICTURES = [
    ("Sam3ViTModel", {}), ("Tipsv2VisionModel", {}),
    ("Data2VecVisionForImageClassification", {}), ("IJepaForImageClassification", {}), ("MetaClip2ForImageClassification", {}), ("ViTMSNForImageClassification", {}), ("DonutSwinForImageClassification", dict(embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4, patch_size=4, hidden_size=48, num_attention_heads=None)),
    ("DeiTForImageClassificationWithTeacher", {}), ("DeiTForMaskedImageModeling", {}), ("Dinov2Backbone", {}), ("BeitForMaskedImageModeling", {}), ("ConvNextBackbone", dict(hidden_sizes=[16, 32], depths=[1, 1], num_stages=2)), ("SwinBackbone", dict(embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4, patch_size=4, hidden_size=48, num_attention_heads=None)), ("ResNetBackbone", dict(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1])),
    ("PPOCRV6SmallRecModel", {}), ("PPOCRV6TinyRecModel", {}), ("CHMv2ForDepthEstimation", {}), ("SiglipVisionModel", {}), ("LevitForImageClassificationWithTeacher", dict(hidden_sizes=[16, 32, 48], num_attention_heads=[1, 2, 2], depths=[1, 1, 1], key_dim=[8, 8, 8])),
]
SOUND = dict(conv_dim=(16, 16, 16), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3), num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, vocab_size=32, apply_spec_augment=False)
ANY = [
    ("BartForQuestionAnswering", {"num_labels": 2}, {"input_ids": WORDS, "attention_mask": KEEP}), ("MBartForConditionalGeneration", {}, {"input_ids": WORDS, "attention_mask": KEEP, "decoder_input_ids": SEVEN}), ("BlenderbotForConditionalGeneration", {}, {"input_ids": WORDS, "attention_mask": KEEP, "decoder_input_ids": SEVEN}), ("LongT5ForConditionalGeneration", {}, {"input_ids": WORDS, "attention_mask": KEEP, "decoder_input_ids": SEVEN}),
    ("UMT5ForConditionalGeneration", {}, {"input_ids": WORDS, "attention_mask": KEEP, "decoder_input_ids": SEVEN}), ("SwitchTransformersForConditionalGeneration", {}, {"input_ids": WORDS, "attention_mask": KEEP, "decoder_input_ids": SEVEN}), ("T5Gemma2Model", {}, {"input_ids": WORDS, "attention_mask": KEEP, "decoder_input_ids": SEVEN}),
    ("Wav2Vec2ConformerForCTC", SOUND, {"input_values": AUDIO}), ("UniSpeechSatForCTC", SOUND, {"input_values": AUDIO}), ("SEWDForCTC", {**SOUND, "squeeze_factor": 2}, {"input_values": AUDIO}), ("Data2VecAudioForCTC", SOUND, {"input_values": AUDIO}), ("Wav2Vec2BertForCTC", dict(feature_projection_input_dim=32, apply_spec_augment=False), {"input_features": waves(60, 32)}),
    ("Qwen2AudioEncoder", {"num_mel_bins": 16, "max_source_positions": 60}, {"input_features": ((16, 120), None)}), ("VoxtralRealtimeEncoder", {"num_mel_bins": 16}, {"input_features": ((16, 120), None)}), ("GlmAsrEncoder", {"num_mel_bins": 16}, {"input_features": ((16, 120), None)}), ("LasrForCTC", {"encoder_config": {"num_mel_bins": 16}}, {"input_features": waves(64, 16)}), ("MoonshineForConditionalGeneration", {}, {"input_values": ((8000,), None), "decoder_input_ids": SEVEN}),
    ("ModernVBertModel", {}, {"input_ids": WORDS, "attention_mask": KEEP}), ("MMGroundingDinoModel", {"num_queries": 9}, {"pixel_values": ((3, 128, 128), None), "input_ids": WORDS, "attention_mask": KEEP}), ("Blip2QFormerModel", {"encoder_hidden_size": 32}, {"query_embeds": waves(5, 64), "encoder_hidden_states": waves(9, 32)}),
    ("Tipsv2Model", {}, {"input_ids": WORDS, "pixel_values": IMAGE, "attention_mask": KEEP}), ("XLNetForSequenceClassification", {"max_position_embeddings": None}, {"input_ids": WORDS, "attention_mask": KEEP}), ("BertForMultipleChoice", {}, {"input_ids": ((3, 16), 197), "attention_mask": ((3, 16), 1)}),
]


def transformers_newest():
    both = {0: "batch", 1: "seq"}
    for row in DECODERS + HEADS:
        name, own = (row, {}) if isinstance(row, str) else row
        if "For" in name and "Causal" not in name and "pad_token_id" not in own:
            own = {"pad_token_id": 0, **own}
        yield Entry("transformers", name, model(name, own, TEXT, {}), text(TEXT), {"a": both, "b": both}, (24,))
    for name, own in PICTURES:
        yield Entry("transformers", name, model(name, own, PIXELS, {}), pixels(3, 64, 64), {"a": {0: "batch"}})
    for name, own, kinds, *fixed in ANY:
        yield entry(name, own, kinds, *fixed)
