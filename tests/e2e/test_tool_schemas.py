"""Arguments of a call that must come fit the schema of its tool, even from a
model that would write something else."""
import json

import jsonschema
import openai
import pytest

from conftest import MODEL_ID, start

ORDER = {
    "type": "object", "additionalProperties": False,
    "properties": {
        "size": {"enum": ["small", "large"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 99},
        "address": {"$ref": "#/$defs/address"}},
    "required": ["size", "count", "address"],
    "$defs": {"address": {
        "type": "object", "additionalProperties": False,
        "properties": {"street": {"type": "string", "maxLength": 12},
                       "floor": {"type": ["integer", "null"],
                                 "minimum": 0, "maximum": 9}},
        "required": ["street", "floor"]}}}
PAINT = {
    "type": "object", "additionalProperties": False,
    "properties": {"colours": {
        "type": "array", "items": {"$ref": "#/$defs/address"},
        "minItems": 1, "maxItems": 3}},
    "required": ["colours"],
    "$defs": {"address": {"enum": ["red", "blue"]}}}  # not the one of ORDER
SCHEMAS = {"order": ORDER, "paint": PAINT, "now": {"maxProperties": 0}}
ASK = [{"role": "user", "content": "Tell me a story about a mill."}]
NAMED = {"type": "function", "function": {"name": "paint"}}
CHOICES = [(["order", "paint", "now"], "required"), (["order"], "required"),
           (["order", "paint", "now"], NAMED)]


def tool(name):
    function = {"name": name, "parameters": SCHEMAS[name]}
    if name == "now":
        del function["parameters"]
    return {"type": "function", "function": function}


def ask(client, names, tool_choice, **fields):
    return client.chat.completions.create(
        model=MODEL_ID, messages=ASK, max_tokens=300,
        tools=[tool(name) for name in names], tool_choice=tool_choice,
        **fields)


def check(choice, names, tool_choice):
    assert choice.finish_reason == "tool_calls"
    assert not choice.message.content
    (call,) = choice.message.tool_calls
    name = call.function.name
    assert name in (["paint"] if tool_choice == NAMED else names)
    jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[name])
    return call


def connect(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none",
                         max_retries=0, timeout=120)


@pytest.fixture(scope="module")
def held(client):
    """Skips where the server was built without structured output."""
    try:
        client.chat.completions.create(
            model=MODEL_ID, messages=ASK, max_tokens=1,
            response_format={"type": "json_object"})
    except openai.APIStatusError as error:
        if "xgrammar" in error.message:
            pytest.skip("this build has no structured output")
        raise
    return client


@pytest.mark.parametrize("temperature", [0, 1, 2])
@pytest.mark.parametrize("names,tool_choice", CHOICES)
def test_arguments_fit_the_schema(held, names, tool_choice, temperature):
    for seed in range(1 if temperature == 0 else 5):
        fields = dict(temperature=temperature, seed=seed)
        choice = ask(held, names, tool_choice, **fields).choices[0]
        call = check(choice, names, tool_choice)
        streamed = "".join(
            piece.function.arguments or ""
            for chunk in ask(held, names, tool_choice, stream=True, **fields)
            for piece in chunk.choices[0].delta.tool_calls or [])
        assert streamed == call.function.arguments


def test_every_completion_of_a_request_fits(held):
    names, tool_choice = CHOICES[0]
    answer = ask(held, names, tool_choice, temperature=2, seed=1, n=4)
    assert len(answer.choices) == 4
    for choice in answer.choices:
        check(choice, names, tool_choice)


@pytest.mark.parametrize("parser", [
    "llama3_json", "mistral", "granite", "deepseek_v3", "deepseek_v31",
    "harmony"])
def test_each_format_with_json_arguments(held, parser):
    with start("--tool-call-parser", parser) as server:
        client = connect(server)
        for names, tool_choice in CHOICES:
            for temperature in (0, 2):
                choice = ask(client, names, tool_choice, seed=7,
                             temperature=temperature).choices[0]
                check(choice, names, tool_choice)


@pytest.mark.parametrize("parser", ["pythonic", "gemma"])
def test_other_formats_run_freely(held, parser):
    with start("--tool-call-parser", parser) as server:
        choice = ask(connect(server), ["order"], "required", temperature=0)
        assert choice.choices[0].finish_reason in ("tool_calls", "length",
                                                   "stop")


def refused(client, tools, tool_choice):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model=MODEL_ID, messages=ASK, max_tokens=20, tools=tools,
            tool_choice=tool_choice)
    return caught.value


def test_a_schema_that_is_not_honoured_is_refused_at_its_tool(held):
    bad = {"type": "function", "function": {
        "name": "f", "parameters": {"type": "object", "properties": {
            "x": {"not": {"type": "string"}}}}}}
    place = "tools[1].function.parameters"
    named = {"type": "function", "function": {"name": "f"}}
    for tool_choice in ("required", named):
        error = refused(held, [tool("order"), bad], tool_choice)
        assert error.param == place
        assert place in error.message and "'not'" in error.message
    # Where no call must come, or a call of another tool, it harms nobody.
    for tool_choice in ("auto", {"type": "function",
                                 "function": {"name": "order"}}):
        held.chat.completions.create(
            model=MODEL_ID, messages=ASK, max_tokens=5,
            tools=[tool("order"), bad], tool_choice=tool_choice)


def test_arguments_are_an_object(client):
    bad = {"type": "function", "function": {
        "name": "f", "parameters": {"type": "string"}}}
    error = refused(client, [bad], "auto")
    assert error.param == "tools[0].function.parameters.type"
