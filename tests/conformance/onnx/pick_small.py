#!/usr/bin/env python3
"""Packs the cases of the gate: pick_small.py CASES, a folder written by
dump_onnx_cases.py, makes tests/data/onnx_cases.zip."""
import json
import pathlib
import sys
import zipfile

HERE = pathlib.Path(__file__).parent
MAX_BYTES = 2500
BODIES = {"If", "Loop", "Scan", "SequenceMap"}


def main():
    root = pathlib.Path(sys.argv[1])
    passes = set((HERE / "expected_passes.txt").read_text().split())

    def files(row):
        return sorted(p for p in (root / row["dir"]).rglob("*.*")
                      if p.is_file() and p.name != "case.json")

    rows, best = {}, {}
    for row in json.loads((root / "index.json").read_text()):
        name = row["name"]
        if (name not in passes or name.endswith("_expanded")
                or "bernoulli" in name or "random" in name):
            continue
        size = sum(p.stat().st_size for p in files(row))
        if size >= MAX_BYTES:
            continue
        old = row["kind"] == "node" and max(row["opset"].values()) < 13
        if old or BODIES & set(row["ops"]):
            rows[name] = row
        for op in row["ops"]:
            if op not in best or size < best[op][0]:
                best[op] = (size, row)
    rows.update((row["name"], row) for _, row in best.values())
    out = HERE.parents[1] / "data/onnx_cases.zip"
    with zipfile.ZipFile(out, "w") as archive:
        def add(name, data):
            archive.writestr(zipfile.ZipInfo(name), data)
        add("cases.txt", "".join(f"{n} {r['rtol']} {r['atol']}\n"
                                 for n, r in sorted(rows.items())))
        for name, row in sorted(rows.items()):
            for path in files(row):
                inside = path.relative_to(root / row["dir"])
                add(f"{name}/{inside}", path.read_bytes())
    print(f"{len(rows)} cases, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
