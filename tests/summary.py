#!/usr/bin/env python3
"""Sums what a run left in its results folder and closes with the gate's line.

    tests/summary.py RESULTS

    RESULTS/SUITE/ctest.junit   one test program each, as ctest judged it
    RESULTS/SUITE/NAME.xml      the cases of GoogleTest program NAME
    RESULTS/SUITE/pytest.xml    cases of pytest
    RESULTS/steps.tsv           lines "what<TAB>passed|failed": builds, fuzzers

A program that ctest calls failed counts as a failure even when all its cases
passed or none was written: it crashed, hung, or a sanitizer stopped it. Exit
status 0 means that something ran and nothing failed.
"""
import pathlib
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


def judge(case):
    """Of one testcase element, as ctest, GoogleTest and pytest write it."""
    if case.find("failure") is not None or case.find("error") is not None:
        return FAILED
    if (case.find("skipped") is not None or case.get("result") == "skipped"
            or case.get("status") in ("disabled", "notrun")
            and case.get("result") != "completed"):
        return SKIPPED
    return FAILED if case.get("status") == "fail" else PASSED


def cases(path):
    """(name, outcome) of each case in a file; a broken file is a failure."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        return [(f"{path.name} cannot be read: {error}", FAILED)]
    return [(".".join(filter(None, [case.get("classname"), case.get("name")])),
             judge(case)) for case in root.iter("testcase")]


def programs(folder):
    """(name, outcome) of each case behind a ctest.junit."""
    try:
        root = ElementTree.parse(folder / "ctest.junit").getroot()
    except (OSError, ElementTree.ParseError) as error:
        yield f"{folder.name}: ctest left no verdict: {error}", FAILED
        return
    for program in root.iter("testcase"):
        name, outcome = program.get("name"), judge(program)
        # ctest's "notrun" means that the program was not there.
        if program.get("status") == "notrun":
            outcome = FAILED
        inner = folder / f"{name}.xml"
        inside = cases(inner) if inner.exists() else []
        yield from ((f"{name}: {case}", verdict) for case, verdict in inside)
        any_failed = any(verdict == FAILED for _, verdict in inside)
        if not inside:
            yield name, outcome
        elif outcome == FAILED and not any_failed:
            yield f"{name}: stopped outside its cases", FAILED


def everything(results):
    """(suite, name, outcome) of all that ran."""
    for folder in sorted(p for p in results.iterdir() if p.is_dir()):
        if (folder / "pytest.xml").exists():
            found = cases(folder / "pytest.xml")
        else:
            found = programs(folder)
        yield from ((folder.name, name, outcome) for name, outcome in found)
    steps = results / "steps.tsv"
    if steps.exists():
        for line in steps.read_text().splitlines():
            what, _, outcome = line.partition("\t")
            yield "steps", what, outcome if outcome == PASSED else FAILED


def main(results):
    totals, suites = Counter(), {}
    failures = []
    for suite, name, outcome in everything(results):
        totals[outcome] += 1
        suites.setdefault(suite, Counter())[outcome] += 1
        if outcome == FAILED:
            failures.append(f"  FAILED {suite}: {name}")
    print()
    for suite, counts in suites.items():
        print(f"  {suite:10} " + ", ".join(f"{n} {k}" for k, n in
                                           sorted(counts.items(), reverse=True)))
    print("\n".join(failures))
    line = f"{totals[PASSED]} passed, {totals[FAILED]} failed"
    if totals[SKIPPED]:
        line += f", {totals[SKIPPED]} skipped"
    print(line)
    return 0 if totals[PASSED] and not totals[FAILED] else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
