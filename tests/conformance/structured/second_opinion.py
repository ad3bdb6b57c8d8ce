#!/usr/bin/env python3
"""Our grammars and llguidance's on the same texts: random walks through both,
the same with random edits, and texts from elsewhere. No model is asked.
Its Python is that of tests/requirements.txt, with

    pip install apache-tvm-ffi==0.1.15.post2 llguidance 'jsonschema[format]'
    second_opinion.py [--made 200] [--walks 12] [--edits 3]
        [--suite suite/tests/draft2020-12 …] [--texts answers.jsonl]
        [--binary build/release/bin/millrace] [--library DIR] [--show 3]

`--texts` is what `generate.py --save` wrote. jsonschema says who is right. No
text may be taken by ours that does not fit, and each difference must have a
reason of differences.py; else the exit status is 1.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import sys

from differences import explain
from generate import SCHEMAS, made_schema, suite_schemas
from judges import Ours, Second, why_not

REPO = pathlib.Path(__file__).resolve().parents[3]
CACHE = pathlib.Path(os.environ.get(
    "MILLRACE_CACHE", pathlib.Path.home() / ".cache/millrace"))


def edited(text, rng):
    at = rng.randrange(len(text)) if text else 0
    kind = rng.randrange(4)
    if kind == 0:
        return text[:at] + text[at + 1:]
    piece = rng.choice(['"', "0", "9", ".5", "e1", "-", ",", "a", "é", " ",
                        "{}", "[]", "null", "true", '"a": 1, ', "\\n",
                        "\\u0061", "\u00a0", text[at:at + 1]])
    return text[:at] + piece + text[at + (kind == 1):]


def kind_of(message):
    """A refusal without what it quotes."""
    message = re.sub(r"""the schema( at '[^']*')?""", "the schema", message)
    return re.sub(r"""'/[^']*'|"[^"]*"|-?\d[\d.e-]*""", "…", message)


def texts_for(ours, theirs, grammar, other, options, rng):
    texts = [ours.walk(grammar, rng) for _ in range(options.walks)]
    if other is not None:
        texts += [theirs.walk(other, rng) for _ in range(options.walks)]
    texts = [t for t in texts if t is not None]
    return texts + [edited(t, rng) for t in texts
                    for _ in range(options.edits)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--made", type=int, default=200)
    parser.add_argument("--walks", type=int, default=12)
    parser.add_argument("--edits", type=int, default=3)
    parser.add_argument("--suite", nargs="*", default=[])
    parser.add_argument("--texts")
    parser.add_argument("--show", type=int, default=3)
    parser.add_argument("--binary",
                        default=REPO / "build/release/bin/millrace")
    parser.add_argument("--library", default=CACHE / "deps/xgrammar-0.2.8/lib")
    options = parser.parse_args()
    schemas = dict(SCHEMAS)
    for i in range(options.made):
        schemas[f"made{i}"] = made_schema(random.Random(i))
    schemas.update(suite_schemas(options.suite))
    given = collections.defaultdict(list)
    if options.texts:
        for line in open(options.texts):
            row = json.loads(line)
            given[row["name"]].append(row["text"])
    ours, theirs = Ours(options.binary, options.library), Second()
    refusals = collections.Counter()  # of the one alone
    counts, reasons = collections.Counter(), collections.Counter()
    shown, bad = collections.Counter(), 0
    for name, schema in schemas.items():
        grammar, refusal = ours.compile(schema)
        other, why_other = theirs.compile_or_why(schema)
        if refusal is not None:
            counts["schemas that are refused"] += 1
            counts["schemas of them that llguidance takes"] += other is not None
            if other is not None:
                refusals["ours", kind_of(refusal)] += 1
            continue
        counts["schemas"] += 1
        counts["schemas of the others that llguidance refuses"] += other is None
        if other is None:
            refusals["llguidance", kind_of(why_other)] += 1
        texts = given[name] + texts_for(ours, theirs, grammar, other, options,
                                        random.Random(name))
        for text in dict.fromkeys(texts):
            why = why_not(text, schema)
            mine = ours.takes(grammar, text)
            counts["texts"] += 1
            counts["texts that ours takes"] += mine
            if mine and why is not None:
                bad += 1
                print(f"WRONG {name}: {why}\n  {json.dumps(schema)}\n"
                      f"  {text!r}")
            if other is None or theirs.takes(other, text) == mine:
                continue
            counts["differences"] += 1
            value = json.loads(text) if why is None else None
            right, reason = explain(
                schema, value, text, lambda t: ours.takes(grammar, t),
                lambda t: theirs.takes(other, t), why is None)
            bad += reason is None
            key = right, reason or "UNEXPLAINED"
            reasons[key] += 1
            shown[key] += 1
            if shown[key] <= (20 if reason is None else options.show):
                print(f"{key[1]} ({right}), {name}: {why}\n"
                      f"  {json.dumps(schema)}\n  {text!r}")
    for key, count in sorted(counts.items()):
        print(f"{count:6} {key}")
    print("\nSchemas that one refuses and the other takes (who, why):")
    for (who, why), count in refusals.most_common():
        print(f"{count:6} {who}: {why}")
    print("\nDifferences (who is right, why):")
    for (right, reason), count in reasons.most_common():
        print(f"{count:6} {right}: {reason}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
