#!/usr/bin/env python3
"""How near the numbers are. Run by fidelity.sh, which prepares everything.

1. Our engine with F32 weights, activations and KV against transformers, over
   the whole golden set: 26 prompts x 32 steps x 20 logits, each log-sum-exp,
   and the log-probability of 2048 tokens. Tolerance 1e-3 a logit.
2. That engine's full logits are then the reference for our production path and
   for llama.cpp on the same tokens, all teacher-forced: mean KL divergence, RMS
   error of the logits (each row's mean error taken out, which no probability
   sees), and how often the top token differs where the reference is sure of
   its own by more than 1.

Exit code 1 when the golden set is missed, or ours is worse than llama.cpp.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "peers"))

ap = argparse.ArgumentParser()
ap.add_argument("model")
ap.add_argument("--dump", required=True, help="the dump_logits program")
ap.add_argument("--golden", required=True, help="logits.json")
ap.add_argument("--threads", type=int, default=2)
ap.add_argument("--no-llamacpp", action="store_true")
ap.add_argument("--json", help="write the figures here too")
ap.add_argument("--other-weights", action="store_true",
                help="the golden set gives the tokens only: the file holds other weights than it was made with")
ap.add_argument("--positions", type=int, default=1 << 20, help="of the running text at most")
args = ap.parse_args()

with open(args.golden, encoding="utf-8") as f:
    golden = json.load(f)
prompts = golden["prompts"]
sequences = [dict(ids=p["ids"] + p["greedy"][:-1], first=len(p["ids"]) - 1)
             for p in prompts]
sequences.append(dict(ids=golden["ppl"]["ids"][:-1][:args.positions], first=0))
counts = [len(s["ids"]) - s["first"] for s in sequences]
rows = sum(counts)

tmp = tempfile.TemporaryDirectory(prefix="millrace-fidelity-")
sequences_file = os.path.join(tmp.name, "sequences.json")
with open(sequences_file, "w", encoding="utf-8") as f:
    json.dump(sequences, f)


def ours(name, compute, kv):
    path = os.path.join(tmp.name, name)
    subprocess.run([args.dump, args.model, sequences_file, path, compute, kv,
                    str(args.threads)], check=True)
    vocab = os.path.getsize(path) // 4 // rows
    return np.memmap(path, np.float32, "r", shape=(rows, vocab))


def llamacpp(vocab):
    """Yields the rows of every sequence in turn."""
    from llamacpp_capi import Engine
    engine = Engine(args.model, n_ctx=4096, threads=args.threads)
    for s in sequences:
        engine.clear()
        for at in range(0, len(s["ids"]), 512):
            part = s["ids"][at:at + 512]
            engine.decode([(t, at + i, 0, at + i >= s["first"])
                           for i, t in enumerate(part)])
            for i in range(len(part)):
                if at + i >= s["first"]:
                    yield engine.logits(i)[:vocab]
    engine.close()


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


def compare(reference, other):
    kl, squares, flips, sure = [], [], 0, 0
    for a, b in zip(reference, other, strict=True):
        p, q = log_softmax(a), log_softmax(b)
        kl.append(float((np.exp(p) * (p - q)).sum()))
        d = np.asarray(b, np.float64) - a
        squares.append(float(((d - d.mean()) ** 2).mean()))
        top2 = np.partition(a, -2)[-2:]
        if top2[1] - top2[0] > 1:
            sure += 1
            flips += int(np.argmax(a) != np.argmax(b))
    return dict(rows=len(kl), kl_mean=float(np.mean(kl)), kl_max=max(kl),
                rms=float(np.sqrt(np.mean(squares))), sure=sure, flips=flips)


print(f"model {os.path.basename(args.model)}, {len(prompts)} prompts and "
      f"{counts[-1]} positions of running text, {rows} rows of logits")
reference = ours("f32", "f32", "f32")
if args.other_weights or args.positions < len(golden["ppl"]["ids"]):
    prompts, golden["ppl"] = [], dict(ids=[], logprob_sum=0)
worst_logit = worst_lse = 0.0
at = 0
for p, n in zip(prompts, counts):
    for step, row in zip(p["steps"], reference[at:at + n], strict=True):
        top = np.array([t[0] for t in step["top"]])
        stored = np.array([t[1] for t in step["top"]])
        worst_logit = max(worst_logit, float(np.abs(row[top] - stored).max()))
        r = row.astype(np.float64)
        lse = r.max() + np.log(np.exp(r - r.max()).sum())
        worst_lse = max(worst_lse, abs(float(lse) - step["lse"]))
    at += n
following = np.array(golden["ppl"]["ids"][1:], int)
logprob = sum(log_softmax(row)[t] for row, t in zip(reference[at:], following))
if prompts:
    print(f"f32 engine against transformers: greatest difference of a logit "
          f"{worst_logit:.1e}, of a log-sum-exp {worst_lse:.1e} (tolerance 1e-3); "
          f"log-probability of the running text {logprob:.4f} "
          f"(theirs {golden['ppl']['logprob_sum']:.4f})")
figures = dict(worst_logit=worst_logit, worst_lse=worst_lse)
good = worst_logit <= 1e-3 and worst_lse <= 1e-3

table = {
    "millrace": compare(reference, ours("auto", "auto", "f16")),
    "millrace, int16": compare(reference, ours("int16", "int16", "f16")),
}
if not args.no_llamacpp:
    table["llama.cpp"] = compare(reference, llamacpp(reference.shape[1]))
print(f"\n{'against the f32 engine':24s} {'mean KL':>10s} {'max KL':>10s} "
      f"{'RMS error':>10s} {'flips at margin > 1':>22s}")
for name, f in table.items():
    print(f"{name:24s} {f['kl_mean']:10.2e} {f['kl_max']:10.2e} "
          f"{f['rms']:10.4f} {f['flips']:9d} of {f['sure']}")
if not args.no_llamacpp:
    a, fine, b = table.values()
    good = good and all(a[k] <= b[k] for k in ("kl_mean", "rms", "flips"))
    good = good and fine["kl_mean"] <= 0.1 * b["kl_mean"]
print("\nas near as it should be" if good else "\nNOT as near as it should be")
if args.json:
    with open(args.json, "w", encoding="utf-8") as f:
        json.dump(dict(figures, **table), f, indent=1)
sys.exit(0 if good else 1)
