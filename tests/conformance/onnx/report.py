#!/usr/bin/env python3
"""Compares a run of onnx_cases with expected_passes.txt.

    report.py RESULTS INDEX [--update]

--update rewrites expected_passes.txt and OPERATORS.md, the table of operators
and of how many of their cases pass.
"""
import argparse
import collections
import json
import pathlib

HERE = pathlib.Path(__file__).parent
EXPECTED = HERE / "expected_passes.txt"
TABLE = HERE / "OPERATORS.md"


def table(index, verdicts):
    """Markdown: each operator with a case of its own, by what is missing."""
    count = collections.defaultdict(collections.Counter)
    why = {}
    for row in index:
        verdict, reason = verdicts.get(row["name"], ("fail", "did not run"))
        for op in row["ops"]:
            if len(row["ops"]) == 1:
                count[op][verdict] += 1
                if verdict != "pass":
                    why.setdefault(op, reason)
    lines = ["# ONNX operators", "",
             "Written by report.py from the onnx package's backend tests: "
             "cases that use the operator alone.", "",
             "| operator | pass | fail | unsupported | the first reason |",
             "|---|---|---|---|---|"]
    for op in sorted(count):
        c = count[op]
        reason = why.get(op, "").replace("|", "/")[:90]
        lines.append(f"| {op} | {c['pass']} | {c['fail']} | "
                     f"{c['unsupported']} | {reason} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("index", type=pathlib.Path)
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    verdicts = {}
    for line in options.results.read_text(errors="replace").splitlines():
        name, verdict, reason = (line.split(" ", 2) + ["", ""])[:3]
        verdicts[name] = (verdict, reason)
    index = json.loads(options.index.read_text())
    passes = sorted(n for n, (v, _) in verdicts.items() if v == "pass")
    total = collections.Counter(v for v, _ in verdicts.values())
    print(f"{len(index)} cases:", dict(total))
    ort = [r["name"] for r in index if r.get("ort") == "pass"]
    if ort:
        ours = sum(verdicts.get(n, ("",))[0] == "pass" for n in ort)
        print(f"of {len(ort)} that ONNX Runtime passes: {ours}")
    if options.update:
        EXPECTED.write_text("\n".join(passes) + "\n")
        TABLE.write_text(table(index, verdicts))
        return 0
    lost = sorted(set(EXPECTED.read_text().split()) - set(passes))
    for name in lost:
        print("lost:", name, *verdicts.get(name, ("did not run",)))
    new = len(set(passes) - set(EXPECTED.read_text().split()))
    if new:
        print(f"{new} new passes; run with --update to expect them")
    return 1 if lost else 0


if __name__ == "__main__":
    raise SystemExit(main())
