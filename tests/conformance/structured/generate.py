#!/usr/bin/env python3
"""Thousands of constrained answers of a running server, each held against its
schema by jsonschema and, where it is installed, by llguidance.

    generate.py --url http://127.0.0.1:8000 --model NAME [--made 200]
        [--seeds 5] [--temperatures 0 0.7 1.3 2] [--concurrency 16]

The schemas are those of tests/e2e/structured_schemas.py and --made random ones
of their keywords. Every answer must parse and fit its schema or end with
`length`; llguidance must take it, too. Outside the gate; its Python is that of
tests/requirements.txt, with `pip install llguidance` for the second opinion.
Ends with 1 after a wrong answer.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import random
import sys
import urllib.error
import urllib.request

import jsonschema

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "e2e"))
from structured_schemas import SCHEMAS  # noqa: E402

try:
    import llguidance
except ImportError:
    llguidance = None


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


def ask(options, schema, temperature, seed):
    body = {"model": options.model, "temperature": temperature, "seed": seed,
            "max_tokens": options.max_tokens,
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
        with urllib.request.urlopen(request, timeout=600) as answer:
            choice = json.load(answer)["choices"][0]
            text = (choice["text"] if options.completions
                    else choice["message"]["content"])
            return text, choice["finish_reason"]
    except urllib.error.HTTPError as error:
        return json.load(error)["error"]["message"], error.code


def fits(text, schema):
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"does not parse: {error}"
    validator = jsonschema.validators.validator_for(
        schema, default=jsonschema.Draft202012Validator)(schema)
    return next((e.message for e in validator.iter_errors(value)), None)


def second_opinion(text, schema, cache={}):
    """None: it takes the text, or cannot say."""
    if llguidance is None or "$schema" in schema:
        return None
    key = json.dumps(schema)
    if key not in cache:
        tokens = llguidance.LLTokenizer("byte")
        grammar = llguidance.LLMatcher.grammar_from_json_schema(key)
        matcher = llguidance.LLMatcher(tokens, grammar, log_level=0)
        cache[key] = (tokens, grammar, bool(matcher.is_error()))
    tokens, grammar, unsupported = cache[key]
    if unsupported:
        return None
    matcher = llguidance.LLMatcher(tokens, grammar, log_level=0)
    taken = matcher.consume_tokens(tokens.tokenize_bytes(text.encode()))
    if taken and matcher.is_accepting():
        return None
    return "llguidance refuses it"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--made", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--temperatures", type=float, nargs="+",
                        default=[0, 0.7, 1.3, 2])
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=120)
    parser.add_argument("--completions", action="store_true",
                        help="for a model without a chat template")
    options = parser.parse_args()
    schemas = dict(SCHEMAS)
    for i in range(options.made):
        schemas[f"made{i}"] = made_schema(random.Random(i))
    work = [(name, t, s) for s in range(options.seeds)
            for t in options.temperatures for name in schemas]
    counts, wrong = collections.Counter(), 0

    def one(item):
        name, temperature, seed = item
        return item, ask(options, schemas[name], temperature, seed)

    with concurrent.futures.ThreadPoolExecutor(options.concurrency) as pool:
        for (name, temperature, seed), (text, end) in pool.map(one, work):
            counts[end] += 1
            if end == "length":
                continue
            why = (str(end) if end != "stop" else fits(text, schemas[name]))
            other = None if why else second_opinion(text, schemas[name])
            if why is None and other is None:
                continue
            counts["wrong" if why else "other opinion"] += 1
            wrong += why is not None
            print(f"{name} temperature {temperature} seed {seed}: "
                  f"{why or other}\n  schema {json.dumps(schemas[name])}\n"
                  f"  text   {text!r}", flush=True)
    print(f"{len(schemas)} schemas, {len(work)} answers: {dict(counts)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
