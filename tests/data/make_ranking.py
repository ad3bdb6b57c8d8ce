#!/usr/bin/env python3
"""Writes tests/data/ranking: one tiny ranking model of the DLRM class (Naumov et
al. 2019: bottom MLP, embedding bags, dot interaction, top MLP) as PyTorch exports
that store its tables and cut its bags in different ways, and for each some
ragged requests with what PyTorch gives for them. Run with the Python of
tests/bench/graph.sh.

    tests/data/make_ranking.py [FOLDER]

    dlrm.pt2   offsets without an end; sum with weights, mean with padding, max
    end.pt2    offsets with an end (include_last_offset)
    half.pt2   tables in FP16
    byte.pt2   tables in bytes (torch.ops.quantized.embedding_bag_byte_prepack)
    fixed.pt2  bags of three values each, without offsets
    modes*.pt2 one feature in every mode, with padding and weights: tables of FP32
               and FP64; FP16; BF16; with INT32 and an end; without offsets
"""
import argparse
import io
import itertools
import pathlib

import numpy as np
import torch
from make_graph import slim
from torch import nn
from torch.export import Dim

ROWS = (20, 30, 40)
SIZE = 8
DENSE = 4
NAMES = ("ads", "tags", "words")


def mlp(*sizes):
    layers = []
    for n, m in zip(sizes, sizes[1:]):
        layers += [nn.Linear(n, m), nn.ReLU()]
    return nn.Sequential(*layers)


class Dlrm(nn.Module):
    def __init__(self, end=False, half=False, byte=False):
        super().__init__()
        self.end = end
        self.bottom = mlp(DENSE, 16, SIZE)
        modes = ("sum", "sum", "sum") if byte else ("sum", "mean", "max")
        paddings = (None, None if byte else 1, None)
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(rows, SIZE, mode=mode, padding_idx=padding,
                            include_last_offset=end)
            for rows, mode, padding in zip(ROWS, modes, paddings))
        self.top = nn.Sequential(mlp(SIZE + 6, 16), nn.Linear(16, 1))
        i, j = torch.tril_indices(4, 4, -1)
        self.register_buffer("i", i)
        self.register_buffer("j", j)
        if half:
            self.bags.half()
        self.byte = byte
        if byte:
            for n, bag in enumerate(self.bags):
                packed = torch.ops.quantized.embedding_bag_byte_prepack(
                    bag.weight.detach())
                self.register_buffer(f"table{n}", packed)
            self.bags = None

    def bag(self, n, values, offsets, weights=None):
        if not self.byte:
            if weights is not None:
                weights = weights.to(self.bags[n].weight.dtype)
            return self.bags[n](values, offsets, weights).float()
        return torch.ops.quantized.embedding_bag_byte_rowwise_offsets(
            getattr(self, f"table{n}"), values, offsets, False, 0, False,
            weights, None, self.end)

    def forward(self, dense, ads, ads_offsets, tags, tags_offsets, words,
                words_offsets, ads_weights):
        x = self.bottom(dense)
        pooled = [x, self.bag(0, ads, ads_offsets, ads_weights),
                  self.bag(1, tags, tags_offsets),
                  self.bag(2, words, words_offsets)]
        t = torch.stack(pooled, 1)
        z = torch.bmm(t, t.transpose(1, 2))[:, self.i, self.j]
        return torch.sigmoid(self.top(torch.cat([x, z], 1)))


class Fixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(ROWS[0], SIZE, mode="sum")
        self.top = nn.Linear(SIZE, 1)

    def forward(self, ads):
        return torch.sigmoid(self.top(self.bag(ads)))


def request(random, lengths, end):
    """Inputs in order; lengths: of each feature, of each row."""
    rows = len(lengths[0])
    inputs = [random.standard_normal((rows, DENSE), dtype=np.float32)]
    weights = None
    for n, each in enumerate(lengths):
        offsets = np.concatenate([[0], np.cumsum(each)])
        inputs.append(random.integers(0, ROWS[n], offsets[-1]))
        inputs.append(offsets[:None if end else -1].astype(np.int64))
        if weights is None:
            weights = random.random(offsets[-1], dtype=np.float32)
    return inputs + [weights]


# Of each request, of each feature, of each row: empty bags at every place.
REQUESTS = (
    ((2, 0, 3), (1, 4, 0), (0, 2, 5)),
    ((1,), (0,), (7,)),
    ((0, 0), (3, 1), (0, 6)),
    ((0, 5, 1, 2), (2, 2, 2, 2), (1, 0, 0, 9)),
)


def save(model, arguments, shapes, path):
    program = torch.export.export(model.eval(), arguments,
                                  dynamic_shapes=shapes)
    saved = io.BytesIO()
    torch.export.save(program, saved)
    slim(saved, path)


def make(name, folder, **options):
    torch.manual_seed(4)
    random = np.random.default_rng(4)
    model = Dlrm(**options)
    end = options.get("end", False)
    batch = Dim("batch", min=1, max=4096)
    values = [Dim(f"n{i}") for i in range(3)]
    offsets = batch + 1 if end else batch
    shapes = [{0: batch}]
    for n in values:
        shapes += [{0: n}, {0: offsets}]
    shapes.append({0: values[0]})
    arrays = {}
    requests = [request(random, lengths, end) for lengths in REQUESTS]
    save(model, tuple(map(torch.from_numpy, requests[0])), tuple(shapes),
         folder / f"{name}.pt2")
    for k, inputs in enumerate(requests):
        with torch.no_grad():
            got = model(*map(torch.from_numpy, inputs))
        for i, value in enumerate(inputs):
            arrays[f"r{k}_in{i}"] = value
        arrays[f"r{k}_out0"] = got.numpy()
    np.savez(folder / f"{name}.npz", **arrays)


def make_fixed(folder):
    torch.manual_seed(4)
    ads = torch.from_numpy(
        np.random.default_rng(4).integers(0, ROWS[0], (5, 3)))
    model = Fixed()
    save(model, (ads,), ({0: Dim("batch", max=4096)},), folder / "fixed.pt2")
    with torch.no_grad():
        np.savez(folder / "fixed.npz", r0_in0=ads.numpy(),
                 r0_out0=model(ads).numpy())


class Modes(nn.Module):
    """[bags, tables, SIZE]: one table in each mode, with each padding."""

    def __init__(self, types, end):
        super().__init__()
        self.end = end
        self.cases = [(mode, padding, weighted) for mode, padding, weighted in
                      itertools.product(("sum", "mean", "max"),
                                        (None, 3, ROWS[0] - 1), (False, True))
                      if mode == "sum" or not weighted]
        self.tables = nn.ParameterList(
            nn.Parameter(torch.randn(ROWS[0], SIZE).to(dtype))
            for dtype in types)

    def forward(self, ads, offsets, weights):
        return torch.stack([nn.functional.embedding_bag(
            ads, table, offsets, mode=mode, padding_idx=padding,
            per_sample_weights=weights.to(table.dtype) if weighted else None,
            include_last_offset=self.end).float()
            for table in self.tables
            for mode, padding, weighted in self.cases], 1)


class FixedModes(Modes):
    def forward(self, ads, weights):
        return super().forward(ads, None, weights)


def make_modes(name, folder, types, end=False, index=np.int64, fixed=False):
    torch.manual_seed(5)
    random = np.random.default_rng(5)
    model = (FixedModes if fixed else Modes)(types, end)
    batch, count = Dim("batch", min=1, max=4096), Dim("n")
    # Bags without values, of padding alone, and with some of it.
    requests = []
    for lengths in ((2, 0, 3), (7,), (0, 0), (1, 4, 0, 9)):
        if fixed:
            lengths = (3,) * len(lengths)
        ends = np.cumsum(lengths)
        ads = random.choice([0, 1, 3, 3, 7, ROWS[0] - 1], ends[-1]).astype(index)
        ads[:2] = 3
        weights = random.standard_normal(ends[-1], np.float32)
        offsets = np.concatenate([[0], ends])[:None if end else -1].astype(index)
        requests.append([ads.reshape(-1, 3), weights.reshape(-1, 3)] if fixed
                        else [ads, offsets, weights])
    rows = {0: batch + 1 if end else batch}
    save(model, tuple(map(torch.from_numpy, requests[0])),
         ({0: batch}, {0: batch}) if fixed else ({0: count}, rows, {0: count}),
         folder / f"{name}.pt2")
    arrays = {}
    for k, inputs in enumerate(requests):
        for i, value in enumerate(inputs):
            arrays[f"r{k}_in{i}"] = value
        with torch.no_grad():
            arrays[f"r{k}_out0"] = model(*map(torch.from_numpy, inputs)).numpy()
    np.savez(folder / f"{name}.npz", **arrays)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).parent / "ranking")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    make("dlrm", folder)
    make("end", folder, end=True)
    make("half", folder, half=True)
    make("byte", folder, byte=True)
    make_fixed(folder)
    make_modes("modes", folder, [torch.float32, torch.float64])
    make_modes("modes_half", folder, [torch.float16])
    make_modes("modes_bf16", folder, [torch.bfloat16])
    make_modes("modes_end", folder, [torch.float32], end=True, index=np.int32)
    make_modes("modes_fixed", folder, [torch.float32], fixed=True)


if __name__ == "__main__":
    main()
