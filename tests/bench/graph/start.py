#!/usr/bin/env python3
"""Time from nothing to the first result, and memory at its highest.

  start.py DIR --millrace BIN [--models all|a,b] [--forms pt2,onnx]
           [--rounds 5] [--threads 2]

Ours is the whole process, from exec to exit: import, planning, packing and one
run at batch 1. Of the peers, whose process is Python, only the library counts:
time from the call that loads the model to the first result, and resident
memory above what the process had before that call. Rounds are interleaved;
shown are medians.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

PEERS = ("onnxruntime", "openvino")


def inputs_of(folder, model):
    import numpy as np
    arrays = np.load(os.path.join(folder, f"{model}.b1.inputs.npz"))
    ordered = sorted(arrays.items(), key=lambda t: int(t[0][2:].split("_", 1)[0]))
    return [array for _, array in ordered]


def resident_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def peer(kind, folder, model, threads):
    """Runs in a process of its own; prints seconds and MiB."""
    inputs = inputs_of(folder, model)
    path = os.path.join(folder, model + ".onnx")
    if kind == "onnxruntime":
        import onnxruntime as ort
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        before, begun = resident_mib(), time.perf_counter()
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        session.run(None, dict(zip([i.name for i in session.get_inputs()], inputs)))
    else:
        import openvino
        core = openvino.Core()
        before, begun = resident_mib(), time.perf_counter()
        compiled = core.compile_model(path, "CPU", {
            "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"})
        compiled(inputs)
    seconds = time.perf_counter() - begun
    print(json.dumps([seconds, resident_mib() - before]))


def measure_peer(kind, args, model):
    command = [sys.executable, os.path.abspath(__file__), "--peer", kind,
               args.dir, model, str(args.threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure_ours(form, args, model):
    stem = os.path.join(args.dir, model)
    command = [args.millrace, "run", f"{stem}.{form}", "--input",
               f"{stem}.b1.inputs.npz", "--iters", "0", "--threads", str(args.threads)]
    begun = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        return None
    return [time.perf_counter() - begun, usage.ru_maxrss / 1024]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir")
    parser.add_argument("--millrace", required=True)
    parser.add_argument("--models", default="all")
    parser.add_argument("--forms", default="pt2,onnx")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    with open(os.path.join(args.dir, "manifest.json"), encoding="utf-8") as file:
        known = [row["name"] for row in json.load(file)["models"]]
    models = known if args.models == "all" else args.models.split(",")
    ways = [(f"millrace .{form}", measure_ours, form) for form in args.forms.split(",")]
    ways += [(kind, measure_peer, kind) for kind in PEERS]
    print("first result in seconds / peak memory in MiB\n")
    print("| model | " + " | ".join(way[0] for way in ways) + " |")
    print("|---" * (len(ways) + 1) + "|", flush=True)
    for model in models:
        rounds = [[] for _ in ways]
        for _ in range(args.rounds):
            for list_, (_, measure, what) in zip(rounds, ways):
                list_.append(measure(what, args, model))
        cells = []
        for list_ in rounds:
            taken = [value for value in list_ if value is not None]
            if not taken:
                cells.append("-")
                continue
            seconds = statistics.median(value[0] for value in taken)
            mib = statistics.median(value[1] for value in taken)
            cells.append(f"{seconds:.2f} / {mib:.0f}")
        print(f"| {model} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--peer":
        peer(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        main()
