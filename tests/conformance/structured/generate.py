#!/usr/bin/env python3
"""Constrained answers of a server, each held against its schema by jsonschema
and, where it is installed, by llguidance.

    generate.py [--generations 1000] [--suite suite/tests/draft2020-12 …]
        [--url http://127.0.0.1:8000 --model NAME] [--made 200]
        [--temperatures 0 0.7 1.3 2] [--concurrency 32] [--save answers.jsonl]

Without --url it starts a server of its own with the default model. The schemas
are those of tests/e2e/structured_schemas.py, --made random ones of their
keywords, and those of JSON-Schema-Test-Suite that the server takes. Every answer
must parse and fit its schema or end with `length`; llguidance must take it, too, or
refuse it for a reason of differences.py.
Outside the gate; its Python is that of tests/requirements.txt, with `pip install
llguidance` for the second opinion. Ends with 1 after a wrong answer.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import json
import pathlib
import random
import sys
import time
import urllib.error
import urllib.request

from differences import explain
from judges import Second, llguidance, why_not

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "e2e"))
from conftest import MODEL, MODEL_ID, start  # noqa: E402
from structured_schemas import SCHEMAS  # noqa: E402


def made_schema(rng, depth=3):
    """A random schema of the keywords that are taken."""
    simple = [
        lambda: {"type": "string", "maxLength": rng.randint(1, 12)},
        lambda: {"type": "string", "minLength": 2, "maxLength": 6},
        lambda: {"type": "integer", "minimum": rng.randint(-50, 0),
                 "maximum": rng.randint(1, 5000)},
        lambda: {"type": "number", "minimum": -rng.randint(0, 9),
                 "maximum": rng.choice([0.5, 7, 12.25])},
        lambda: {"type": "boolean"},
        lambda: {"type": ["null", "boolean"]},
        lambda: {"enum": rng.sample(["a", "bb", 1, 2.5, None, "ü", []], 3)},
        lambda: {"const": rng.choice(["x", 7, [1, "y"], {"k": None}])},
        lambda: {"type": "string", "format": rng.choice(
            ["date", "uuid", "ipv4", "time"])},
        lambda: {"type": "string", "pattern": rng.choice(
            ["^[a-z]{1,4}$", "^[0-9]{2}:[0-9]{2}$", "^(yes|no)$"])},
    ]
    if depth == 0:
        return rng.choice(simple)()

    def part():
        return made_schema(rng, depth - 1)

    def an_object():
        names = rng.sample(["id", "name", "kind", "a b", "né", "list"],
                           rng.randint(1, 4))
        return {"type": "object", "properties": {n: part() for n in names},
                "required": rng.sample(names, rng.randint(0, len(names)))}

    def merged():
        one, other = an_object(), an_object()
        for name in set(one["properties"]) & set(other["properties"]):
            other["properties"][name] = one["properties"][name]
        return {"allOf": [one, other]}

    return rng.choice(simple + [an_object] * 6 + [
        merged,
        lambda: {"type": "array", "items": part(), "maxItems": 3,
                 "minItems": rng.randint(0, 2)},
        lambda: {"type": "array", "prefixItems": [part(), part()],
                 "items": False},
        lambda: {"anyOf": [part(), part()]},
        lambda: {"oneOf": [{"type": "null"}, an_object(), {"enum": ["z"]}]},
        lambda: {"type": "object", "maxProperties": 2, "propertyNames": {
            "maxLength": 4}, "additionalProperties": part()},
    ])()


def ask(options, schema, temperature, seed, max_tokens=None):
    """The text and why it ended; or the error's message and status."""
    body = {"model": options.model, "temperature": temperature, "seed": seed,
            "max_tokens": max_tokens or options.max_tokens,
            "response_format": {"type": "json_schema", "json_schema": {
                "name": "x", "schema": schema}}}
    if options.completions:
        body["prompt"] = "Write an example."
    else:
        body["messages"] = [{"role": "user", "content": "Write an example."}]
    request = urllib.request.Request(
        options.url + ("/v1/completions" if options.completions
                       else "/v1/chat/completions"), json.dumps(body).encode(),
        {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=3600) as answer:
            choice = json.load(answer)["choices"][0]
            text = (choice["text"] if options.completions
                    else choice["message"]["content"])
            return text, choice["finish_reason"]
    except urllib.error.HTTPError as error:
        return json.load(error)["error"]["message"], error.code


def suite_schemas(folders):
    """{name: schema}, each once. Those of a draft are read as that draft."""
    found, seen = {}, set()
    for folder in map(pathlib.Path, folders):
        for file in sorted(folder.rglob("*.json")):
            for i, group in enumerate(json.loads(file.read_text())):
                schema = group["schema"]
                if isinstance(schema, dict) and "draft7" in folder.name:
                    schema = {"$schema":
                              "http://json-schema.org/draft-07/schema#",
                              **schema}
                if json.dumps(schema) not in seen:
                    seen.add(json.dumps(schema))
                    found[f"{folder.name}/{file.stem}/{i}"] = schema
    return found


class Opinion:
    """llguidance, with each schema compiled once."""

    def __init__(self):
        self.second = Second() if llguidance else None
        self.grammars = {}

    def refusal(self, name, schema, text):
        """Why it refuses an answer that fits; None: it takes it."""
        if self.second is None:
            return None
        if name not in self.grammars:
            self.grammars[name] = self.second.compile(schema)
        grammar = self.grammars[name]
        if grammar is None or self.second.takes(grammar, text):
            return None
        _, reason = explain(schema, json.loads(text), text, lambda _: True,
                            lambda t: self.second.takes(grammar, t), True)
        return reason or "UNEXPLAINED"


def taken_schemas(options, schemas, counts, pool):
    """Those that are not refused; all are compiled by this."""
    def refusal(name):
        text, end = ask(options, schemas[name], 0, 0, max_tokens=1)
        return name, text if isinstance(end, int) else None

    taken = []
    for name, why in pool.map(refusal, schemas):
        if why is None:
            taken.append(name)
        else:
            counts["schemas refused"] += 1
            if name in SCHEMAS or name.startswith("made"):
                print(f"{name} is refused: {why}\n  "
                      f"{json.dumps(schemas[name])}", flush=True)
    return taken


def run(options):
    schemas = dict(SCHEMAS)
    for i in range(options.made):
        schemas[f"made{i}"] = made_schema(random.Random(i))
    schemas.update(suite_schemas(options.suite))
    counts, opinion = collections.Counter(), Opinion()
    save = (open(options.save, "w") if options.save
            else contextlib.nullcontext())
    with save as out, concurrent.futures.ThreadPoolExecutor(
            options.concurrency) as pool:
        names = taken_schemas(options, schemas, counts, pool)
        random.Random(options.seed).shuffle(names)
        temperatures = options.temperatures

        def one(i):
            name = names[i % len(names)]
            temperature = temperatures[(i + i // len(names))
                                       % len(temperatures)]
            seed = options.seed + i
            return name, temperature, seed, *ask(
                options, schemas[name], temperature, seed)

        begun = time.monotonic()
        for name, temperature, seed, text, end in pool.map(
                one, range(options.generations)):
            counts[f"end: {end}"] += 1
            schema = schemas[name]
            if out is not None and end == "stop":
                print(json.dumps({"name": name, "schema": schema,
                                  "text": text}), file=out)
            why = None
            if end == "stop":
                why = why_not(text, schema)
            elif end != "length":
                why = str(end)
            other = None
            if why is None and end == "stop":
                other = opinion.refusal(name, schema, text)
            if why is None and other is None:
                continue
            counts["wrong" if why else f"refused by llguidance: {other}"] += 1
            print(f"{name} temperature {temperature} seed {seed}: "
                  f"{why or f'llguidance refuses it ({other})'}\n"
                  f"  schema {json.dumps(schema)}\n"
                  f"  text   {text!r}", flush=True)
    print(f"{len(names)} schemas, {options.generations} answers in "
          f"{time.monotonic() - begun:.0f} s: {dict(counts)}")
    return 1 if counts["wrong"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url")
    parser.add_argument("--model", default=MODEL_ID)
    parser.add_argument("--generations", type=int, default=1000)
    parser.add_argument("--made", type=int, default=200)
    parser.add_argument("--suite", nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--temperatures", type=float, nargs="+",
                        default=[0, 0.7, 1.3, 2])
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--save")
    parser.add_argument("--completions", action="store_true",
                        help="for a model without a chat template")
    options = parser.parse_args()
    if options.url:
        return run(options)
    with start(MODEL) as server:
        options.url = server.url
        return run(options)


if __name__ == "__main__":
    sys.exit(main())
