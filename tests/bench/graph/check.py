#!/usr/bin/env python3
"""Runs every exported model in every form on every set of inputs with
`millrace run` and compares with what PyTorch gave.

    check.py FOLDER --millrace BIN [--models a,b] [--forms .pt2,.onnx]
             [--tags .b1,.l7] [--tol 1e-4] [--jobs N] [--args "--interpret"]

FOLDER is what export_models.py wrote. One line a case; exit status 1 when any
disagrees. Only the standard library is used.
"""
import argparse
import concurrent.futures
import glob
import json
import os
import shlex
import subprocess
import sys

FORMS = [".pt2", ".core.pt2", ".onnx", ".ts.onnx"]


def cases(a):
    models = sorted({os.path.basename(p)[:-len(".expected.npz")].split(".")[0]
                     for p in glob.glob(os.path.join(a.folder, "*.expected.npz"))})
    if a.models:
        models = [m for m in models if m in a.models.split(",")]
    for model in models:
        stem = os.path.join(a.folder, model)
        tags = [p[len(stem):-len(".expected.npz")]
                for p in sorted(glob.glob(stem + ".*expected.npz"))]
        for form in a.forms.split(","):
            if not os.path.exists(stem + form):
                continue
            for tag in tags:
                if not a.tags or (tag or "none") in a.tags.split(","):
                    yield model, form, tag


def run(a, case):
    model, form, tag = case
    stem = os.path.join(a.folder, model)
    command = [a.millrace, "run", stem + form, "--input", stem + tag + ".inputs.npz",
               "--expect", stem + tag + ".expected.npz", "--tol", str(a.tol),
               "--iters", "0"] + shlex.split(a.args)
    try:
        done = subprocess.run(command, capture_output=True, text=True,
                              timeout=a.timeout, check=False)
    except subprocess.TimeoutExpired:
        return case, None, f"slower than {a.timeout} s"
    last = done.stdout.strip().splitlines()[-1:] or ["{}"]
    try:
        row = json.loads(last[0])
    except ValueError:
        row = {}
    why = "" if done.returncode == 0 else done.stderr.strip()[-400:] or "it died"
    return case, row, why


def main():
    ap = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("folder")
    ap.add_argument("--millrace", default="build/release/bin/millrace")
    ap.add_argument("--models", default="")
    ap.add_argument("--forms", default=",".join(FORMS))
    ap.add_argument("--tags", default="", help="'none' is the example's own batch")
    ap.add_argument("--tol", type=float, default=1e-4)
    ap.add_argument("--timeout", type=float, default=300)
    ap.add_argument("--jobs", type=int, default=1)
    ap.add_argument("--args", default="", help="further ones of millrace run")
    a = ap.parse_args()
    bad = total = 0
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for (model, form, tag), row, why in pool.map(lambda c: run(a, c), cases(a)):
            total += 1
            bad += bool(why)
            error = row.get("max_rel_err") if row else None
            shown = "" if error is None else f"{error:.2g}"
            took = "" if not row else f"{row.get('first_ms', 0):.0f} ms"
            print(f"{'FAIL' if why else 'ok  '} {model + form:34s} {tag:6s} "
                  f"{shown:>8s} {took:>9s} {why}", flush=True)
    print(f"{total - bad} agree, {bad} do not")
    sys.exit(1 if bad or not total else 0)


if __name__ == "__main__":
    main()
