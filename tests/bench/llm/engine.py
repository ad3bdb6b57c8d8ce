"""Models without sockets: `millrace bench` and llama.cpp's library take turns."""
import json
import os
import re
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
    # Of models other than the first one.
    "b16": ["--prefill", "0", "--decode", "64", "--batch", "16", "--depth", "128"],
}
TITLES = {
    "tg128": "decode, 1 stream", "pp512": "prefill 512", "pp2048": "prefill 2048",
    "tg@8k": "decode behind 8,000 tokens, f16 KV", "pp8000": "prefill of 8,000", "b16": "decode, 16 streams",
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
    cases = [s for s in shapes if s != "b16"]
    batches = "16" if "b16" in shapes else ""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([sys.executable, os.path.join(PEERS, "bench_engine.py"), model,
                        "--lib", lib, "--reps", "1", "--cases", ",".join(cases),
                        "--batches", batches, "--json", out.name], check=True, stdout=subprocess.DEVNULL)
        rows = json.load(open(out.name, encoding="utf-8"))["rows"]
    return {name: row["median"] for name, row in rows.items()}


def goals(has_vnni):
    return {"tg128": 1.6, "pp512": 4 if has_vnni else 1.6, "pp2048": 4 if has_vnni else 1.6,
            "tg@8k": 3, "pp8000": 2.5, "b16": 1.6}


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


def _run_at(args, model, shape, compute):
    return ours(args.millrace, model, shape, [*args.flags, "--compute-dtype", compute])[0]


# Types in which the default model's weights are tried; made by requantize.py.
TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS",
         "MXFP4", "F16", "BF16"]


def fidelity(args, model):
    """Mean KL to f32 arithmetic, ours beside llama.cpp's, a row of each type of weights as it comes."""
    tests = os.path.join(HERE, "..")
    dump = os.path.join(os.path.dirname(args.millrace), "dump_logits")
    golden = os.path.join(HERE, "..", "..", "golden", "llm", "logits.json")

    def compare(path, *flags):
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            subprocess.run([sys.executable, os.path.join(tests, "fidelity.py"), path, "--dump", dump, "--golden",
                            golden, "--threads", str(os.cpu_count()), "--json", out.name, *flags],
                           stdout=subprocess.DEVNULL)
            return json.load(open(out.name, encoding="utf-8"))

    def row(key, title, figures, name="millrace", goal=1.0):
        return Row(f"kl/{key}", title, "nats", [figures[name]["kl_mean"]],
                   {"llama.cpp": [figures["llama.cpp"]["kl_mean"]]}, goal, higher=False)
    found = compare(model)
    yield row("default", "mean KL, default model", found)
    yield row("int16", "mean KL, --compute-dtype int16", found, "millrace, int16", 0.1)
    for kind in TYPES:
        path = os.path.join(args.out, f"{kind}.gguf")
        if not os.path.exists(path):
            subprocess.run([sys.executable, os.path.join(PEERS, "requantize.py"), model, path, kind], check=True)
        yield row(kind, f"mean KL, {kind} weights", compare(path, "--other-weights", "--positions", "512"))


def int16(args, model):
    """What the finer activations cost."""
    for shape in ("tg128", "pp512"):
        plain, fine = [], []
        for _ in range(args.rounds):
            plain.append(_run_at(args, model, shape, "auto"))
            fine.append(_run_at(args, model, shape, "int16"))
        yield Row(f"int16/{shape}", f"{TITLES[shape]}, int16 beside auto", "tokens/s", fine, {"auto": plain}, 0.6)


def attention(args):
    """Flash-Decoding: batch x length constant. Times of attention_bench."""
    program = os.path.join(os.path.dirname(args.millrace), "attention_bench")
    text = subprocess.check_output([program, "auto", str(os.cpu_count())], text=True)
    rows = []
    for part in text.strip().split("\n\n"):
        head, *lines = part.splitlines()
        kv = "int8" if "int8" in head else "f16"
        decode = [line for line in lines if " x " in line[:12]]
        if not decode:
            continue
        shares = [float(re.search(r"(\d+) % of the lower", line)[1]) / 100 for line in decode]
        merges = [float(re.search(r"merge +([\d.]+) %", line)[1]) / 100 for line in decode]
        ratio = [float(line.split()[-1]) for line in lines if line.startswith("max / min")]
        rows.append(Row(f"attention/{kv}/share", f"Flash-Decoding 256 x 256 … 1 x 64k, {kv} KV: least share of "
                        "the lower ceiling", "share", [min(shares)], {}, 0.8, against=""))
        # Linear kernels and prompts pay nothing: their chains need no splits. So this bounds the price.
        rows.append(Row(f"attention/{kv}/price", f"price of batch invariance: merging fixed splits, {kv} KV, greatest "
                        "share of attention", "share", [max(merges)], {}, 0.03, higher=False, against=""))
        rows.append(Row(f"attention/{kv}/flat", f"Flash-Decoding 256 x 256 … 1 x 64k, {kv} KV: max / min time",
                        "ratio", ratio, {}, 1.15, higher=False, against=""))
    return rows
