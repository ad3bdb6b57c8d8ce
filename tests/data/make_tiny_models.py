#!/usr/bin/env python3
"""Writes into tests/data/graph a tiny version, with random weights, of each of
the seventeen models of tests/bench/graph: in four forms, with inputs of several
batches and lengths and what PyTorch gives for them. Run with the Python of
tests/bench/graph.sh (torch, torchvision, timm, transformers, onnx).

    tests/data/make_tiny_models.py [FOLDER] [--only a,b]

The blocks are those of the libraries; only widths and depths are small.
"""
import argparse
import functools
import io
import pathlib
import sys

import numpy as np
import torch
from torch import nn
from torch.export import Dim

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "bench" / "graph"))

import models as zoo  # noqa: E402
from make_graph import flat, slim  # noqa: E402


def resnet50():
    from torchvision.models.resnet import Bottleneck, conv1x1

    def block(i, planes, stride=1):
        down = nn.Sequential(conv1x1(i, 4 * planes, stride), nn.BatchNorm2d(4 * planes))
        return Bottleneck(i, planes, stride, None if i == 4 * planes and stride == 1 else down)
    return nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
                         nn.MaxPool2d(3, 2, 1), block(8, 4), block(16, 4), block(16, 6, 2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 5))


def mobilenet_v3_large():
    from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3
    row = functools.partial(InvertedResidualConfig, dilation=1, width_mult=1.0)
    return MobileNetV3([row(16, 3, 16, 16, False, "RE", 1), row(16, 3, 24, 16, False, "RE", 2),
                        row(16, 5, 24, 24, True, "RE", 2), row(24, 5, 40, 24, True, "HS", 1)], 32, num_classes=5)


def efficientnet_b0():
    from torchvision.models.efficientnet import EfficientNet, MBConvConfig
    return EfficientNet([MBConvConfig(1, 3, 1, 32, 8, 1), MBConvConfig(4, 3, 2, 8, 12, 2), MBConvConfig(6, 5, 2, 12, 16, 1)],
                        0.2, last_channel=24, num_classes=5)


def convnext_tiny():
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt
    return ConvNeXt([CNBlockConfig(8, 16, 2), CNBlockConfig(16, None, 2)], num_classes=5)


def vit_b_16():
    from torchvision.models import VisionTransformer
    return VisionTransformer(24, 8, 2, 2, 16, 32, num_classes=5)


def vit_tiny():
    from timm.models.vision_transformer import VisionTransformer
    return VisionTransformer(img_size=24, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=5)


def swin_t():
    from torchvision.models import SwinTransformer
    return SwinTransformer([2, 2], 8, [2, 1], [1, 2], [4, 4], num_classes=5)


def densenet121():
    from torchvision.models import DenseNet
    return DenseNet(4, (2, 3), 8, num_classes=5)


def bert(hidden, heads):
    def f():
        from transformers import BertConfig, BertModel
        return zoo.Encoder(BertModel(BertConfig(
            vocab_size=60, hidden_size=hidden, num_hidden_layers=2, num_attention_heads=heads,
            intermediate_size=2 * hidden, max_position_embeddings=32), add_pooling_layer=False))
    return f


def distilbert():
    from transformers import DistilBertConfig, DistilBertModel
    return zoo.Encoder(DistilBertModel(DistilBertConfig(
        vocab_size=60, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=32)))


class Dlrm(zoo.DLRM):
    def __init__(self):
        super().__init__(tables=3, rows=20, d=8, dense=5)
        n = self.li.numel() + 8
        self.bottom = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(n, 16), nn.ReLU(), nn.Linear(16, 1))


# Values of few bits, so that the files compress.
def coarse(x):
    return torch.round(4 * x) / 4


def image(side):
    return lambda g, b, n: (coarse(torch.randn(b, 3, side, side, generator=g)),)


def text(g, b, n):
    n = n or 6
    keep = torch.randint(n // 2, n + 1, (b,), generator=g)
    keep[0] = n
    mask = (torch.arange(n)[None] < keep[:, None]).long()
    return torch.randint(1, 60, (b, n), generator=g) * mask, mask


def ids(vocab, length):
    return lambda g, b, n: (torch.randint(0, vocab, (b, n or length), generator=g),)


def bags(g, b, n):
    offsets = torch.sort(torch.randint(0, 4 * b, (3, b), generator=g)).values
    offsets[:, 0] = 0
    return coarse(torch.randn(b, 5, generator=g)), torch.randint(0, 20, (3, 4 * b), generator=g), offsets


def wave(g, b, n):
    return (coarse(torch.randn(b, 800, generator=g)) / 8,)


B = {0: Dim("batch", min=1, max=64)}
T = {**B, 1: Dim("seq", min=2, max=32)}
TEXT = ({**T}, {**T})

# name → network, inputs, dynamic axes, other lengths
MODELS = {
    "resnet50": (resnet50, image(24), ({**B},), ()),
    "mobilenet_v3_large": (mobilenet_v3_large, image(24), ({**B},), ()),
    "efficientnet_b0": (efficientnet_b0, image(24), ({**B},), ()),
    "convnext_tiny": (convnext_tiny, image(24), ({**B},), ()),
    "vit_b_16": (vit_b_16, image(24), ({**B},), ()),
    "vit_tiny": (vit_tiny, image(24), ({**B},), ()),
    "swin_t": (swin_t, image(20), ({**B},), ()),
    "densenet121": (densenet121, image(24), ({**B},), ()),
    "unet": (lambda: zoo.UNet(2, 3), image(16), ({**B},), ()),
    "bert_base": (bert(16, 2), text, TEXT, (11,)),
    "minilm": (bert(24, 3), text, TEXT, (11,)),
    "distilbert": (distilbert, text, TEXT, (11,)),
    "gpt_small": (lambda: zoo.GPT(50, 16, 2, 2, 32), ids(50, 6), ({**T},), (11,)),
    "dlrm": (Dlrm, bags, ({**B}, {1: Dim("nidx", min=1, max=999)}, {1: B[0]}), ()),
    "lstm_tagger": (lambda: zoo.Tagger(nn.LSTM, 20, 6, 5, 3), ids(20, 5), ({**B},), ()),
    "gru_tagger": (lambda: zoo.Tagger(nn.GRU, 20, 6, 5, 3), ids(20, 5), ({**B},), ()),
    "speech_conv": (lambda: zoo.Speech(8, 4), wave, ({**B},), ()),
}


def slim_onnx(path):
    """Without what only people read; long names of values become short ones."""
    import onnx
    model = onnx.load(path)
    kept = {v.name for v in [*model.graph.input, *model.graph.output]} | {""}
    short = {}
    rename = lambda name: name if name in kept else short.setdefault(name, f"v{len(short)}")
    graphs = [model.graph]
    for graph in graphs:
        del graph.value_info[:]
        for value in [*graph.input, *graph.output, *graph.initializer]:
            value.name = rename(value.name)
        for node in graph.node:
            del node.metadata_props[:]
            node.doc_string = node.name = ""
            for names in (node.input, node.output):
                names[:] = [rename(name) for name in names]
            graphs += [a.g for a in node.attribute if a.HasField("g")]
    onnx.checker.check_model(model)
    onnx.save(model, path)


def make(name, folder):
    build, inputs, dynamic, lengths = MODELS[name]
    gen = lambda b: torch.Generator().manual_seed(100 + b)
    torch.manual_seed(7)
    example = dict(enumerate(inputs(gen(16), 16, None)))
    net = zoo.randomise(build(), example).requires_grad_(False)
    sets = {f"b{b}": inputs(gen(b), b, None) for b in (1, 2, 3)}
    sets.update({f"l{n}": inputs(gen(2), 2, n) for n in lengths})
    for tag, args in sets.items():
        np.savez_compressed(folder / f"{name}.{tag}.npz",
                            **{f"in{i}": t.numpy() for i, t in enumerate(args)},
                            **{f"out{i}": t.numpy() for i, t in enumerate(flat(net(*args)))})
    args = sets["b2"]
    program = torch.export.export(net, args, dynamic_shapes=dynamic, strict=False)
    for suffix, ep in (("", program), (".core", program.run_decompositions())):
        buffer = io.BytesIO()
        torch.export.save(ep, buffer)
        slim(buffer, folder / f"{name}{suffix}.pt2")
    torch.onnx.export(net, args, folder / f"{name}.onnx", dynamo=True, dynamic_shapes=dynamic,
                      external_data=False, verbose=False)
    names = [f"in{i}" for i in range(len(args))]
    torch.onnx.export(net, args, folder / f"{name}.ts.onnx", dynamo=False, opset_version=17, input_names=names,
                      dynamic_axes={k: {axis: d.__name__ for axis, d in dims.items()} for k, dims in zip(names, dynamic)})
    for form in (".onnx", ".ts.onnx"):
        slim_onnx(folder / (name + form))


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("folder", nargs="?", type=pathlib.Path, default=HERE / "graph")
    ap.add_argument("--only", default="")
    a = ap.parse_args()
    a.folder.mkdir(exist_ok=True)
    torch.backends.mha.set_fastpath_enabled(False)
    for name in MODELS:
        if not a.only or name in a.only.split(","):
            make(name, a.folder)
            print(name, flush=True)


if __name__ == "__main__":
    main()
