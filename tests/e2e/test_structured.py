"""Structured output: openai-python's response_format and parse(), vLLM's and
llama.cpp's spellings, schemas held against jsonschema, hostile texts."""
import concurrent.futures
import json
import re
import time
import urllib.error
import urllib.request

import jsonschema
import openai
import pydantic
import pytest

from conftest import MODEL, MODEL_ID, start
from structured_schemas import REFUSED, SCHEMAS, UNBOUNDED

TEMPERATURES = (0, 0.8, 2)
ASK = [{"role": "user", "content": "Describe a cat in JSON."}]


def built_with_it(server):
    try:
        post(server, {"response_format": {"type": "json_object"},
                      "max_tokens": 1})
    except Refused as refused:
        if "xgrammar" in refused.message:
            return False
        raise
    return True


@pytest.fixture(scope="module")
def structured(server):
    if not built_with_it(server):
        pytest.skip("this build has no structured output")
    return server


class Refused(Exception):
    def __init__(self, status, error):
        super().__init__(f"{status}: {error}")
        self.status, self.message = status, error["message"]
        self.param = error["param"]


def post(server, body, path="/v1/chat/completions"):
    body = {"model": MODEL_ID, "temperature": 0, "max_tokens": 200, **body}
    if path.endswith("/chat/completions"):
        body = {"messages": ASK, **body}
    request = urllib.request.Request(
        server.url + path, json.dumps(body).encode(),
        {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise Refused(error.code, json.load(error)["error"]) from None


def choice(server, **body):
    return post(server, body)["choices"][0]


def with_schema(schema):
    return {"response_format": {"type": "json_schema", "json_schema": {
        "name": "answer", "strict": True, "schema": schema}}}


def check(text, schema):
    value = json.loads(text)
    validator = jsonschema.validators.validator_for(
        schema, default=jsonschema.Draft202012Validator)
    validator(schema).validate(value)


@pytest.fixture(scope="module")
def answers(structured):
    """{(schema, temperature): choice}, asked for together."""
    asked = [(name, t) for name in SCHEMAS for t in TEMPERATURES]

    def ask(pair):
        return choice(structured, **with_schema(SCHEMAS[pair[0]]),
                      temperature=pair[1], seed=7, max_tokens=150)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        return dict(zip(asked, pool.map(ask, asked)))


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("name", SCHEMAS)
def test_answers_fit_their_schema(answers, name, temperature):
    answer = answers[name, temperature]
    if answer["finish_reason"] == "length":
        assert name in UNBOUNDED, answer
        return
    assert answer["finish_reason"] == "stop"
    check(answer["message"]["content"], SCHEMAS[name])


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_honoured_is_refused(structured, name):
    schema, word = REFUSED[name]
    with pytest.raises(Refused) as refused:
        choice(structured, **with_schema(schema))
    assert refused.value.status == 400
    assert refused.value.param == "response_format.json_schema.schema"
    assert word in refused.value.message


def test_parse_gives_a_model_of_pydantic(structured, client):
    class Cat(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=12)
        age: int = pydantic.Field(ge=0, le=30)
        colours: list[str] = pydantic.Field(max_length=2)

    # openai-python's parse() sends pydantic's schema.
    answer = client.chat.completions.parse(
        model=MODEL_ID, messages=ASK, temperature=0, max_tokens=200,
        response_format=Cat)
    assert isinstance(answer.choices[0].message.parsed, Cat)


def test_a_stream_is_the_answer_in_pieces(structured, client):
    arguments = dict(model=MODEL_ID, messages=ASK, temperature=0.7, seed=3,
                     max_tokens=200, logprobs=True, top_logprobs=2,
                     response_format=with_schema(SCHEMAS["person"])
                     ["response_format"])
    whole = client.chat.completions.create(**arguments)
    pieces = list(client.chat.completions.create(**arguments, stream=True))
    text = "".join(p.choices[0].delta.content or "" for p in pieces
                   if p.choices)
    assert text == whole.choices[0].message.content
    assert len(whole.choices[0].logprobs.content) > 5
    check(text, SCHEMAS["person"])


def test_several_answers_of_one_request(structured, client):
    answer = client.chat.completions.create(
        model=MODEL_ID, messages=ASK, temperature=1.5, seed=1, n=4,
        max_tokens=200,
        response_format=with_schema(SCHEMAS["person"])["response_format"])
    texts = [one.message.content for one in answer.choices]
    for text in texts:
        check(text, SCHEMAS["person"])
    assert len(set(texts)) > 1


def test_json_object(structured):
    answer = choice(structured, response_format={"type": "json_object"})
    if answer["finish_reason"] == "stop":
        assert isinstance(json.loads(answer["message"]["content"]), dict)


@pytest.mark.parametrize("body", [
    {"structured_outputs": {"regex": "[0-9]{3}-[a-z]{2}"}},
    {"guided_regex": "^[0-9]{3}-[a-z]{2}$"},
    {"grammar": 'root ::= [0-9]{3,3} "-" low low\nlow ::= [a-z] # a letter'},
    {"guided_grammar": 'start: /[0-9]{3}/ "-" /[a-z]{2}/'},
])
def test_patterns_and_grammars(structured, body):
    for temperature in (0, 2):
        answer = choice(structured, **body, temperature=temperature, seed=5)
        assert re.fullmatch(r"[0-9]{3}-[a-z]{2}",
                            answer["message"]["content"]), answer


def test_choice(structured):
    choices = ["red", "green \"x\"", "blue\n"]
    for field in ({"structured_outputs": {"choice": choices}},
                  {"guided_choice": choices}):
        answer = choice(structured, **field, temperature=2, seed=9)
        assert answer["message"]["content"] in choices


def test_the_spellings_of_a_schema_give_one_answer(structured):
    schema = SCHEMAS["person"]
    answers = {choice(structured, **body)["message"]["content"] for body in (
        with_schema(schema), {"guided_json": schema},
        {"structured_outputs": {"json": json.dumps(schema)}},
        {"json_schema": schema},
        {"response_format": {"type": "json_schema", "schema": schema}},
        {"response_format": {"type": "json_object", "schema": schema}})}
    assert len(answers) == 1


def test_structural_tag(structured):
    answer = choice(structured, response_format={
        "type": "structural_tag", "format": {
            "type": "tag", "begin": "<x>", "end": "</x>", "content": {
                "type": "json_schema", "json_schema": SCHEMAS["person"]}}})
    text = answer["message"]["content"]
    assert text.startswith("<x>") and text.endswith("</x>")
    check(text[3:-4], SCHEMAS["person"])


def test_structural_tag_in_its_older_shape(structured):
    def tag(**structure):
        return {"response_format": {
            "type": "structural_tag", "triggers": ["{"], "structures": [
                {"begin": "{", "end": "}", **structure}]}}
    for seed in range(5):
        text = choice(structured, temperature=2, seed=seed, max_tokens=200,
                      **tag(schema={"enum": [1, 2]}))["message"]["content"]
        for part in text.split("{")[1:]:
            assert part[:1] in ("", "1", "2") and part[1:2] in ("", "}")
    for bad, words in ((tag(schema={"not": {}}), "'not'"),
                       (tag(begin=5), "begin"),
                       ({"response_format": {"type": "structural_tag"}},
                        "format")):
        with pytest.raises(Refused) as caught:
            post(structured, bad)
        assert caught.value.status == 400
        assert words in caught.value.message
        assert "Check failed" not in caught.value.message


def test_completions_take_a_schema(structured):
    answer = post(structured, {"prompt": "A cat: ",
                               "guided_json": SCHEMAS["person"]},
                  "/v1/completions")
    check(answer["choices"][0]["text"], SCHEMAS["person"])


def test_a_stop_string_still_ends_the_text(structured):
    answer = choice(structured, **with_schema(SCHEMAS["person"]), stop=["age"])
    assert "age" not in answer["message"]["content"]
    assert answer["finish_reason"] == "stop"


def test_two_constraints_are_refused(structured):
    with pytest.raises(Refused) as refused:
        choice(structured, response_format={"type": "json_object"},
               guided_regex="a")
    assert refused.value.param == "guided_regex"
    with pytest.raises(Refused) as refused:
        choice(structured, guided_regex="a", allowed_token_ids=[5])
    assert refused.value.param == "allowed_token_ids"


def deep(levels):
    return '{"items":' * levels + "{}" + "}" * levels


HOSTILE = {
    "deep": {"guided_json": deep(60)},
    "deeper": {"guided_json": deep(20000)},
    "deep_text": {"guided_json": '{"items":' * 5000},
    "wide": with_schema({"type": "object", "properties": {
        f"p{i}": {"type": "string"} for i in range(20000)}}),
    "exponential": with_schema({
        "$defs": {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2}
                  for i in range(40)} | {"a40": {"type": "string"}},
        "$ref": "#/$defs/a0"}),
    "branches": with_schema({"allOf": [
        {"anyOf": [{"minLength": i}, {"maxLength": i + 5}]}
        for i in range(30)]}),
    "long_string": with_schema({"type": "string", "maxLength": 99999999}),
    "many_values": with_schema({"enum": list(range(30000))}),
    "nested_counts": {"guided_regex": "((((a{900}b?){900}c?){900}d?){900})"},
    "many_rules": {"grammar": "root ::= " + " | ".join(
        f"r{i}" for i in range(5000)) + "\n" + "\n".join(
        f"r{i} ::= r{(i + 1) % 5000} \"x\"" for i in range(5000))},
    "open_class": {"grammar": "root ::= [a"},
    "left_recursion": {"grammar": "root ::= root"},
    "zero": {"guided_regex": "a\0b"},
    "too_long": {"guided_regex": "a" * 300000},
    "token": {"grammar": "root ::= <[5]>"},
    "tag": {"structured_outputs": {"structural_tag": {"format": {"type": "x"}}}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_end_in_bounded_time(structured, name):
    begun = time.monotonic()
    try:
        choice(structured, **HOSTILE[name], max_tokens=4)
    except Refused as refused:
        assert refused.status == 400, refused
    assert time.monotonic() - begun < 30
    # The server is as it was.
    assert choice(structured, guided_choice=["ok"])["message"]["content"] == "ok"


def test_the_same_bits_with_draft_tokens(structured):
    bodies = [dict(**with_schema(SCHEMAS[name]), temperature=t, seed=11)
              for name in ("person", "pydantic", "recursive_list")
              for t in (0, 1)]
    drafted = [choice(structured, **body) for body in bodies]
    with start(MODEL, "--speculative-method", "none") as plain:
        assert [choice(plain, **body) for body in bodies] == drafted


def test_text_without_a_choice_is_drafted(structured):
    schema = {"type": "object", "additionalProperties": False,
              "properties": {
                  "temperature_of_the_water": {"type": "integer",
                                               "minimum": 0, "maximum": 99},
                  "explanation": {"const": "The water is boiling because "
                                           "someone has lit a fire below."}},
              "required": ["temperature_of_the_water", "explanation"]}
    # Nothing is long enough to be looked up in prompt or answer.
    with start(MODEL, "--prompt-lookup-min", "64",
               "--prompt-lookup-max", "64") as drafts, \
            start(MODEL, "--speculative-method", "none") as plain:
        def answers(of):
            texts = [choice(of, **with_schema(schema), temperature=t, seed=s)
                     ["message"]["content"] for t in (0, 1) for s in (3, 4)]
            steps = sum(of.metric("millrace_step_tokens_count").values())
            return texts, steps

        texts, few = answers(drafts)
        same, many = answers(plain)
        for text in texts:
            check(text, schema)
        assert texts == same
        assert sum(drafts.metric(
            "millrace_spec_decode_num_accepted_tokens_total").values()) > 0
        print(f"steps: {few:.0f} with, {many:.0f} without")
        assert few < many
