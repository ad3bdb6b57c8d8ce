#!/usr/bin/env python3
"""Tokens a second with a JSON schema and without, on servers that speak
OpenAI's chat completions: the same schemas, one server at a time, by turns.

    structured.py --url millrace=http://127.0.0.1:8000 \\
        --url llamacpp=http://127.0.0.1:8090 [--streams 1 8] [--rounds 3]

Every answer has the same number of tokens: the schemas ask for more than
max_tokens, and without a schema the end is forbidden where the server can. A
schema is asked for once before it is timed, so that compiling is not. Prints the
median of the rounds and the ratio with / without.
"""
import argparse
import concurrent.futures
import json
import statistics
import time
import urllib.request

TEXT = {"type": "string", "minLength": 20, "maxLength": 60}
PERSON = {"type": "object", "additionalProperties": False,
          "properties": {"name": TEXT, "age": {"type": "integer", "minimum": 0,
                                               "maximum": 150},
                         "tags": {"type": "array", "items": TEXT,
                                  "minItems": 2, "maxItems": 4}},
          "required": ["name", "age", "tags"]}
SCHEMAS = {
    "objects": {"type": "array", "items": PERSON, "minItems": 12,
                "maxItems": 20},
    "strings": {"type": "array", "items": TEXT, "minItems": 20,
                "maxItems": 40},
    "numbers": {"type": "array", "minItems": 80, "maxItems": 100, "items": {
        "type": "number", "minimum": 0, "maximum": 99}},
    "kinds": {"type": "array", "minItems": 30, "maxItems": 60, "items": {
        "anyOf": [{"enum": ["small", "medium", "large"]},
                  {"type": "integer"}, TEXT]}},
    "nested": {"type": "object", "additionalProperties": False,
               "properties": {k: {"type": "array", "items": PERSON,
                                  "minItems": 5, "maxItems": 9}
                              for k in ("team", "guests", "others")},
               "required": ["team", "guests", "others"]},
}


def ask(url, model, schema, tokens, seed):
    body = {"model": model, "max_tokens": tokens, "temperature": 0.8,
            "seed": seed, "messages": [
                {"role": "user", "content": "Describe people in a town."}]}
    if schema is None:
        body["ignore_eos"] = True
    else:
        body["response_format"] = {"type": "json_schema", "json_schema": {
            "name": "x", "schema": schema}}
    request = urllib.request.Request(
        url + "/v1/chat/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["usage"]["completion_tokens"]


# Requests of each stream, one after the other: streams end at different times,
# and with one request each the last of them would run alone.
REQUESTS = 6


def rate(url, model, schema, streams, tokens):
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        made = sum(pool.map(lambda seed: ask(url, model, schema, tokens, seed),
                            range(streams * REQUESTS)))
    return made / (time.monotonic() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", action="append", required=True)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=100)
    options = parser.parse_args()
    servers = dict(each.split("=", 1) for each in options.url)
    models = {}
    for name, url in servers.items():
        with urllib.request.urlopen(url + "/v1/models", timeout=60) as answer:
            models[name] = json.load(answer)["data"][0]["id"]
        for schema in [None, *SCHEMAS.values()]:
            ask(url, models[name], schema, 8, 0)
    print("| server | streams | schema | without | with | ratio |")
    print("|---|---|---|---|---|---|")
    for streams in options.streams:
        for name, url in servers.items():
            ratios = []
            for title, schema in SCHEMAS.items():
                free, held = [], []
                for _ in range(options.rounds):
                    for rates, each in ((free, None), (held, schema)):
                        rates.append(rate(url, models[name], each, streams,
                                          options.tokens))
                free, held = map(statistics.median, (free, held))
                ratios.append(held / free)
                print(f"| {name} | {streams} | {title} | {free:.1f} | "
                      f"{held:.1f} | {held / free:.3f} |", flush=True)
            print(f"| {name} | {streams} | geometric mean | | | "
                  f"{statistics.geometric_mean(ratios):.3f} |", flush=True)


if __name__ == "__main__":
    main()
