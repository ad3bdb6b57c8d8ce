#!/usr/bin/env python3
"""JSON-Schema-Test-Suite and our own schemas against the grammars that are made
of them: which texts are taken, without a model. Outside the gate.

    git clone https://github.com/json-schema-org/JSON-Schema-Test-Suite suite
    pip install apache-tvm-ffi==0.1.15.post2 llguidance jsonschema
    suite.py suite/tests/draft2020-12 suite/tests/draft7
        [--binary build/release/bin/millrace] [--library DIR] [--differences 40]

Schemas are translated and compiled by `millrace compile-grammar`, as for a
request, over a vocabulary of single bytes; the library that the server opens
then says which texts are taken.

For each schema that is taken: no text of an instance that the suite calls wrong
may be accepted, in any order of its keys (then the exit status is 1). Right ones
that are refused are counted by reason: the grammar takes a part of what the
schema does. With `pip install llguidance` its opinion on the same texts stands
beside; where the two differ, the suite says who is right.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import sys

from differences import NARROWED, formats_of, has, texts_of
from judges import Ours, Second, llguidance

REPO = pathlib.Path(__file__).resolve().parents[3]
CACHE = pathlib.Path(os.environ.get(
    "MILLRACE_CACHE", pathlib.Path.home() / ".cache/millrace"))


def why_refused(schema, value):
    """Why a right instance may be refused; None: nothing explains it."""
    text = json.dumps(schema)
    if has(value, lambda v: isinstance(v, float) and v.is_integer()):
        return "an integer that is written with a fraction or exponent"
    if has(value, lambda v: isinstance(v, (int, float))
           and not isinstance(v, bool) and abs(v) >= 1e15):
        return "a number of more digits than are written"
    if isinstance(value, str) and formats_of(schema) & NARROWED:
        return "a format that is narrowed"
    if '"type"' not in text and not re.search(r'"(enum|const)"', text):
        return "a value of another type, where the schema names none"
    if re.search(r'"(anyOf|oneOf|allOf|\$ref)"', text):
        return "a combination that is narrowed"
    if isinstance(schema, dict) and "type" not in schema:
        return "a value of another type, where the schema names none"
    if has(value, lambda v: isinstance(v, str) and not v.isascii()):
        return "characters beyond ASCII"
    if has(value, lambda v: isinstance(v, dict) and len(v) > 0):
        return "names that the schema does not list, or their order"
    return None


def groups_of(paths):
    for path in paths:
        root = pathlib.Path(path)
        files = sorted(root.rglob("*.json")) if root.is_dir() else [root]
        for file in files:
            name = f"{root.name}/{file.relative_to(root)}"
            for group in json.loads(file.read_text()):
                yield name, group


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--binary",
                        default=REPO / "build/release/bin/millrace")
    parser.add_argument("--library", default=CACHE / "deps/xgrammar-0.2.8/lib")
    parser.add_argument("--differences", type=int, default=40)
    options = parser.parse_args()
    ours = Ours(options.binary, options.library)
    theirs = Second() if llguidance else None
    counts, refusals = collections.Counter(), collections.Counter()
    reasons, differences, wrong = collections.Counter(), [], []
    for name, group in groups_of(options.paths):
        schema = group["schema"]
        if isinstance(schema, dict):
            # The suite of a draft is read as that draft.
            draft = "draft-07" if "draft7" in name else "draft/2020-12"
            if draft == "draft-07":
                schema = {"$schema": f"http://json-schema.org/{draft}/schema#",
                          **schema}
        counts["schemas"] += 1
        tests = [(t, texts_of(t["data"])) for t in group["tests"]]
        strings = [text for _, texts in tests for text in texts]
        grammar, refusal = ours.compile(schema)
        if refusal is not None:
            counts["schemas refused"] += 1
            keyword = re.search(r"'([^']+)'", refusal)
            refusals[keyword.group(1) if keyword else refusal[:60]] += 1
            continue
        taken = {text: ours.takes(grammar, text) for text in strings}
        other = theirs.compile(schema) if theirs else None
        second = {text: theirs.takes(other, text)
                  for text in (strings if other else [])}
        for test, texts in tests:
            accepted = any(taken[text] for text in texts)
            kind = "right" if test["valid"] else "wrong"
            counts[f"{kind} instances "
                   f"{'accepted' if accepted else 'refused'}"] += 1
            if not test["valid"] and accepted:
                wrong.append((name, group["description"], test["description"],
                              schema, texts))
            if test["valid"] and not accepted:
                why = why_refused(schema, test["data"])
                reasons[why or "unexplained: " + name + ": "
                        + group["description"] + ": " + test["description"]
                        + " " + texts[0]] += 1
            if not second:
                continue
            # Keys in any order are a matter of taste: the better opinion counts.
            their = any(second[text] for text in texts)
            counts["compared with llguidance"] += 1
            if their == accepted:
                continue
            right = "we" if accepted == test["valid"] else "llguidance"
            counts[f"differ, {right} as the suite says"] += 1
            reason = ("" if right == "we"
                      else why_refused(schema, test["data"]) or "unexplained"
                      if test["valid"] else "accepted here, see WRONG")
            differences.append((right, name, group["description"],
                                test["description"], texts[0], accepted,
                                reason))
    for key, count in sorted(counts.items()):
        print(f"{count:6} {key}")
    print("\nSchemas refused, by the keyword that is named:")
    for key, count in refusals.most_common():
        print(f"{count:6} {key}")
    print("\nRight instances refused, by reason:")
    for key, count in reasons.most_common():
        print(f"{count:6} {key}")
    by_reason = collections.Counter(
        (right, reason) for right, *_, reason in differences)
    print("\nWhere llguidance differs (who is right, why, how many):")
    for (right, reason), count in by_reason.most_common():
        print(f"{count:6} {right}: {reason}")
    for row in differences[:options.differences]:
        print("   ", *row, sep=" | ")
    for name, group, test, schema, texts in wrong:
        print(f"WRONG {name}: {group}: {test}\n  {json.dumps(schema)}\n"
              f"  {texts[:3]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
