#!/usr/bin/env python3
"""Builds many networks, exports each in four forms, runs them with
`millrace run`, compares with PyTorch, and prints a Markdown table and a count.

    sweep.py [a,b,…] --millrace BIN [--family timm] [--forms .pt2,.onnx]
             [--folder DIR] [--keep] [--json FILE] [--timeout 600]

Each network is made in a process of its own; its files are deleted after it.
A form that PyTorch's exporter cannot write, or that ONNX Runtime does not run
to PyTorch's numbers either, is no failure of ours and the table says so.
`noise`: PyTorch in f32 is itself more than 2.5e-5 from PyTorch in f64.
`slow` beside a form: more than five times PyTorch's eager time.
"""
import argparse
import contextlib
import copy
import io
import json
import logging
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
import torch

import models as zoo
import sweep_models
from export_models import flat

FORMS = [".pt2", ".core.pt2", ".onnx", ".ts.onnx"]
TOLERANCE = 1e-4


def why(error):
    text = re.sub(r"\x1b\[[0-9;]*m|\s+", " ", str(error)).strip() or type(error).__name__
    return text[:160]


def shapes(entry):
    dims = {"batch": torch.export.Dim("batch", min=1, max=64), "seq": torch.export.Dim("seq", min=2, max=64)}
    return tuple({axis: dims[name] for axis, name in entry.dynamic.get(k, {}).items()} for k in entry.inputs(2))


def export_program(entry, net, example):
    """Dynamic as asked, else as far as PyTorch finds it to be, else fixed."""
    auto = tuple({a: torch.export.Dim.AUTO for a in entry.dynamic.get(k, {})} for k in example)
    for how, dims in (("dynamic", shapes(entry)), ("auto", auto), ("static", None)):
        try:
            return how, torch.export.export(net, tuple(example.values()), dynamic_shapes=dims, strict=False)
        except Exception as e:
            last = e
    raise last


def write(form, entry, net, program, how, example, path):
    values = tuple(example.values())
    if form == ".pt2":
        return torch.export.save(program, path)
    if form == ".core.pt2":
        return torch.export.save(program.run_decompositions(), path)
    with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        if form == ".onnx":
            torch.onnx.export(program, values, path, dynamo=True, external_data=False, verbose=False)
        else:
            torch.onnx.export(net, values, path, dynamo=False, opset_version=17, input_names=list(example),
                              dynamic_axes={k: dict(v) for k, v in entry.dynamic.items()})


def peer_error(path, inputs, want):
    """How far ONNX Runtime is from PyTorch; a text when it does not run."""
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        got = session.run(None, {i.name: v.numpy() for i, v in zip(session.get_inputs(), inputs.values())})
        return max(float(np.abs(g - w).max() / max(np.abs(w).max(), 1e-30)) for g, w in zip(got, want))
    except Exception as e:
        return why(e)


def own_error(program, inputs, want):
    """How far PyTorch is from itself when it runs what it exported; a text when
    it does not run."""
    try:
        with torch.no_grad():
            got = flat(program.module()(*inputs.values()))
        return max(float(np.abs(g.numpy() - w).max() / max(np.abs(w).max(), 1e-30)) for g, w in zip(got, want))
    except Exception as e:
        return why(e)


def run_ours(a, path, stem):
    began = time.time()
    command = [a.millrace, "run", path, "--input", stem + ".in.npz", "--expect", stem + ".out.npz",
               "--tol", str(TOLERANCE), "--iters", "2"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=a.timeout / 2, check=False)
    except subprocess.TimeoutExpired:
        return {"why": "too slow"}
    try:
        row = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        row = {}
    row["wall_s"] = time.time() - began
    if done.returncode:
        row["why"] = done.stderr.strip()[-300:] or f"it died ({done.returncode})"
    return row


def form_result(a, form, entry, net, program, how, cases, folder):
    path = os.path.join(folder, "model" + form)
    try:
        write(form, entry, net, program, how, cases[""][0], path)
    except Exception as e:
        return {"exporter": why(e)}
    result = {"error": 0.0, "ms": 0.0, "load_s": 0.0, "how": how}
    for tag, (inputs, want, eager_ms) in cases.items():
        if tag and how == "static":
            continue
        row = run_ours(a, path, os.path.join(folder, "case" + tag))
        error = row.get("max_rel_err")
        if tag and how == "auto" and "but the model takes" in row.get("why", ""):
            result["how"] = "auto: sizes fixed by PyTorch"
            continue
        if "why" in row:
            result["why"] = f"{tag or 'b2'}: {row['why']}"
            if error is not None:
                with contextlib.suppress(Exception):
                    result["noise"] = noise(net, inputs, want)
            if result.get("noise", 0) > TOLERANCE / 4:
                result["why"] += f" ({error:.1e}; PyTorch's f32 is {result['noise']:.1e} off its f64)"
            elif tag and "onnx" not in form:
                own = own_error(program, inputs, want)
                if not isinstance(own, float) or own > TOLERANCE:
                    result["exporter"] = f"right for batch 2 alone; PyTorch's own run of the program: {own}"
            elif "onnx" in form:
                peer = peer_error(path, inputs, want)
                if not isinstance(peer, float) or peer > TOLERANCE:
                    result["peer"] = peer
                    if tag and "why" not in result.get("first", {}):
                        result["exporter"] = f"the file is right for batch 2 alone; ONNX Runtime: {peer}"
                    else:
                        result["exporter"] = f"ONNX Runtime: {peer}"
            break
        result["error"] = max(result["error"], error)
        result["load_s"] = max(result["load_s"], row["wall_s"] - (row["first_ms"] + 2 * row["median_ms"]) / 1000)
        result["first_ms"] = row["first_ms"]
        if not tag:
            result["ms"], result["eager_ms"] = row["median_ms"], eager_ms
    if not a.keep:
        os.remove(path)
    return result


def noise(net, inputs, want):
    """How far PyTorch's own f32 is from its f64: of a network that magnifies
    rounding, the fifth digit is nobody's."""
    exact = copy.deepcopy(net).double()
    with torch.no_grad():
        got = flat(exact(*[v.double() if v.is_floating_point() else v for v in inputs.values()]))
    return max(float(np.abs(w - g.numpy()).max() / max(np.abs(w).max(), 1e-30)) for g, w in zip(got, want))


def eager(net, inputs):
    times = []
    with torch.no_grad():
        for _ in range(3):
            began = time.time()
            want = [t.numpy() for t in flat(net(*inputs.values()))]
            times.append(1000 * (time.time() - began))
    return want, min(times)


def one(a, entry, folder, pipe):
    warnings.filterwarnings("ignore")
    logging.disable(logging.ERROR)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)    # exporters print whole graphs
    torch.set_num_threads(2)
    torch.backends.mha.set_fastpath_enabled(False)
    record = {"family": entry.family, "name": entry.name, "forms": {}}
    try:
        torch.manual_seed(sweep_models.SEED)
        net = zoo.randomise(entry.build(), entry.inputs(8)).requires_grad_(False)
        tags = {"": (2, None)} if not entry.dynamic else {
            "": (2, None), ".b1": (1, None), ".b3": (3, None), **{f".l{n}": (2, n) for n in entry.lengths}}
        cases = {}
        for tag, size in tags.items():
            inputs = entry.inputs(*size)
            want, ms = eager(net, inputs)
            cases[tag] = (inputs, want, ms)
            stem = os.path.join(folder, "case" + tag)
            np.savez(stem + ".in.npz", **{f"in{i}_{k}": v.numpy() for i, (k, v) in enumerate(inputs.items())})
            np.savez(stem + ".out.npz", **{f"out{i}": v for i, v in enumerate(want)})
    except Exception as e:
        record["broken"] = why(e)
        return pipe.send(record)
    program, how = None, "static"
    try:
        how, program = export_program(entry, net, cases[""][0])
    except Exception as e:
        record["export"] = why(e)
    for form in a.forms.split(","):
        if program is None and form != ".ts.onnx":
            record["forms"][form] = {"exporter": record["export"]}
            continue
        kind = how if form != ".ts.onnx" else "dynamic"
        record["forms"][form] = form_result(a, form, entry, net, program, kind, cases, folder)
    pipe.send(record)


def cell(result):
    if result is None:
        return ""
    if "exporter" in result:
        return "not exported"
    if "why" in result:
        return "noise" if result.get("noise", 0) > TOLERANCE / 4 else "**no**"
    text = f"{result['error']:.1e}"
    if result["how"] != "dynamic":
        text += " " + result["how"]
    if result["ms"] > 5 * result["eager_ms"]:
        text += f" slow {result['ms'] / result['eager_ms']:.1f}"
    return text


def warm():
    """Loads once, for all processes, what each of them would."""
    import onnxruntime, timm, torchvision, transformers.modeling_utils  # noqa
    class Next(torch.nn.Module):
        def forward(self, x):
            return x + 1
    example = (torch.zeros(2),)
    program = torch.export.export(Next(), example)
    program.run_decompositions()
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(program, example, io.BytesIO(), dynamo=True, verbose=False)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="?", default="")
    ap.add_argument("--millrace", default="build/release/bin/millrace")
    ap.add_argument("--family", default="")
    ap.add_argument("--forms", default=",".join(FORMS))
    ap.add_argument("--folder", default="")
    ap.add_argument("--keep", action="store_true", help="leaves the files in --folder/NAME")
    ap.add_argument("--json", default="", help="a line for each network, as they come")
    ap.add_argument("--timeout", type=float, default=600)
    a = ap.parse_args()
    wanted = a.names.split(",") if a.names else []
    rows = [e for e in sweep_models.entries()
            if (not wanted or e.name in wanted) and (not a.family or e.family in a.family.split(","))]
    rows.sort(key=lambda e: wanted.index(e.name) if wanted else 0)
    warm()
    root = a.folder or tempfile.mkdtemp(prefix="sweep-")
    counts = {"agree": 0, "do not": 0, "noise": 0, "not exported": 0}
    head = [f for f in a.forms.split(",")]
    print("| network | " + " | ".join(head) + " | why |\n|---|" + "---|" * (len(head) + 1), flush=True)
    for entry in rows:
        folder = os.path.join(root, entry.name)
        os.makedirs(folder, exist_ok=True)
        mine, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=one, args=(a, entry, folder, theirs))
        child.start()
        theirs.close()
        try:
            record = mine.recv() if mine.poll(a.timeout) else {"broken": "took too long"}
        except EOFError:
            record = {"broken": "PyTorch died"}
        child.kill()
        child.join()
        record = {"family": entry.family, "name": entry.name, "forms": {}, **record}
        if not a.keep:
            shutil.rmtree(folder)
        whys = [record["broken"]] if "broken" in record else []
        for form, result in record["forms"].items():
            shown = cell(result)
            counts["do not" if shown == "**no**" else shown if shown in counts else "agree"] += 1
            reason = result.get("exporter") or result.get("why")
            if reason:
                whys.append(f"{form}: {reason}")
        print(f"| {entry.family} {entry.name} | " + " | ".join(cell(record["forms"].get(f)) for f in head) +
              " | " + "; ".join(whys).replace("|", "/") + " |", flush=True)
        if a.json:
            with open(a.json, "a") as out:
                out.write(json.dumps(record) + "\n")
    print("\n" + ", ".join(f"{n} {what}" for what, n in counts.items()) + f" ({len(rows)} networks)")
    sys.exit(1 if counts["do not"] else 0)


if __name__ == "__main__":
    main()
