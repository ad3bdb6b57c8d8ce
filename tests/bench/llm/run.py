#!/usr/bin/env python3
"""Everything about language models in one table, peers beside us. See llm.sh.

Rows of sections that are run replace their older selves in OUT/llm.json, so that
a long table can be made in parts: --only engine, --only http, ...
"""
import argparse
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import engine  # noqa: E402
import report  # noqa: E402
import startup  # noqa: E402

SECTIONS = ["engine", "http", "long", "open", "shared", "startup", "attention", "fidelity",
            "int16"]

ap = argparse.ArgumentParser(description=__doc__)
ap.add_argument("models", nargs="+", help="GGUF files; the first one is served and measured in all sections")
ap.add_argument("--millrace", required=True)
ap.add_argument("--peers-venv", required=True)
ap.add_argument("--out", default="build/bench")
ap.add_argument("--only", default=",".join(SECTIONS))
ap.add_argument("--rounds", type=int, default=5)
ap.add_argument("--libs", default="xllamacpp", help="also native, where setup.sh --native made it")
ap.add_argument("--vllm", action="store_true", help="vLLM takes part (setup.sh --vllm)")
ap.add_argument("--flags", default="", help="more flags for millrace")
ap.add_argument("--families", action="store_true", help="engine: one and 16 streams of every model, the first one too")
ap.add_argument("--mix-requests", type=int, default=64, help="to find the saturated rate")
ap.add_argument("--mix-seconds", type=float, default=60, help="of each open-loop round")
args = ap.parse_args()
args.libs, args.flags = args.libs.split(","), args.flags.split()
only = args.only.split(",")
unknown = set(only) - set(SECTIONS)
if unknown:
    ap.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
os.makedirs(args.out, exist_ok=True)
stem = os.path.join(args.out, "llm")

cpu = dict(line.split(":", 1) for line in subprocess.check_output(["lscpu"], text=True).splitlines() if ":" in line)
flags = cpu["Flags"].split()
has_vnni = "avx512_vnni" in flags or "avx_vnni" in flags
machine = (f"{cpu['Model name'].strip()} (family {cpu['CPU family'].strip()} model {cpu['Model'].strip()}), "
           f"{os.cpu_count()} CPUs, {'VNNI' if has_vnni else 'AVX2 only'}")
rows = report.load(stem + ".json")


def add(new):
    keys = {row.key for row in new}
    rows[:] = [row for row in rows if row.key not in keys] + new
    report.save(stem, machine, rows)
    for row in new:
        print(f"{row.work}: {report.spread(row.ours)} {row.unit}, ratio {row.ratio()}, met {row.met()}", flush=True)


main = args.models[0]
if "engine" in only:
    for model in args.models:
        shapes = ["tg128", "pp512", "b16"]
        if model == main and not args.families:
            shapes = [s for s in engine.SHAPES if s != "b16"]
        add(engine.section(args, model, shapes, has_vnni, not has_vnni))
if {"http", "long", "open", "shared"} & set(only):
    import load
    from servers import Servers
    with Servers(args, main, 64) as servers:
        if "http" in only:
            for concurrency in (16, 64):
                add(load.closed_loop(args, servers, "short", concurrency, 2.5, total=False))
        if "long" in only:
            for concurrency in (4, 16):
                add(load.closed_loop(args, servers, "long", concurrency, 2, total=True))
        if "open" in only:
            add(load.open_loop(args, servers))
        if "shared" in only:
            add(load.shared_prefix(args, servers))
if "startup" in only:
    add(startup.section(args, main))
if "attention" in only:
    add(engine.attention(args))
if "fidelity" in only:
    for row in engine.fidelity(args, main):
        add([row])
if "int16" in only:
    for row in engine.int16(args, main):
        add([row])
print(f"\n{stem}.md, .json, .svg")
