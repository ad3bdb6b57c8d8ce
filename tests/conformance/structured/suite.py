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
import ctypes
import itertools
import json
import os
import pathlib
import re
import struct
import subprocess
import sys

import tvm_ffi

try:
    import llguidance
except ImportError:
    llguidance = None

REPO = pathlib.Path(__file__).resolve().parents[3]
CACHE = pathlib.Path(os.environ.get(
    "MILLRACE_CACHE", pathlib.Path.home() / ".cache/millrace"))
MOST_ORDERS = 24


SCHEMA, END = 2, 256  # ConstraintKind::kJsonSchema; the id that ends a text
TOKENS = [bytes([i]) for i in range(END)] + [b""]


def register(name):
    return tvm_ffi.register_object("xgrammar.tvm_ffi_binding." + name)(
        type(name, (tvm_ffi.Object,), {}))


def made(kind, *arguments):
    value = kind.__new__(kind)
    value.__ffi_init__(*arguments)
    return value


class Accepts:
    """Our schemas over single bytes."""

    def __init__(self, binary, library):
        self.binary = binary
        ctypes.CDLL(str(pathlib.Path(library) / "libxgrammar_bindings.so"))
        self.grammar = register("CompiledGrammar")
        self.matcher = register("GrammarMatcher")
        self.tokens = made(register("TokenizerInfo"), TOKENS, 0, len(TOKENS),
                           [END], False)

    def compile(self, schema):
        def text(value):
            return struct.pack("<I", len(value)) + value

        job = (struct.pack("<I", SCHEMA) + text(json.dumps(schema).encode())
               + struct.pack("<IIII", len(TOKENS), 1, END, len(TOKENS))
               + b"".join(map(text, TOKENS)))
        done = subprocess.run([self.binary, "compile-grammar"], input=job,
                              capture_output=True)
        if done.returncode != 0:
            return False, f"the child ended with {done.returncode}"
        return done.stdout[:1] == b"K", done.stdout[1:].decode()

    def takes(self, grammar, text):
        matcher = made(self.matcher, grammar, None, False, -1, None)
        return bool(all(matcher.accept_token(byte, False)
                        for byte in text.encode())
                    and matcher.accept_token(END, False))

    def ask(self, schema, strings):
        ok, answer = self.compile(schema)
        if not ok:
            return {"refused": answer}
        grammar = self.grammar.deserialize_json(answer, self.tokens)
        return {"accepts": [self.takes(grammar, text) for text in strings]}


def orders(value):
    """The value with its objects' keys in every order, some at most."""
    if isinstance(value, list):
        parts = [list(orders(item)) for item in value]
        for chosen in itertools.islice(itertools.product(*parts), MOST_ORDERS):
            yield list(chosen)
    elif isinstance(value, dict):
        for keys in itertools.islice(itertools.permutations(value),
                                     MOST_ORDERS):
            parts = [list(orders(value[key])) for key in keys]
            for chosen in itertools.islice(itertools.product(*parts),
                                           MOST_ORDERS):
                yield dict(zip(keys, chosen))
    else:
        yield value


def texts_of(value):
    texts = [json.dumps(v, ensure_ascii=False, separators=(", ", ": "))
             for v in itertools.islice(orders(value), MOST_ORDERS)]
    return list(dict.fromkeys(texts))


def has(value, test):
    if test(value):
        return True
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list) and any(has(v, test) for v in value)


def why_refused(schema, value):
    """Why a right instance may be refused; None: nothing explains it."""
    text = json.dumps(schema)
    if has(value, lambda v: isinstance(v, float) and v.is_integer()):
        return "an integer that is written with a fraction or exponent"
    if has(value, lambda v: isinstance(v, (int, float))
           and not isinstance(v, bool) and abs(v) >= 1e15):
        return "a number of more digits than are written"
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


class Second:
    """llguidance over single bytes."""

    def __init__(self):
        self.tokens = llguidance.LLTokenizer("byte")

    def ask(self, schema, strings):
        grammar = llguidance.LLMatcher.grammar_from_json_schema(
            json.dumps(schema))
        if llguidance.LLMatcher(self.tokens, grammar, log_level=0).is_error():
            return None
        answers = []
        for text in strings:
            matcher = llguidance.LLMatcher(self.tokens, grammar, log_level=0)
            taken = matcher.consume_tokens(
                self.tokens.tokenize_bytes(text.encode()))
            answers.append(bool(taken and matcher.is_accepting()))
        return answers


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
    ours = Accepts(options.binary, options.library)
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
        answer = ours.ask(schema, strings)
        if "refused" in answer:
            counts["schemas refused"] += 1
            keyword = re.search(r"'([^']+)'", answer["refused"])
            refusals[keyword.group(1) if keyword
                     else answer["refused"][:60]] += 1
            continue
        taken = dict(zip(strings, answer["accepts"]))
        other = theirs.ask(schema, strings) if theirs else None
        second = dict(zip(strings, other)) if other else {}
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
