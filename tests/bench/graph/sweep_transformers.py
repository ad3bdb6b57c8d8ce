"""Networks of transformers for the sweep: tiny configurations, random weights."""
import torch
import torch.nn as nn

from sweep_models import Entry, gen, tensors

D = dict(vocab_size=200, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
         max_position_embeddings=128)
TEXT = ("input_ids", "attention_mask")
VIT = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, image_size=64,
           patch_size=16)

# class, its configuration's arguments, inputs: of text in and states out.
ENCODERS = [
    ("BertModel", D, TEXT), ("RobertaModel", D, TEXT), ("CamembertModel", D, TEXT), ("XLMRobertaModel", D, TEXT),
    ("XLMRobertaXLModel", D, TEXT), ("ElectraModel", D, TEXT), ("MPNetModel", D, TEXT), ("LayoutLMModel", D, TEXT),
    ("ErnieModel", D, TEXT), ("MegatronBertModel", D, TEXT), ("RoFormerModel", {**D, "embedding_size": 64}, TEXT),
    ("NystromformerModel", {**D, "num_landmarks": 8, "segment_means_seq_len": 8}, TEXT),
    ("ConvBertModel", D, TEXT), ("BigBirdModel", {**D, "attention_type": "original_full"}, TEXT),
    ("AlbertModel", {**D, "embedding_size": 32}, TEXT), ("MobileBertModel", {**D, "embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32}, TEXT),
    ("SqueezeBertModel", {**D, "embedding_size": 64}, TEXT), ("FNetModel", {**D, "tpu_short_seq_length": 32}, ("input_ids",)),
    ("DistilBertModel", dict(vocab_size=200, dim=64, n_layers=2, n_heads=4, hidden_dim=96, max_position_embeddings=128), TEXT),
    ("FlaubertModel", dict(vocab_size=200, emb_dim=64, n_layers=2, n_heads=4, max_position_embeddings=128), TEXT),
    ("XLMModel", dict(vocab_size=200, emb_dim=64, n_layers=2, n_heads=4, max_position_embeddings=128), TEXT),
    ("DebertaModel", {**D, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}, TEXT),
    ("DebertaV2Model", {**D, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 16, "norm_rel_ebd": "layer_norm", "share_att_key": True}, TEXT),
    ("XLNetModel", dict(vocab_size=200, d_model=64, n_layer=2, n_head=4, d_inner=96), TEXT),
    ("FunnelModel", dict(vocab_size=200, block_sizes=[1, 1], d_model=64, n_head=4, d_head=16, d_inner=96, num_decoder_layers=1), TEXT),
    ("LongformerModel", {**D, "attention_window": 8}, TEXT),
    ("ModernBertModel", {**D, "pad_token_id": 0, "global_attn_every_n_layers": 2, "local_attention": 8}, TEXT),
    ("NomicBertModel", D, TEXT), ("EuroBertModel", {**D, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "mask_token_id": 3}, TEXT),
    ("T5EncoderModel", dict(vocab_size=200, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4), TEXT),
    ("MT5EncoderModel", dict(vocab_size=200, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4), TEXT),
    ("UMT5EncoderModel", dict(vocab_size=200, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4), TEXT),
    ("CLIPTextModel", {**D, "eos_token_id": 199, "bos_token_id": 198}, TEXT), ("SiglipTextModel", {**D, "max_position_embeddings": 64}, TEXT),
    ("BertForSequenceClassification", D, TEXT), ("RobertaForTokenClassification", D, TEXT),
    ("BertForMaskedLM", D, TEXT), ("DistilBertForQuestionAnswering", dict(vocab_size=200, dim=64, n_layers=2, n_heads=4, hidden_dim=96), TEXT),
    ("GPT2Model", dict(vocab_size=200, n_positions=128, n_embd=64, n_layer=2, n_head=4, use_cache=False), TEXT),
    ("GPT2LMHeadModel", dict(vocab_size=200, n_positions=128, n_embd=64, n_layer=2, n_head=4, use_cache=False), TEXT),
    ("OPTModel", dict(vocab_size=200, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, ffn_dim=96, max_position_embeddings=128, word_embed_proj_dim=64, use_cache=False), TEXT),
    ("GPTNeoXModel", {**D, "use_cache": False}, TEXT), ("GPTNeoModel", dict(vocab_size=200, hidden_size=64, num_layers=2, attention_types=[[["global", "local"], 1]], num_heads=4, max_position_embeddings=128, window_size=8, use_cache=False), TEXT),
    ("BloomModel", dict(vocab_size=200, hidden_size=64, n_layer=2, n_head=4, use_cache=False), TEXT),
    ("LlamaModel", {**D, "num_key_value_heads": 2, "use_cache": False}, TEXT), ("Qwen2Model", {**D, "num_key_value_heads": 2, "use_cache": False}, TEXT),
    ("GemmaModel", {**D, "num_key_value_heads": 2, "head_dim": 16, "use_cache": False}, TEXT), ("PhiModel", {**D, "use_cache": False}, TEXT),
    ("MistralModel", {**D, "num_key_value_heads": 2, "use_cache": False}, TEXT), ("CodeGenModel", dict(vocab_size=200, n_positions=128, n_embd=64, n_layer=2, n_head=4, rotary_dim=8, use_cache=False), TEXT),
]

IMAGES = [
    ("ViTModel", VIT, 64), ("DeiTModel", VIT, 64), ("BeitModel", VIT, 64), ("Dinov2Model", {**VIT, "patch_size": 8, "mlp_ratio": 2}, 64),
    ("Dinov2WithRegistersModel", {**VIT, "patch_size": 8}, 64), ("ViTMSNModel", VIT, 64),
    ("CLIPVisionModel", VIT, 64), ("SiglipVisionModel", VIT, 64), ("YolosModel", {**VIT, "image_size": [64, 64], "num_detection_tokens": 5}, 64),
    ("YolosForObjectDetection", {**VIT, "image_size": [64, 64], "num_detection_tokens": 5}, 64),
    ("SwinModel", dict(image_size=64, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4), 64),
    ("Swinv2Model", dict(image_size=64, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4), 64),
    ("SegformerForSemanticSegmentation", dict(depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 40, 64], decoder_hidden_size=32), 64),
    ("DPTForDepthEstimation", {**VIT, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [16, 16, 32, 32], "fusion_hidden_size": 16, "is_hybrid": False}, 64),
    ("GLPNForDepthEstimation", dict(depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 40, 64], decoder_hidden_size=16), 64),
    ("ConvNextModel", dict(hidden_sizes=[16, 32], depths=[1, 1], num_stages=2), 64), ("ConvNextV2Model", dict(hidden_sizes=[16, 32], depths=[1, 1], num_stages=2), 64),
    ("MobileViTModel", dict(hidden_sizes=[32, 40, 48], neck_hidden_sizes=[8, 16, 24, 32, 40, 48, 64], image_size=64), 64), ("MobileViTV2Model", dict(image_size=64, width_multiplier=0.5), 64),
    ("RegNetModel", dict(embedding_size=16, hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 1, 1], groups_width=8), 64), ("PoolFormerModel", dict(hidden_sizes=[16, 32, 40, 64], depths=[1, 1, 1, 1]), 64),
    ("ResNetModel", dict(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1]), 64), ("MobileNetV2Model", dict(image_size=64, depth_multiplier=0.5), 64), ("MobileNetV1Model", dict(image_size=64, depth_multiplier=0.5), 64),
    ("EfficientNetModel", dict(image_size=64, hidden_dim=1280, width_coefficient=1.0, depth_coefficient=1.0), 64), ("LevitModel", dict(image_size=64, hidden_sizes=[16, 32, 48], num_attention_heads=[1, 2, 2], depths=[1, 1, 1], key_dim=[8, 8, 8]), 64),
    ("CvtModel", dict(depth=[1, 2, 3]), 64), ("PvtModel", dict(image_size=64, depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 40, 64]), 64), ("PvtV2Model", dict(image_size=64, depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 40, 64]), 64),
    ("FocalNetModel", dict(image_size=64, embed_dim=16, depths=[1, 1], focal_levels=[2, 2], focal_windows=[3, 3]), 64), ("HieraModel", dict(image_size=[64, 64], embed_dim=24, depths=[1, 1, 1, 1], num_heads=[1, 2, 4, 8]), 64),
    ("BitModel", dict(embedding_size=16, hidden_sizes=[32, 64], depths=[1, 1], num_groups=8), 64), ("TextNetModel", {}, 64),
    ("SwiftFormerModel", dict(depths=[1, 1, 1, 1], embed_dims=[16, 24, 32, 48], image_size=64), 64), ("DonutSwinModel", dict(image_size=64, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4), 64),
]


def build(name, arguments):
    import transformers
    kind = getattr(transformers, name)
    config = kind.config_class(**arguments)
    return kind(config)


class Named(nn.Module):
    """Positional arguments in, by name to the model; its tensors out."""
    def __init__(self, m, names, **fixed):
        super().__init__()
        self.m, self.names, self.fixed = m, names, fixed

    def call(self, *values):
        return tensors(self.m(**dict(zip(self.names, values)), **self.fixed))


class One(Named):
    def forward(self, a):
        return self.call(a)


class Two(Named):
    def forward(self, a, b):
        return self.call(a, b)


class Three(Named):
    def forward(self, a, b, c):
        return self.call(a, b, c)


def named(name, arguments, names, **fixed):
    def f():
        return {1: One, 2: Two, 3: Three}[len(names)](build(name, arguments), names, **fixed)
    return f


def text(names, vocab=200, length=16):
    def f(b, n=None):
        n = n or length
        g = gen(b)
        ids = torch.randint(3, vocab - 3, (b, n), generator=g)
        ids[:, -1] = vocab - 1
        keep = torch.randint(n // 2, n + 1, (b,), generator=g)
        keep[0] = n
        mask = (torch.arange(n)[None] < keep[:, None]).long()
        values = {"a": ids, "b": mask}
        return {k: values[k] for k, _ in zip("ab", names)}
    return f


def wave(b, n=None):
    return {"a": torch.randn(b, n or 4000, generator=gen(b))}


def seq2seq(b, n=None):
    g = gen(b)
    return {"a": torch.randint(3, 197, (b, n or 16), generator=g), "b": torch.ones(b, n or 16, dtype=torch.long),
            "c": torch.randint(3, 197, (b, 7), generator=g)}


def pair(b, n=None):
    g = gen(b)
    ids = torch.randint(3, 197, (b, 16), generator=g)
    ids[:, -1] = 199
    return {"a": ids, "b": torch.randn(b, 3, 64, 64, generator=g), "c": torch.ones(b, 16, dtype=torch.long)}


def transformers_entries():
    both = {0: "batch", 1: "seq"}
    for name, arguments, names in ENCODERS:
        dynamic = {k: both for k, _ in zip("ab", names)}
        yield Entry("transformers", name, named(name, arguments, names), text(names), dynamic, (24,))
    for name, arguments, side in IMAGES:
        yield Entry("transformers", name, named(name, arguments, ("pixel_values",)),
                    lambda b, n=None, side=side: {"a": torch.randn(b, 3, side, side, generator=gen(b))}, {"a": {0: "batch"}})
    sound = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, conv_dim=(16, 16, 16),
                 conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3), num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
                 vocab_size=32, apply_spec_augment=False)
    for name in ("Wav2Vec2Model", "Wav2Vec2ForCTC", "HubertModel", "WavLMModel", "UniSpeechSatModel", "SEWModel"):
        extra = dict(squeeze_factor=2) if name == "SEWModel" else {}
        yield Entry("transformers", name, named(name, {**sound, **extra}, ("input_values",)), wave, {"a": {0: "batch"}})
    yield Entry("transformers", "WhisperEncoder", whisper, lambda b, n=None: {"a": torch.randn(b, 16, 120, generator=gen(b))},
                {"a": {0: "batch"}})
    yield Entry("transformers", "ASTModel", named("ASTModel", {**{k: v for k, v in VIT.items() if k != "image_size"}, "max_length": 64, "num_mel_bins": 32}, ("input_values",)),
                lambda b, n=None: {"a": torch.randn(b, 64, 32, generator=gen(b))}, {"a": {0: "batch"}})
    detr = dict(use_timm_backbone=False, use_pretrained_backbone=False, d_model=32, encoder_layers=1, decoder_layers=1,
                encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=48, decoder_ffn_dim=48, num_queries=7)
    for name in ("DetrForObjectDetection", "TableTransformerForObjectDetection", "ConditionalDetrForObjectDetection", "RTDetrForObjectDetection"):
        arguments = detr if not name.startswith("RT") else dict(use_timm_backbone=False, use_pretrained_backbone=False, num_queries=9)
        yield Entry("transformers", name, named(name, arguments, ("pixel_values",)),
                    lambda b, n=None: {"a": torch.randn(b, 3, 128, 128, generator=gen(b))}, {"a": {0: "batch"}})
    words = dict(vocab_size=200, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                 encoder_ffn_dim=96, decoder_ffn_dim=96, max_position_embeddings=64, use_cache=False)
    yield Entry("transformers", "BartEncoder", bart_encoder(words), text(TEXT), {"a": both, "b": both}, (24,))
    t5 = dict(vocab_size=200, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4, use_cache=False, decoder_start_token_id=0)
    for name, arguments in (("BartModel", words), ("MarianModel", {**words, "pad_token_id": 1, "decoder_start_token_id": 1}), ("T5Model", t5), ("PegasusModel", words), ("MBartModel", words)):
        yield Entry("transformers", name, named(name, arguments, ("input_ids", "attention_mask", "decoder_input_ids"), use_cache=False), seq2seq,
                    {"a": both, "b": both, "c": {0: "batch"}}, (24,))
    for name in ("CLIPModel", "SiglipModel", "ChineseCLIPModel", "GroupViTModel"):
        arguments = dict(text_config={**D, "eos_token_id": 199, "max_position_embeddings": 64}, vision_config=VIT, projection_dim=32)
        if name == "SiglipModel":
            arguments.pop("projection_dim")
        if name == "GroupViTModel":
            continue
        yield Entry("transformers", name, named(name, arguments, ("input_ids", "pixel_values", "attention_mask")), pair, {k: {0: "batch"} for k in "abc"})


def whisper():
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder
    return One(WhisperEncoder(WhisperConfig(d_model=32, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=48,
                                            num_mel_bins=16, max_source_positions=60)), ("input_features",))


def bart_encoder(arguments):
    def f():
        from transformers import BartConfig, BartModel
        return Two(BartModel(BartConfig(**arguments)).encoder, TEXT)
    return f
