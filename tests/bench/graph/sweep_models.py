"""The networks of the sweep: (family, name) -> how to build it and its inputs.

Architectures of torchvision, timm and transformers as their libraries build
them, with random weights, few classes and, where that changes nothing else,
small images, few layers and narrow ones. Nothing is downloaded.
"""
import dataclasses
from typing import Callable

import torch
import torch.nn as nn

SEED = 20260131


@dataclasses.dataclass
class Entry:
    family: str
    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[..., dict]      # batch (, length) -> {name: tensor}
    dynamic: dict                    # input name -> {axis: symbol}
    lengths: tuple = ()


def gen(batch):
    return torch.Generator().manual_seed(SEED + batch)


def images(*shape, name="x"):
    return lambda b, n=None: {name: torch.randn(b, *shape, generator=gen(b))}


# ---------------------------------------------------------------- torchvision
def torchvision_entries():
    def entry(name, shape=(3, 96, 96), where="", **kw):
        def build():
            import torchvision
            room = torchvision.models
            for part in where.split("."):
                room = getattr(room, part) if part else room
            return Picked(getattr(room, name)(**{"weights": None, "num_classes": 10, **kw}))
        return Entry("torchvision", name, build, images(*shape), {"x": {0: "batch"}})

    plain = ["resnet18", "vgg16", "convnext_base", "densenet121", "efficientnet_b3", "regnet_y_3_2gf", "shufflenet_v2_x1_0", "squeezenet1_0", "resnet34", "squeezenet1_1", "shufflenet_v2_x0_5", "mobilenet_v2", "mobilenet_v3_small",
             "mnasnet0_5", "regnet_x_400mf", "regnet_y_400mf", "resnext50_32x4d", "wide_resnet50_2",
             "densenet169", "efficientnet_v2_s", "efficientnet_b1", "convnext_small", "alexnet"]
    yield from (entry(name) for name in plain)
    yield entry("vgg11_bn", (3, 64, 64))
    yield entry("googlenet", init_weights=False, aux_logits=False)
    yield entry("inception_v3", (3, 112, 112), init_weights=False)
    yield entry("swin_v2_t", (3, 224, 224))
    yield entry("swin_s", (3, 112, 112))
    yield entry("maxvit_t", (3, 224, 224))
    yield entry("vit_b_32", (3, 224, 224))
    bare = {"weights_backbone": None}
    for name in ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "deeplabv3_resnet50", "lraspp_mobilenet_v3_large"):
        yield entry(name, (3, 64, 96), "segmentation", **bare)
    for name in ("r3d_18", "mc3_18", "r2plus1d_18"):
        yield entry(name, (3, 8, 48, 48), "video")
    yield entry("s3d", (3, 16, 224, 224), "video")
    yield entry("swin3d_t", (3, 8, 64, 64), "video")
    yield entry("mvit_v1_b", (3, 16, 224, 224), "video")
    yield entry("mvit_v2_s", (3, 16, 224, 224), "video")
    for name in ("raft_small", "raft_large"):
        yield Entry("torchvision", name, raft(name), lambda b, n=None: {
            "a": torch.randn(b, 3, 128, 128, generator=gen(b)),
            "b": torch.randn(b, 3, 128, 128, generator=gen(b + 50))},
            {"a": {0: "batch"}, "b": {0: "batch"}})
    # Lists of images in, dictionaries out: one image, boxes by score. Batch
    # normalisations take their statistics from two.
    for name in ("ssdlite320_mobilenet_v3_large", "fasterrcnn_mobilenet_v3_large_320_fpn", "retinanet_resnet50_fpn",
                 "fcos_resnet50_fpn", "ssd300_vgg16", "maskrcnn_resnet50_fpn", "keypointrcnn_resnet50_fpn",
                 "fasterrcnn_resnet50_fpn_v2", "retinanet_resnet50_fpn_v2"):
        yield Entry("torchvision", name, detector(name), lambda b, n=None: {
            "x": torch.rand(*((2,) if b > 2 else ()), 3, 320, 320, generator=gen(b))}, {})


def raft(name):
    def build():
        import torchvision
        return RaftFlow(getattr(torchvision.models.optical_flow, name)(weights=None))
    return build


class RaftFlow(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.m = m

    def forward(self, a, b):
        return self.m(a, b, num_flow_updates=3)[-1]


class Detector(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.m = m

    def forward(self, x):
        found = self.m([x] if x.dim() == 3 else list(x))
        found = found[1] if isinstance(found, tuple) else found
        return found[0]["boxes"], found[0]["scores"], found[0]["labels"]


def detector(name):
    def build():
        import torchvision
        return Detector(getattr(torchvision.models.detection, name)(
            weights=None, weights_backbone=None, num_classes=5))
    return build


class Picked(nn.Module):
    """The tensors of what a model gives, whatever holds them."""
    def __init__(self, m):
        super().__init__()
        self.m = m

    def forward(self, x):
        return tensors(self.m(x))


def tensors(y):
    if isinstance(y, torch.Tensor):
        return y
    if isinstance(y, dict):
        y = [v for k, v in y.items() if k != "past_key_values"]
    if isinstance(y, (list, tuple)):
        kept = [tensors(v) for v in y if v is not None]
        return tuple(t for v in kept for t in (v if isinstance(v, tuple) else (v,)))
    raise TypeError(f"a model that gives a {type(y).__name__}")


# ---------------------------------------------------------------- timm
# name, or (name, side of the image[, arguments]); 96 pixels unless said.
TIMM = [
    "resnet18d", "seresnext26t_32x4d", "skresnet18", "resnest14d", "res2net50_14w_8s", "res2next50",
    "ecaresnet26t", "resnetv2_18", "dpn48b", "legacy_xception", "xception41", "repvgg_a0", "ghostnet_050",
    "ghostnetv2_100", "mobileone_s0", "mobilenetv4_conv_small", "mobilenetv3_small_050", "tf_efficientnet_b0",
    "efficientnet_lite0", "mixnet_s", "fbnetc_100", "lcnet_050", "hardcorenas_a", "tinynet_e", "rexnet_100",
    "selecsls42", "ese_vovnet19b_dw", "regnety_002", "regnetz_b16", "nf_regnet_b0", "nfnet_l0", "eca_nfnet_l0",
    "hrnet_w18_small", "cspresnet50", "cspdarknet53", "dla34", "inception_v4", "inception_resnet_v2",
    "convmixer_768_32", "convnext_atto", "convnextv2_atto", "inception_next_atto", "poolformer_s12",
    "poolformerv2_s12", "caformer_s18", "convformer_s18", "mambaout_femto", "repghostnet_050", "starnet_s1",
    "rdnet_tiny", "fasternet_t0", "swiftformer_xs", "efficientvit_b0", "edgenext_xx_small", "mobilevit_xxs",
    "mobilevitv2_050", "pvt_v2_b0", "gernet_s", "tresnet_m", "csatv2", "resnet26t", "densenetblur121d",
    "resnetblur18", "gcresnet33ts", "semnasnet_075", "mobilenet_edgetpu_v2_xs", "test_vit", "test_byobnet",
    ("nextvit_small", 128), ("fastvit_t8", 128), ("repvit_m0_9", 128), ("mobilenetv4_hybrid_medium", 128),
    ("shvit_s1", 128), ("efficientformerv2_s0", 224), ("efficientformer_l1", 224), ("levit_128s", 224),
    ("efficientvit_m0", 224), ("deit_tiny_patch16_224", 224), ("deit_tiny_distilled_patch16_224", 224),
    ("deit3_small_patch16_224", 224, {"depth": 3}), ("beit_base_patch16_224", 224, {"depth": 2, "embed_dim": 192, "num_heads": 3}),
    ("cait_xxs24_224", 224, {"depth": 4}), ("coat_tiny", 224), ("coat_lite_tiny", 224), ("convit_tiny", 224),
    ("crossvit_tiny_240", 240), ("crossvit_9_dagger_240", 240), ("eva02_tiny_patch14_224", 224), ("mixer_s32_224", 224),
    ("gmixer_12_224", 224), ("gmlp_ti16_224", 224), ("resmlp_12_224", 224), ("twins_pcpvt_small", 224),
    ("twins_svt_small", 224), ("volo_d1_224", 224), ("xcit_nano_12_p16_224", 224), ("davit_tiny", 128),
    ("sequencer2d_s", 224), ("visformer_tiny", 224), ("focalnet_tiny_srf", 224), ("gcvit_xxtiny", 224),
    ("coatnet_nano_rw_224", 224), ("maxxvit_rmlp_nano_rw_256", 256), ("maxvit_rmlp_pico_rw_256", 256),
    ("samvit_base_patch16_224", 224, {"depth": 3, "embed_dim": 192, "num_heads": 3, "global_attn_indexes": (1,)}),
    ("hiera_tiny_224", 224), ("bat_resnext26ts", 256), ("botnet26t_256", 256), ("halonet26t", 256),
    ("lambda_resnet26t", 256), ("tiny_vit_5m_224", 224), ("nest_tiny", 224), ("pit_ti_224", 224),
    ("tnt_s_patch16_224", 224), ("swin_tiny_patch4_window7_224", 224), ("swinv2_tiny_window8_256", 256),
    ("swinv2_cr_tiny_224", 224), ("vit_relpos_small_patch16_224", 224, {"depth": 3}),
    ("vit_srelpos_small_patch16_224", 224, {"depth": 3}), ("vit_tiny_r_s16_p8_224", 224),
    ("vit_base_patch16_siglip_224", 224, {"depth": 2, "embed_dim": 192, "num_heads": 3}),
    ("vit_small_patch14_reg4_dinov2", 224, {"depth": 2, "img_size": 224}), ("vitamin_small_224", 224),
    ("vit_base_patch16_rope_reg1_gap_256", 256, {"depth": 2, "embed_dim": 192, "num_heads": 3}),
    ("flexivit_small", 240, {"depth": 2}), ("vit_small_patch16_dinov3", 256, {"depth": 2}),
    ("naflexvit_base_patch16_gap", 224, {"depth": 2, "embed_dim": 192, "num_heads": 3}),
    # The most downloaded, and one of each family that is not above.
    "resnet50", "resnet10t", "resnet50_gn", "resnetrs50", "resnetaa50", "seresnet50", "resnext50_32x4d", "ecaresnet50d_pruned", "densenet121",
    "efficientnet_b0", "efficientnet_b0_gn", "efficientnet_b0_g16_evos", "efficientnet_b1_pruned", "efficientnet_es", "efficientnetv2_rw_t", "tf_efficientnetv2_b0",
    "tf_efficientnetv2_s", "tf_efficientnet_lite0", "tf_mixnet_s", "tf_mobilenetv3_small_minimal_100", "mobilenetv2_100", "mobilenetv3_large_100",
    "mobilenetv3_small_100", "mnasnet_100", "spnasnet_100", "fbnetv3_b", "mobilenetv4_conv_medium", "mobilenetv4_hybrid_large", "vgg11_bn", "regnetx_002", "regnety_016",
    "regnetv_040", "regnetz_c16_evos", "repvgg_b0", "mobileone_s4", "convnext_tiny", "convnext_atto_ols", "convnext_atto_rms", "convnextv2_nano",
    "vovnet39a", "ese_vovnet19b_slim", "hgnet_tiny", "hgnetv2_b0", "lcnetv2_small", "lcnet_100", "dpn68b", "res2net50d", "resnest50d_4s2x40d", "skresnext50_32x4d",
    "resnetv2_50", "resnetv2_50d_evos", "nf_resnet50", "dm_nfnet_f0", "cs3darknet_s", "cspnext_tiny", "darknet53", "cspresnext50", "dla60_res2net", "xception65p",
    "hrnet_w18_ssld", "inception_v3", "efficientvit_l1", "efficientvim_m1", "lowformer_b0", "cpubone_b0_bfrobust", "rexnetr_200", "seresnextaa101d_32x8d",
    "selecsls60b", "gernet_m", "tresnet_v2_l", "ghostnetv3_100", "legacy_seresnext26_32x4d", "test_resnet", "test_efficientnet", "test_convnext", "test_nfnet",
    ("nasnetalarge", 128), ("pnasnet5large", 128), ("repvit_m1", 128), ("fastvit_mci0", 128), ("fastvit_sa12", 128), ("shvit_s3", 128), ("swiftformer_s", 128),
    ("iformer_t", 224), ("mvitv2_tiny", 224), ("hieradet_small", 224), ("mobilenetv5_300m", 256), ("efficientformerv2_s1", 224),
    ("vit_tiny_patch16_224", 224, {"depth": 3}), ("vit_small_patch32_224", 224, {"depth": 3}), ("vit_base_patch16_clip_224", 224, {"depth": 2}),
    ("vit_base_patch32_clip_quickgelu_224", 224, {"depth": 2}), ("vit_small_patch16_dinov3_qkvb", 256, {"depth": 2}), ("vit_so150m2_patch16_reg1_gap_256", 256, {"depth": 2}),
    ("vit_little_patch16_reg4_gap_256", 256, {"depth": 2}), ("vit_betwixt_patch16_rope_reg4_gap_256", 256, {"depth": 2}), ("vit_small_r26_s32_224", 224, {"depth": 2}),
    ("vit_relpos_small_patch16_rpn_224", 224, {"depth": 2}), ("vit_base_patch16_xp_224", 224, {"depth": 2}), ("vit_base_patch16_siglip_gap_224", 224, {"depth": 2}),
    ("vit_pe_core_tiny_patch16_384", 384, {"depth": 2}), ("vit_intern300m_patch14_448", 224, {"depth": 2, "img_size": 224, "embed_dim": 192, "num_heads": 3}), ("aimv2_large_patch14_224", 224, {"depth": 2, "embed_dim": 192, "num_heads": 3}),
    ("beitv2_base_patch16_224", 224, {"depth": 2}), ("eva02_base_patch16_clip_224", 224, {"depth": 2}), ("eva_giant_patch14_224", 224, {"depth": 2, "embed_dim": 192, "num_heads": 3}),
    ("deit3_base_patch16_224", 224, {"depth": 2}), ("deit_small_distilled_patch16_224", 224, {"depth": 2}), ("mixer_b16_224", 224), ("resmlp_24_224", 224),
    ("coat_mini", 224), ("cait_xxs36_224", 224, {"depth": 3}), ("crossvit_15_dagger_240", 240), ("levit_conv_128s", 224), ("levit_192", 224), ("pit_s_distilled_224", 224), ("xcit_tiny_12_p8_224", 224, {"depth": 2}),
    ("swin_s3_tiny_224", 224), ("swinv2_tiny_window16_256", 256), ("swinv2_cr_tiny_ns_224", 224), ("maxvit_tiny_tf_224", 224), ("coatnext_nano_rw_224", 224), ("coatnet_0_224", 224), ("maxxvitv2_nano_rw_256", 256),
    ("tnt_s_legacy_patch16_224", 224), ("nest_tiny_jx", 224), ("volo_d2_224", 224), ("hiera_small_abswin_256", 256), ("qwen3_vit_88m", 224, {"depth": 2}), ("gemma4_vit_167m", 224, {"depth": 2}), ("deepseek_vit_412m", 224, {"depth": 2}),
    ("sebotnet33ts_256", 256), ("lamhalobotnet50ts_256", 256), ("visformer_small", 224), ("vitamin_base_224", 224), ("mobilevitv2_100", 128), ("mobilevit_s", 256), ("edgenext_small", 256), ("davit_small", 224), ("focalnet_small_lrf", 224),
]


def timm_entries():
    for row in TIMM:
        name, side, kw = ((row,) if isinstance(row, str) else row) + (96, {})[len(row) - 1 if isinstance(row, tuple) else 0:]
        def build(name=name, kw=kw):
            import timm
            return Picked(timm.create_model(name, pretrained=False, num_classes=10, **kw))
        yield Entry("timm", name, build, images(3, side, side), {"x": {0: "batch"}})


def entries():
    from sweep_more import transformers_more
    from sweep_newest import transformers_newest
    from sweep_popular import transformers_popular
    from sweep_transformers import transformers_entries
    seen = set()
    for family in (torchvision_entries, timm_entries, transformers_entries, transformers_more, transformers_popular, transformers_newest):
        for entry in family():
            if (entry.family, entry.name) not in seen:
                seen.add((entry.family, entry.name))
                yield entry
