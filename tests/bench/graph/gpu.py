#!/usr/bin/env python3
"""Times ResNet-50 and BERT-base on a GPU: millrace beside PyTorch, in one run.

  gpu.py --millrace build/release/bin/millrace [--models resnet50,bert] [--batches 1,8,32]
         [--precisions f16,tf32] [--form pt2|onnx] [--seconds 90] [--dir DIR] [--json FILE]

Needs torch, torchvision and transformers, no network: weights are random. Models are
written through torch.export, or as ONNX, and kept in --dir, inputs as .npz.

`millrace run MODEL --device cuda:0` gives the median of many runs inside one process, no
HTTP. A run copies its inputs to the GPU and its outputs back, so PyTorch is timed twice:
`all` with the same copies (pinned memory), `gpu` with its input on the GPU already.
PyTorch runs eagerly (`eager`) and from a CUDA graph (`graph`), channels last, without
torch.compile; tf32 allows TF32 in products and convolutions. Milliseconds, the median of
calls; the last line is JSON. After --seconds nothing new is begun.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

import numpy as np
import torch

BERT_TOKENS = 128


def build(name):
    torch.manual_seed(1)
    if name == "resnet50":
        import torchvision
        return torchvision.models.resnet50(weights=None).eval()
    import transformers
    config = transformers.BertConfig(attn_implementation="sdpa")
    model = transformers.BertModel(config).eval()

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = model

        def forward(self, ids):
            return self.bert(input_ids=ids).last_hidden_state
    return Encoder().eval()


def example(name, batch):
    generator = torch.Generator().manual_seed(batch)
    if name == "resnet50":
        return torch.randn(batch, 3, 224, 224, generator=generator)
    return torch.randint(0, 30000, (batch, BERT_TOKENS), generator=generator)


def export(name, model, path):
    if os.path.exists(path):
        return
    batch = torch.export.Dim("batch", min=1, max=256)
    if path.endswith(".onnx"):
        torch.onnx.export(model, (example(name, 2),), path, dynamo=True,
                          dynamic_shapes=({0: batch},), external_data=False)
    else:
        torch.export.save(torch.export.export(
            model, (example(name, 2),), dynamic_shapes=({0: batch},)), path)


# ---- PyTorch ----
def median_ms(call, least=20, most_s=1.0):
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    times, begun = [], time.perf_counter()
    while len(times) < least or (time.perf_counter() - begun < most_s
                                 and len(times) < 300):
        before = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - before) * 1e3)
    return statistics.median(times)


def torch_ms(name, model, x, precision, most_s):
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}.get(precision,
                                                               torch.float32)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    with torch.inference_mode():
        net = model.to("cuda", dtype)
        pinned = x.to(dtype) if x.is_floating_point() else x
        if name == "resnet50":
            net = net.to(memory_format=torch.channels_last)
            pinned = pinned.contiguous(memory_format=torch.channels_last)
        pinned = pinned.pin_memory()
        on_gpu = pinned.to("cuda")
        result = net(on_gpu)
        host = torch.empty_like(result, device="cpu").pin_memory()
        told = {"eager_gpu": median_ms(lambda: net(on_gpu), most_s=most_s)}
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                net(on_gpu)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = net(on_gpu)
        told["graph_gpu"] = median_ms(graph.replay, most_s=most_s)

        def whole():
            on_gpu.copy_(pinned, non_blocking=True)
            graph.replay()
            host.copy_(out, non_blocking=True)
        told["graph_all"] = median_ms(whole, most_s=most_s)
        return told, host.float().numpy().copy()


# ---- millrace ----
def millrace_ms(args, path, inputs, precision, iters):
    got = inputs.replace(".npz", f".{precision}.out.npz")
    done = subprocess.run(
        [args.millrace, "run", path, "--device", "cuda:0", "--precision",
         precision, "--input", inputs, "--iters", str(iters), "--output", got],
        capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        return None, (done.stderr or done.stdout)[-500:]
    told = json.loads(done.stdout.strip().splitlines()[-1])
    with np.load(got) as arrays:
        return told["median_ms"], arrays[arrays.files[0]].astype(np.float32)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--millrace", required=True)
    ap.add_argument("--models", default="resnet50,bert")
    ap.add_argument("--batches", default="1,8,32")
    ap.add_argument("--precisions", default="f16,tf32")
    ap.add_argument("--form", default="pt2", choices=["pt2", "onnx"])
    ap.add_argument("--seconds", type=float, default=90)
    ap.add_argument("--dir")
    ap.add_argument("--json")
    args = ap.parse_args()
    begun = time.monotonic()
    folder = args.dir or tempfile.mkdtemp(prefix="gpu_bench_")
    os.makedirs(folder, exist_ok=True)
    on_gpu = torch.cuda.is_available()
    print(f"torch {torch.__version__}, "
          f"{torch.cuda.get_device_name(0) if on_gpu else 'no GPU'}", flush=True)
    rows = []
    names = args.models.split(",")
    models = {}
    for name in names:
        models[name] = build(name)
        export(name, models[name], os.path.join(folder, f"{name}.{args.form}"))
        print(f"{name}.{args.form} after {time.monotonic() - begun:.1f} s", flush=True)
    # The whole of one precision first: what is cut off is what matters less.
    for precision in args.precisions.split(","):
        for batch in [int(each) for each in args.batches.split(",")]:
            for name in names:
                if time.monotonic() - begun > args.seconds - 5:
                    print("out of time")
                    break
                path = os.path.join(folder, f"{name}.{args.form}")
                x = example(name, batch)
                inputs = os.path.join(folder, f"{name}.{batch}.npz")
                np.savez(inputs, in0=x.numpy())
                row = {"model": name, "precision": precision, "batch": batch}
                ms, got = millrace_ms(args, path, inputs, precision,
                                      100 if batch < 32 else 40)
                row["millrace_all"] = ms
                if ms is None:
                    row["why"] = got
                if on_gpu and precision != "f32":
                    told, want = torch_ms(name, models[name], x, precision, 0.5)
                    row.update(told)
                    if ms is not None:
                        row["difference"] = float(np.abs(got - want).max()
                                                  / np.abs(want).max())
                    models[name] = models[name].float()
                rows.append(row)
                print("  ".join(
                    f"{key} {value:.3g}" if isinstance(value, float)
                    else f"{key} {value}" for key, value in row.items()),
                    flush=True)
    print(f"{time.monotonic() - begun:.1f} s")
    text = json.dumps(rows)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            file.write(text)
    print(text)


if __name__ == "__main__":
    main()
