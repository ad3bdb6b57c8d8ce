"""Arguments of calls fit the schema of their tool, even from a model that would
write something else: of calls that must come, and of those that begin in a
text."""
import json
import pathlib

import jsonschema
import openai
import pytest

from conftest import MODEL_ID, start

# The model says what the last message says.
COPYING = pathlib.Path(__file__).with_name("copying.jinja")

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


def check(choice, names, tool_choice, several=True):
    """A model may write calls until max_tokens comes. The last is then cut, and
    what there is of it is content where its name is not whole."""
    assert choice.finish_reason in ("tool_calls", "length")
    calls = choice.message.tool_calls
    if choice.finish_reason == "tool_calls":
        assert not choice.message.content
    is_cut = choice.finish_reason == "length" and not choice.message.content
    whole = calls[:-1] if is_cut else calls
    assert whole
    if tool_choice == NAMED or not several:
        assert len(calls) == 1
    for call in whole:
        name = call.function.name
        assert name in (["paint"] if tool_choice == NAMED else names)
        jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[name])
    return [(call.function.name, call.function.arguments) for call in calls]


def streamed_calls(chunks):
    calls = {}
    for chunk in chunks:
        for piece in chunk.choices[0].delta.tool_calls or []:
            name, arguments = calls.get(piece.index, ("", ""))
            calls[piece.index] = (name or piece.function.name,
                                  arguments + (piece.function.arguments or ""))
    return [calls[i] for i in range(len(calls))]


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
        calls = check(choice, names, tool_choice)
        assert calls == streamed_calls(
            ask(held, names, tool_choice, stream=True, **fields))


@pytest.mark.parametrize("temperature", [0, 2])
@pytest.mark.parametrize("names,tool_choice", CHOICES)
def test_one_call_where_several_may_not_come(held, names, tool_choice,
                                             temperature):
    fields = dict(temperature=temperature, seed=3, parallel_tool_calls=False)
    choice = ask(held, names, tool_choice, **fields).choices[0]
    assert choice.finish_reason == "tool_calls"
    (call,) = check(choice, names, tool_choice, several=False)
    assert [call] == streamed_calls(
        ask(held, names, tool_choice, stream=True, **fields))


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


@pytest.mark.parametrize("parser", ["pythonic", "gemma", "gemma4"])
def test_each_format_with_other_arguments(held, parser):
    """Calls are read whole, so that one that max_tokens cut is content."""
    with start("--tool-call-parser", parser) as server:
        client = connect(server)
        for names, tool_choice in CHOICES:
            for seed in range(4):
                choice = ask(client, names, tool_choice, seed=seed,
                             temperature=0 if seed == 0 else 2,
                             parallel_tool_calls=False).choices[0]
                if choice.finish_reason == "length":
                    continue
                check(choice, names, tool_choice, several=False)
        choice = ask(client, ["now"], "required", temperature=2,
                     parallel_tool_calls=False).choices[0]
        (call,) = check(choice, ["now"], "required", several=False)
        assert call == ("now", "{}")
        bad = {"type": "function", "function": {
            "name": "f", "parameters": {"type": "object", "properties": {
                "x": {"type": "string", "pattern": "^a+$"}}}}}
        error = refused(client, [tool("order"), bad], "required")
        assert error.param == "tools[1].function.parameters"
        assert "'pattern'" in error.message and "/properties/x" in error.message


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
    # Nor is one that is `strict`, where a call may come; another harms nobody.
    strict = {"type": "function",
              "function": {**bad["function"], "strict": True}}
    error = refused(held, [tool("order"), strict], "auto")
    assert error.param == place
    assert place in error.message and "'not'" in error.message
    for tools, tool_choice in (
            ([tool("order"), bad], "auto"),
            ([tool("order"), strict], "none"),
            ([tool("order"), strict], {"type": "function",
                                       "function": {"name": "order"}})):
        held.chat.completions.create(
            model=MODEL_ID, messages=ASK, max_tokens=5, tools=tools,
            tool_choice=tool_choice)


def test_strict_is_true_or_false(client):
    bad = {"type": "function", "function": {"name": "f", "strict": "yes"}}
    error = refused(client, [bad], "auto")
    assert error.param == "tools[0].function.strict"
    assert "true or false" in error.message


WRONG_CALLS = [
    # Arguments, a name and a key that no schema allows.
    '<tool_call>\n{"name": "paint", "arguments": {"colours": ["green", 5, '
    '"black"], "more": true}}\n</tool_call>',
    '<tool_call>\n{"name": "paintings", "arguments": {"colours": ["red"]}}\n'
    '</tool_call>',
    '<tool_call>\n{"name": "order", "arguments": {"size": "huge", "count": '
    '1000, "address": "Mill Lane 5"}}\n</tool_call>']


@pytest.fixture(scope="module")
def copier(held):
    with start("--chat-template", COPYING) as server:
        yield connect(server)


@pytest.mark.parametrize("before", ["", "I will.\n"])
@pytest.mark.parametrize("wrong", WRONG_CALLS)
def test_a_call_that_begins_in_a_text_fits(copier, wrong, before):
    names = ["order", "paint", "now"]
    fields = dict(messages=[{"role": "user", "content": before + wrong}],
                  model=MODEL_ID, max_tokens=300, temperature=0,
                  tools=[tool(name) for name in names],
                  parallel_tool_calls=False)
    choice = copier.chat.completions.create(**fields).choices[0]
    assert choice.message.content == (before.strip() or None)
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert call.function.name in names
    jsonschema.validate(json.loads(call.function.arguments),
                        SCHEMAS[call.function.name])
    assert streamed_calls(
        copier.chat.completions.create(stream=True, **fields)) == [
            (call.function.name, call.function.arguments)]
    # Beside a tool whose schema is not honoured, none is held.
    fields["tools"].append({"type": "function", "function": {
        "name": "f", "parameters": {"properties": {"x": {"not": {}}}}}})
    free = copier.chat.completions.create(**fields).choices[0]
    for other in free.message.tool_calls or []:
        assert ((other.function.name, other.function.arguments)
                != (call.function.name, call.function.arguments))


def test_a_text_without_a_call_is_free(copier):
    text = 'The tool_call {"name": "paint"} is <b>not</b> one.'
    answer = copier.chat.completions.create(
        model=MODEL_ID, messages=[{"role": "user", "content": text}],
        max_tokens=100, temperature=0, tools=[tool("paint")])
    assert answer.choices[0].message.content == text
    assert answer.choices[0].finish_reason == "stop"


def test_several_calls_in_a_text_fit(copier):
    text = "\n".join(WRONG_CALLS[:2])
    message = copier.chat.completions.create(
        model=MODEL_ID, messages=[{"role": "user", "content": text}],
        max_tokens=400, temperature=0,
        tools=[tool("paint"), tool("now")]).choices[0].message
    assert len(message.tool_calls) >= 2
    for call in message.tool_calls[:2]:
        jsonschema.validate(json.loads(call.function.arguments),
                            SCHEMAS[call.function.name])


def test_arguments_are_an_object(client):
    bad = {"type": "function", "function": {
        "name": "f", "parameters": {"type": "string"}}}
    error = refused(client, [bad], "auto")
    assert error.param == "tools[0].function.parameters.type"
