"""Models without sockets: `millrace bench` and llama.cpp's library take turns."""
import json
import os
import subprocess
import sys
import tempfile

from report import Row

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = os.path.join(HERE, "..", "peers")

# name -> arguments of `millrace bench` (one shape each), share of llama.cpp's.
SHAPES = {
    "tg128": ["--prefill", "0", "--decode", "128", "--batch", "1", "--depth", "0"],
    "pp512": ["--prefill", "512", "--decode", "0", "--batch", "1", "--depth", "0"],
    "pp2048": ["--prefill", "2048", "--decode", "0", "--batch", "1", "--depth", "0"],
    "tg@8k": ["--prefill", "0", "--decode", "32", "--batch", "1", "--depth", "8000"],
    "pp8000": ["--prefill", "8000", "--decode", "0", "--batch", "1", "--depth", "0"],
}
TITLES = {
    "tg128": "decode, 1 stream", "pp512": "prefill 512", "pp2048": "prefill 2048",
    "tg@8k": "decode behind 8,000 tokens, f16 KV", "pp8000": "prefill of 8,000",
}


def ours(millrace, model, shape, flags):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([millrace, "bench", model, *SHAPES[shape], "--reps", "1",
                        "--json", out.name, *flags], check=True, stdout=subprocess.DEVNULL)
        report = json.load(open(out.name, encoding="utf-8"))
    case = report["results"][0]
    return case["tokens_per_s"], case["weight_bytes_per_s"] / report["peak_read_bytes_per_s"]


def llamacpp(model, shapes, lib):
    """One round of all shapes; the library is loaded once for them."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([sys.executable, os.path.join(PEERS, "bench_engine.py"), model,
                        "--lib", lib, "--reps", "1", "--cases", ",".join(shapes),
                        "--json", out.name], check=True, stdout=subprocess.DEVNULL)
        rows = json.load(open(out.name, encoding="utf-8"))["rows"]
    return {name: row["median"] for name, row in rows.items()}


def goals(has_vnni):
    return {"tg128": 1.6, "pp512": 4 if has_vnni else 1.6, "pp2048": 4 if has_vnni else 1.6,
            "tg@8k": 3, "pp8000": 2.5}


def section(args, model, shapes, has_vnni, zen3):
    """Rows of one model file."""
    file = os.path.splitext(os.path.basename(model))[0]
    mine = {s: [] for s in shapes}
    share = []
    theirs = {lib: {s: [] for s in shapes} for lib in args.libs}
    for turn in range(args.rounds):
        def run_ours():
            for s in shapes:
                value, read = ours(args.millrace, model, s, args.flags)
                mine[s].append(value)
                if s == "tg128":
                    share.append(read)

        def run_theirs():
            for lib in args.libs:
                for s, value in llamacpp(model, shapes, lib).items():
                    theirs[lib][s].append(value)
        for run in (run_ours, run_theirs) if turn % 2 == 0 else (run_theirs, run_ours):
            run()
    rows = []
    for s in shapes:
        rows.append(Row(f"{file}/{s}", f"{TITLES[s]}, {file}", "tokens/s", mine[s],
                        {f"llama.cpp ({lib})": theirs[lib][s] for lib in args.libs},
                        goals(has_vnni)[s]))
    if share:
        rows.append(Row(f"{file}/bandwidth", f"weights read, of read bandwidth, {file}", "share",
                        share, {}, 0.8 if zen3 else 0.65, against=""))
    return rows
