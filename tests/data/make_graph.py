#!/usr/bin/env python3
"""Writes tests/data/graph: tiny networks with random weights as PyTorch exports
(as exported and after decompositions) and ONNX, with inputs and what PyTorch
gives for them. Run with the Python of tests/bench/graph.sh (torch, onnx).

    tests/data/make_graph.py [FOLDER] [--only a,b]

Stack traces and sample inputs are taken out of the archives, which are most of
a tiny one.
"""
import argparse
import io
import json
import pathlib
import zipfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim


class Residual(nn.Module):
    """Convolutions, batch norm, changes in place, pooling, a head."""
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.a = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.b = nn.Conv2d(8, 8, 1)
        self.gate = nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.stem(x)), inplace=True), 3, 2, 1)
        y = F.hardswish(self.b(F.silu(self.a(x))), inplace=True)
        y = y * F.hardsigmoid(self.gate(F.adaptive_avg_pool2d(y, 1)))
        y += x
        return self.head(F.avg_pool2d(y, 2).mean((2, 3)))


class Encoder(nn.Module):
    """A masked transformer layer; two outputs by name."""
    def __init__(self, d=16, heads=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(50, d), nn.Embedding(32, d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc, self.proj = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.heads = heads

    def forward(self, ids, mask):
        b, t = ids.shape
        x = self.tok(ids) + self.pos(torch.arange(t))
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :].bool())
        x = x + self.out(y.transpose(1, 2).reshape(b, t, -1))
        x = x + self.proj(F.gelu(self.fc(self.n2(x))))
        w = mask.unsqueeze(-1).to(x.dtype)
        return {"hidden": x, "pooled": F.normalize((x * w).sum(1) / w.sum(1).clamp(min=1e-9), dim=1)}


class Causal(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.tok = nn.Embedding(40, d)
        self.q, self.kv = nn.Linear(d, d), nn.Linear(d, 2 * d)
        self.norm = nn.RMSNorm(d)

    def forward(self, ids):
        x = self.norm(self.tok(ids))
        k, v = self.kv(x).chunk(2, -1)
        y = F.scaled_dot_product_attention(self.q(x), k, v, is_causal=True)
        return F.log_softmax((x + F.gelu(y, approximate="tanh"))[:, -1], -1)


class Windows(nn.Module):
    """Swin's shifted windows: a mask written in place through views."""
    def __init__(self, d=8, w=2, shift=1, size=4):
        super().__init__()
        self.w, self.shift, self.size = w, shift, size
        self.table = nn.Parameter(torch.randn(9, 2))
        self.register_buffer("index", torch.randint(0, 9, (w ** 4,)))
        self.qkv = nn.Linear(d, 3 * d)

    def forward(self, x):
        n, s, w, k = x.shape[0], self.size, self.w, self.shift
        y = torch.roll(F.pad(x, (0, 0, 0, 1, 0, 1)), (-k, -k), (1, 2))[:, :s, :s]
        y = y.reshape(n, s // w, w, s // w, w, 8).permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, 8)
        mask = y.new_zeros((s, s))
        count = 0
        for h in ((0, -w), (-w, -k), (-k, None)):
            for v in ((0, -w), (-w, -k), (-k, None)):
                mask[h[0]:h[1], v[0]:v[1]] = count
                count += 1
        mask = mask.view(s // w, w, s // w, w).permute(0, 2, 1, 3).reshape(-1, w * w)
        mask = mask.unsqueeze(1) - mask.unsqueeze(2)
        mask = mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)
        q, key, v = self.qkv(y).reshape(-1, w * w, 3, 2, 4).permute(2, 0, 3, 1, 4)
        bias = self.table[self.index].view(w * w, w * w, -1).permute(2, 0, 1).contiguous().unsqueeze(0)
        a = q @ key.transpose(-2, -1) + bias
        a = a.view(n, -1, 2, w * w, w * w) + mask.unsqueeze(1).unsqueeze(0)
        return (F.softmax(a.view(-1, 2, w * w, w * w), -1) @ v).transpose(1, 2).reshape(n, -1, 8)


class Mutations(nn.Module):
    """Views and copies around changes in place."""
    def forward(self, x):
        y = x * 1.0
        row, column = y[1], y[:, 2]
        flat = y.view(-1)
        turned = y.t()
        copied = y.t().reshape(-1)
        row.mul_(2)
        column += 1
        flat[::3] = -1
        turned[0, 1:].copy_(torch.arange(3, dtype=x.dtype))
        left, right = y.split(2, 1)
        right.clamp_(max=0.5)
        left.masked_fill_(left > 1, 7.0)
        y[:, :2].add_(row[0])
        z = torch.zeros_like(x)
        z[torch.tensor([0, 2]), torch.tensor([1, 3])] = x[0, :2]
        z[1, ::2] = 5
        return y, row, flat, turned, copied, z


class Indexing(nn.Module):
    def forward(self, x, i):
        a = x[i]
        b = x[:, i, :, i]
        c = x[1, :, i[None], None]
        d = torch.gather(x, 1, i.view(1, -1, 1, 1).expand(x.shape[0], -1, 4, 5))
        e = torch.flip(torch.cat([x, x.roll(2, 3)], 2), (1, 3))
        f = F.one_hot(i, 4).float() @ x[0, 0, :4]
        g = x.scatter(1, i.view(1, -1, 1, 1).expand(x.shape[0], -1, 4, 5), 2.5)
        h = torch.tril(x[0, 0]).cumsum(1).repeat(2, 1).repeat_interleave(2, dim=1)
        v, k = x.max(3)
        s = torch.where(x[..., 0] > 0, v, -k.float())
        return a, b, c, d, e, f, g, h, s, x.var((1, 2)), x.topk(2)[0]


class Tagger(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.emb = nn.Embedding(20, 6)
        self.rnn = cell(6, 5, num_layers=2, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(10, 3)

    def forward(self, ids):
        y, state = self.rnn(self.emb(ids))
        return self.fc(y), state[0] if isinstance(state, tuple) else state


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(30, 4, mode="sum")
        self.mlp = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        self.register_buffer("pairs", torch.tensor([1]))

    def forward(self, dense, indices, offsets):
        t = torch.stack([self.mlp(dense), self.bag(indices, offsets)], 1)
        inter = torch.bmm(t, t.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        return torch.sigmoid(torch.cat([t[:, 0], inter], 1)).sum(1)


class Sizes(nn.Module):
    """Other sizes of images; arithmetic on sizes."""
    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(2, 2, 2, stride=2)
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x):
        a = self.up(x)
        b = F.interpolate(x, scale_factor=2, mode="bilinear")
        c = self.norm(torch.cat([a, F.interpolate(b, size=a.shape[2:], mode="nearest")], 1))
        n, ch, h, w = c.shape
        d = c.view(n, ch, h // 2, 2, w // 2, 2).amax((3, 5))
        e = F.glu(F.pixel_unshuffle(c, 2), 1).flatten(2)
        return d, e * (h - 1) / w, F.adaptive_avg_pool2d(c, (3, 2))


class Special(nn.Module):
    """Less common functions, and names that stand for others."""
    def __init__(self):
        super().__init__()
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 4, 3, padding=1), dim=2)

    def forward(self, x):
        p = torch.sigmoid(x)
        a = torch.nan_to_num(x / torch.relu(x), nan=2.0, posinf=7.0)
        b = torch.erfc(x) + torch.logit(p) + torch.logaddexp(x, 2 * x) + torch.hypot(x, p) + torch.frac(3 * x)
        c = torch.cdist(x, p[:, :3]), F.cosine_similarity(x, p, dim=2), torch.linalg.vecdot(x, p)
        d = torch.aminmax(x, dim=1), torch.count_nonzero(x > 0, dim=2), torch.cumprod(p, 1)
        i, j = torch.tril_indices(4, 4, -1)
        f = torch.multiply(x, p).subtract(p).divide(2).ravel(), torch.deg2rad(x), F.logsigmoid(x)
        # Standardised weights, as of BiT and NFNet.
        w = F.batch_norm(self.conv.bias.new_ones(4, 4, 3).cumsum(2).reshape(1, 4, -1) * x[:1, :, :1], None, None,
                         weight=self.conv.bias, training=True).reshape(4, 4, 3)
        return a, b, c, d, x[:, i, j], f, self.conv(x) + F.conv1d(x, w, padding=1), torch.var_mean(x), torch.isneginf(torch.log(torch.relu(x)))


class Composed(nn.Module):
    """Operators that are others put together."""
    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTMCell(3, 4), nn.GRUCell(3, 4)

    def forward(self, x):
        r = x[:, 0]
        a = torch.hstack([x, x]), torch.vstack([r[0], r]), torch.dstack([r, r]), torch.column_stack([r[:, 0], r])
        b = torch.tensor_split(x, 2, 1), torch.tensor_split(x, [1, 3], 1), torch.flipud(x), torch.fliplr(x), torch.diff(x, dim=1)
        c = torch.fft.fftshift(x, (1, 2)), torch.fft.ifftshift(x, (1,)), torch.diag_embed(r)
        d = torch.take_along_dim(x, x.argsort(1), 1), x.index_fill(1, torch.tensor([0, -2]), 5.0)
        f = x.masked_scatter(x > 0, 2 * x), torch.median(x, 1), torch.kthvalue(x, 2, 1, True)
        g = torch.linalg.cross(x, 2 - x * x), F.pairwise_distance(r, 2 * r)
        h, s = self.lstm(r, (r.new_ones(r.shape[0], 4), r.new_ones(r.shape[0], 4)))
        i = torch.round(x, decimals=2), torch.linalg.norm(x, dim=(1, 2)), torch.norm(x, 3.0, 1), torch.nansum(x, 1)
        return a, b, c, d, f, g, h, s, self.gru(r, h), i, torch.broadcast_tensors(x[:, :1], x), torch.clip(x, r[:, None] - 1, r[:, None] + 1)


class Spectral(nn.Module):
    """Fourier transforms and complex numbers on their way."""
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4, 2))
        self.register_buffer("window", torch.hann_window(8))
        self.register_buffer("turn", torch.polar(torch.ones(6, 3), torch.arange(18.).view(6, 3)).t())

    def forward(self, x):
        a = torch.fft.fftn(x, dim=(1, 2)).real
        y = torch.fft.rfft2(x, norm="ortho")
        b = torch.fft.irfft2(y * torch.view_as_complex(self.weight).abs()[:, :4], s=(3, 6), norm="ortho")
        c = torch.view_as_real(torch.fft.fft(x) * torch.polar(x.abs(), x) * self.turn)
        d = torch.fft.ifft(torch.complex(x, 2 * x), norm="forward").abs()
        s = torch.stft(x.flatten(1), 8, 2, window=self.window, return_complex=True).abs()
        return a, b, c, d, s, torch.fft.rfft(x, norm="ortho").imag


class Vision(nn.Module):
    """Sampling, columns and regions of images."""
    def __init__(self):
        super().__init__()
        from torchvision.ops import DeformConv2d
        self.deform = DeformConv2d(2, 3, 3, padding=1)
        self.offset = nn.Conv2d(2, 27, 3, padding=1)

    def forward(self, x, boxes, scores):
        from torchvision.ops import nms, roi_align
        turn = F.affine_grid(x.new_tensor([[0.8, -0.3, 0.1], [0.2, 0.9, 0.0]]).expand(x.shape[0], 2, 3), (x.shape[0], 2, 5, 6))
        a = F.grid_sample(x, turn), F.grid_sample(x, turn, "nearest", "border", True)
        b = F.grid_sample(x, turn, "bicubic", "reflection")
        columns = F.unfold(x, 3, padding=1, stride=2)
        c = F.fold(columns, (6, 8), 3, padding=1, stride=2)
        o = self.offset(x)
        d = self.deform(x, o[:, :18], torch.sigmoid(o[:, 18:]))
        rois = torch.cat([boxes.new_zeros(5, 1), boxes], 1)
        return a, b, c, d, roi_align(x, rois, (2, 2), 0.5, 2, True), nms(boxes, scores, 0.3)


class NoGrad(nn.Module):
    """What a model computes without gradients or autocast."""
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        with torch.no_grad():
            n = x.shape[0] * 2
            angle = torch.arange(x.shape[1]).float() / 10
            with torch.autocast("cpu", enabled=False):
                table = angle.cos(), angle.sin()
        y = self.fc(x)
        y.mul_(table[0])
        return y + table[1] * n


class Branches(nn.Module):
    """What decides by its operands, with weights and sizes of the program in
    its bodies; one branch for positive sums, the other for negative ones."""
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        from torch._higher_order_ops import while_loop
        from torch._higher_order_ops.map import map as each
        from torch._higher_order_ops.scan import scan
        torch.ops.aten._print("once")
        y = torch.cond(x.sum() > 0, lambda x: self.a(x).relu(), lambda x: self.b(x) * x.shape[0], (x,))
        trips, grown = while_loop(lambda n, y: (n < 9) & (y.abs().amax() < 50), lambda n, y: (n + 1, y * 2),
                                  (torch.zeros((), dtype=torch.int64), y))

        def step(h, row):
            h = torch.tanh(self.c(row) + h)
            return h, h * 2
        last, all_steps = scan(step, torch.zeros(x.shape[0], 4), y, dim=1, reverse=True)
        sums = each(lambda rows, bias: rows.cumsum(0) + bias, y, self.c.bias)
        places, _ = torch.where(x[:, 0] > 0.5)
        return trips, grown, last, all_steps, sums, places.sum()


class Projected(nn.Module):
    """An LSTM whose states are projections, from first states of its own."""
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(3, 6, 2, proj_size=2, bidirectional=True, batch_first=True)
        self.plain = nn.LSTM(4, 5, proj_size=3, bias=False, batch_first=True)

    def forward(self, x, h, c):
        y, states = self.rnn(x, (h.transpose(0, 1), c.transpose(0, 1)))
        return y, *states, self.plain(y)[0]


class Rare(nn.Module):
    """What few programs have: functions of the gamma function, blocks, turns, distances, the commonest value."""
    def __init__(self):
        super().__init__()
        self.register_buffer("bytes", torch.randint(-99, 99, (4, 6), dtype=torch.int8))
        self.register_buffer("wide", torch.randint(-99, 99, (32, 32), dtype=torch.int8))

    def forward(self, x):
        unit = torch.tanh(x)
        functions = torch.lgamma(3 * x), torch.digamma(3 * x), torch.erfinv(unit), torch.special.ndtri(unit.abs()), torch.mvlgamma(x.abs() + 2, 3)
        halves = x.half().lgamma_().float(), torch.logaddexp2(8 * x, x.flip(0))
        shapes = torch.block_diag(x, x[0], x[1, 2], x[:2]), torch.cartesian_prod(x[0], x[:, 1], x[2, :2]), torch.atleast_3d(x[0]) + torch.atleast_2d(x[1]), *torch.atleast_1d(x[0, 0], x[1])
        parts = *torch.hsplit(x, 2), *torch.vsplit(x, [1, 4]), *torch.dsplit(x[None], 2), *torch.hsplit(x[0], [3])
        turns = torch.rot90(x), torch.rot90(x, -1), torch.rot90(x[None], 2, [2, 0]), torch.rot90(x, 3, [1, 0]), torch.msort(x)
        y = x[:, :3]
        lengths = [torch.dist(y, x[0, :3], p) for p in (0, 1, 2, 3, float("inf"), float("-inf"))] + [torch.pdist(x, p) for p in (1.0, 2.0)] + [torch.norm_except_dim(x, 2, 1)]
        means = torch.nanmean(x / (x > -0.5), 1, keepdim=True), torch.ger(x[0], x[1])
        sums = torch.trapezoid(x, dim=0), torch.trapezoid(x, x[:, 0], dim=0), torch.trapz(x, 2 * x), torch.trapz(x, dx=0.5)
        rounded = (2 * x).round()
        common = *torch.mode(rounded, 1), *torch.mode(rounded.long(), 0, keepdim=True)
        byte_products = torch._int_mm((40 * x).to(torch.int8), self.bytes).float(), torch._weight_int8pack_mm(x.repeat(1, 8), self.wide, torch.arange(32) / 32)
        certain = torch.bernoulli(x, 1.0) - torch.bernoulli(x, 0.0)
        return functions, halves, shapes, parts, turns, lengths, means, sums, common, byte_products, certain


B = {0: Dim("batch", min=1, max=64)}
T = {0: Dim("batch", min=1, max=64), 1: Dim("seq", min=2, max=32)}


def ids(vocab, t):
    return lambda g, b, n=t: torch.randint(0, vocab, (b, n), generator=g)


def text(g, b, n=6):
    keep = torch.randint(1, n + 1, (b,), generator=g)
    keep[0] = n
    return ids(50, n)(g, b, n), (torch.arange(n)[None] < keep[:, None]).long()


def bags(g, b):
    offsets = torch.sort(torch.randint(0, 3 * b, (b,), generator=g)).values
    offsets[0] = 0
    return torch.randn(b, 3, generator=g), torch.randint(0, 30, (3 * b,), generator=g), offsets


def regions(g, b):
    corner = 5 * torch.rand(5, 2, generator=g)
    return (torch.randn(2, 2, 6, 8, generator=g), torch.cat([corner, corner + 1 + 4 * torch.rand(5, 2, generator=g)], 1),
            torch.rand(5, generator=g))


def normal(*shape):
    return lambda g, b: (torch.randn(b, *shape, generator=g),)


# name → network, inputs of a batch, dynamic axes, other lengths, ONNX too
MODELS = {
    "residual": (Residual, normal(3, 16, 16), ({**B},), [], True),
    "encoder": (Encoder, text, ({**T}, {**T}), [11], True),
    "causal": (Causal, lambda g, b, n=6: (ids(40, n)(g, b, n),), ({**T},), [11], False),
    "windows": (Windows, normal(4, 4, 8), ({**B},), [], True),
    "mutations": (Mutations, lambda g, b: (torch.randn(4, 4, generator=g),), (None,), [], False),
    "indexing": (Indexing, lambda g, b: (torch.randn(4, 4, 4, 5, generator=g), torch.tensor([2, 0, 3])),
                 (None, None), [], False),
    "lstm": (lambda: Tagger(nn.LSTM), lambda g, b: (ids(20, 5)(g, b),), ({**B},), [], True),
    "gru": (lambda: Tagger(nn.GRU), lambda g, b: (ids(20, 5)(g, b),), ({**B},), [], True),
    "bags": (Bags, bags, ({**B}, {0: Dim("n", min=1, max=999)}, {**B}), [], False),
    "special": (Special, normal(4, 4), ({**B},), [], False),
    "composed": (Composed, normal(5, 3), (None,), [], False),
    "spectral": (Spectral, normal(3, 6), ({**B},), [], False),
    "vision": (Vision, regions, (None, None, None), [], False),
    "nograd": (NoGrad, normal(4), ({**B},), [], False),
    "branches": (Branches, lambda g, b: (torch.randn(b, 5, 4, generator=g) - b + 2.5,), ({**B},), [], False),
    "projected": (Projected, lambda g, b: (torch.randn(b, 4, 3, generator=g), torch.randn(b, 4, 2, generator=g), torch.randn(b, 4, 6, generator=g)),
                  ({**B}, {**B}, {**B}), [], False),
    "rare": (Rare, lambda g, b: (torch.randn(5, 4, generator=g),), (None,), [], False),
    "sizes": (Sizes, normal(2, 6, 4), ({**B},), [], True),
}


def forget(tree):
    """Takes from every node, of nested graphs too, where its code stood."""
    if isinstance(tree, dict):
        if "target" in tree and "metadata" in tree:
            tree["metadata"] = {}
        tree = tree.values()
    if not isinstance(tree, str) and hasattr(tree, "__iter__"):
        for branch in list(tree):
            forget(branch)


def slim(saved, path):
    """The archive without what only Python reads."""
    source = zipfile.ZipFile(saved)
    root = source.namelist()[0].split("/")[0]
    with zipfile.ZipFile(path, "w") as out:
        for info in source.infolist():
            name = info.filename[len(root) + 1:]
            data = source.read(info)
            if name.startswith("data/sample_inputs/"):
                continue
            packed = zipfile.ZIP_STORED
            if name.endswith(".json"):
                packed = zipfile.ZIP_DEFLATED
                tree = json.loads(data)
                forget(tree)
                data = json.dumps(tree, separators=(",", ":")).encode()
            entry = zipfile.ZipInfo(path.stem + "/" + name, (1980, 1, 1, 0, 0, 0))
            out.writestr(entry, data, packed)


def flat(y):
    return [t for t in torch.utils._pytree.tree_leaves(y) if isinstance(t, torch.Tensor)]


def make(name, folder):
    build, inputs, dynamic, lengths, onnx = MODELS[name]
    torch.manual_seed(7)
    net = build().eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.normal_(module.running_mean)
    net.requires_grad_(False)
    gen = lambda b: torch.Generator().manual_seed(100 + b)
    sets = [("b2", inputs(gen(2), 2)), ("b3", inputs(gen(3), 3))]
    sets += [(f"l{n}", inputs(gen(2), 2, n)) for n in lengths]
    for tag, args in sets[:1] if dynamic[0] is None else sets:
        np.savez_compressed(folder / f"{name}.{tag}.npz",
                            **{f"in{i}": t.numpy() for i, t in enumerate(args)},
                            **{f"out{i}": t.numpy() for i, t in enumerate(flat(net(*args)))})
    args = sets[0][1]
    program = torch.export.export(net, args, dynamic_shapes=dynamic, strict=False)
    for suffix, ep in (("", program), (".core", program.run_decompositions())):
        buffer = io.BytesIO()
        torch.export.save(ep, buffer)
        slim(buffer, folder / f"{name}{suffix}.pt2")
    if not onnx:
        return
    torch.onnx.export(net, args, folder / f"{name}.onnx", dynamo=True,
                      dynamic_shapes=dynamic, external_data=False, verbose=False)
    import onnx
    model = onnx.load(folder / f"{name}.onnx")
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    del model.graph.value_info[:]
    onnx.save(model, folder / f"{name}.onnx")


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("folder", nargs="?", type=pathlib.Path,
                    default=pathlib.Path(__file__).parent / "graph")
    ap.add_argument("--only", default="")
    a = ap.parse_args()
    a.folder.mkdir(exist_ok=True)
    for name in MODELS:
        if not a.only or name in a.only.split(","):
            make(name, a.folder)
            print(name, flush=True)


if __name__ == "__main__":
    main()
