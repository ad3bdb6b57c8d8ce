#!/usr/bin/env python3
"""Compares a run of onnx_cases with expected_passes.txt and first_target.txt.

    report.py RESULTS INDEX [--update]

Every case of the first target passes or has its reason in why_not.txt; one that
ONNX Runtime passes has no excuse. --update rewrites expected_passes.txt and
OPERATORS.md, the table of operators and of how many of their cases pass.
"""
import argparse
import collections
import json
import pathlib

HERE = pathlib.Path(__file__).parent
EXPECTED = HERE / "expected_passes.txt"
TABLE = HERE / "OPERATORS.md"
FIRST_TARGET = HERE / "first_target.txt"
WHY_NOT = HERE / "why_not.txt"


def first_target(verdicts):
    """Cases of the first target that are missing, and what is to be said of all."""
    theirs = dict(line.split() for line in FIRST_TARGET.read_text().splitlines() if not line.startswith("#"))
    excused = {line.split(" ", 1)[0] for line in WHY_NOT.read_text().splitlines()} if WHY_NOT.exists() else set()
    ours = {name for name in theirs if verdicts.get(name, ("",))[0] == "pass"}
    passed = {name for name, verdict in theirs.items() if verdict == "pass"}
    missing = sorted((passed - ours) | (set(theirs) - ours - excused))
    said = (f"of the {len(theirs)} cases of the first target we pass {len(ours)}, ONNX Runtime {len(passed)}, "
            f"of which we pass {len(passed & ours)}")
    return missing, said


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
             first_target(verdicts)[1].capitalize().replace("onnx runtime", "ONNX Runtime") + " (first_target.py, by name).",
             "", *totals(index, verdicts), "",
             "| operator | pass | fail | unsupported | the first reason |",
             "|---|---|---|---|---|"]
    for op in sorted(count):
        c = count[op]
        reason = why.get(op, "").replace("|", "/")[:90]
        lines.append(f"| {op} | {c['pass']} | {c['fail']} | "
                     f"{c['unsupported']} | {reason} |")
    return "\n".join(lines) + "\n"


def totals(index, verdicts):
    total = collections.Counter(v for v, _ in verdicts.values())
    lines = [f"Of all {len(index)} cases we pass {total['pass']}, {total['fail']} give other numbers and "
             f"{total['unsupported']} need what we have not."]
    ort = [r["name"] for r in index if r.get("ort") == "pass"]
    if ort:
        ours = sum(verdicts.get(n, ("",))[0] == "pass" for n in ort)
        lines.append(f"ONNX Runtime passes {len(ort)}, of which we pass {ours}.")
    fails = sorted(n for n, (v, _) in verdicts.items() if v == "fail")
    if fails:
        lines += ["", "Other numbers:", ""] + [f"- `{n}`: {verdicts[n][1]}{reason(n)}" for n in fails]
    return lines


def reason(name):
    for line in WHY_NOT.read_text().splitlines():
        if line.startswith(name + " "):
            return "; " + line.split(" ", 1)[1]
    return ""


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
    print("\n".join(totals(index, verdicts)))
    missing, said = first_target(verdicts)
    print(said)
    if options.update:
        EXPECTED.write_text("\n".join(passes) + "\n")
        TABLE.write_text(table(index, verdicts))
        return 0
    lost = sorted(set(EXPECTED.read_text().split()) - set(passes))
    for name in lost:
        print("lost:", name, *verdicts.get(name, ("did not run",)))
    for name in missing:
        print("missing of the first target:", name, *verdicts.get(name, ("did not run",)))
    new = len(set(passes) - set(EXPECTED.read_text().split()))
    if new:
        print(f"{new} new passes; run with --update to expect them")
    return 1 if lost or missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
