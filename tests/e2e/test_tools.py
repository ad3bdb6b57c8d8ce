"""Tools and reasoning through openai-python, unmodified. The model says what
the last message says (copying.jinja), so that a test knows its calls."""
import json
import pathlib

import openai
import pytest

from conftest import MODEL_ID, start

COPYING = pathlib.Path(__file__).with_name("copying.jinja")
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string"}}, "required": ["city"]}}}
NOW = {"type": "function", "function": {"name": "now"}}
CALL = ('<tool_call>\n{"name": "get_weather", "arguments": '
        '{"city": "Paris"}}\n</tool_call>')
TWO = CALL + '\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


def user(text):
    return {"role": "user", "content": text}


@pytest.fixture(scope="module")
def copier():
    with start("--chat-template", COPYING, "--reasoning-parser",
               "think") as server:
        yield openai.OpenAI(base_url=server.url + "/v1", api_key="none",
                            max_retries=0, timeout=120)


def ask(client, *messages, **fields):
    fields = {"tools": [WEATHER, NOW], "temperature": 0, "max_tokens": 120,
              **fields}
    return client.chat.completions.create(
        model=MODEL_ID, messages=list(messages), **fields)


def test_a_whole_loop_of_tools(copier):
    messages = [user(CALL)]
    answer = ask(copier, *messages)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls
    assert call.type == "function" and call.id.startswith("call_")
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}

    messages.append(choice.message)
    messages.append({"role": "tool", "tool_call_id": call.id,
                     "content": "It is sunny in Paris."})
    answer = ask(copier, *messages)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content == "It is sunny in Paris."
    assert answer.choices[0].message.tool_calls is None


def test_streamed_calls_are_the_whole_ones(copier):
    whole = ask(copier, user("Two calls.\n" + TWO)).choices[0].message
    assert whole.content == "Two calls."
    assert [c.function.name for c in whole.tool_calls] == ["get_weather", "now"]
    content, calls, num_pieces, finish = "", {}, 0, None
    for chunk in ask(copier, user("Two calls.\n" + TWO), stream=True):
        choice = chunk.choices[0]
        content += choice.delta.content or ""
        finish = choice.finish_reason or finish
        for piece in choice.delta.tool_calls or []:
            num_pieces += 1
            if piece.id:
                assert piece.type == "function"
                calls[piece.index] = [piece.id, piece.function.name, ""]
            calls[piece.index][2] += piece.function.arguments or ""
    assert finish == "tool_calls" and content == "Two calls."
    assert [calls[0][1], calls[1][1]] == ["get_weather", "now"]
    assert [calls[i][2] for i in (0, 1)] == [
        c.function.arguments for c in whole.tool_calls]
    assert calls[0][0] != calls[1][0]
    assert num_pieces > 3  # the arguments come in pieces


def test_one_call_at_a_time(copier):
    message = ask(copier, user(TWO), parallel_tool_calls=False)
    (call,) = message.choices[0].message.tool_calls
    assert call.function.name == "get_weather"


def test_tool_choice(copier):
    none = ask(copier, user(CALL), tool_choice="none").choices[0]
    assert none.message.tool_calls is None and none.message.content == CALL
    named = {"type": "function", "function": {"name": "get_weather"}}
    choice = ask(copier, user(CALL), tool_choice=named).choices[0]
    (call,) = choice.message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    any_call = ask(copier, user(CALL), tool_choice="required").choices[0]
    assert any_call.message.tool_calls[0].function.name == "get_weather"


def test_bad_tools_are_refused(copier):
    for fields, param in (
            ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
            ({"tools": [{"type": "function", "function": {"name": "a b"}}]},
             "tools[0].function.name"),
            ({"tool_choice": {"type": "function",
                              "function": {"name": "other"}}}, "tool_choice"),
            ({"tool_choice": "required", "tools": []}, "tool_choice")):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(copier, user("Hi"), **fields)
        assert caught.value.param == param
    with pytest.raises(openai.BadRequestError) as caught:
        ask(copier, user("Hi"), {"role": "assistant", "tool_calls": [
            {"id": "1", "type": "function",
             "function": {"name": "now", "arguments": "{"}}]})
    assert caught.value.param == "messages[1].tool_calls[0].function.arguments"


def test_reasoning_is_apart(copier):
    text = "<think>\nParis is in France.\n</think>\n\nIt is Paris."
    answer = ask(copier, user(text), tools=[])
    message = answer.choices[0].message
    assert message.content == "It is Paris."
    assert message.reasoning_content == "Paris is in France."
    assert message.reasoning == "Paris is in France."
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0
    thought, content = "", ""
    for chunk in ask(copier, user(text), tools=[], stream=True):
        delta = chunk.choices[0].delta
        thought += getattr(delta, "reasoning_content", None) or ""
        content += delta.content or ""
    assert (thought, content) == ("Paris is in France.", "It is Paris.")
    plain = ask(copier, user(text), tools=[],
                extra_body={"reasoning_format": "none"})
    assert plain.choices[0].message.content == text
    begun = ask(copier, user("I think.</think>Yes."), tools=[],
                extra_body={"chat_template_kwargs": {"enable_thinking": True}})
    assert begun.choices[0].message.content == "Yes."
    assert begun.choices[0].message.reasoning_content.endswith("I think.")


THOUGHT = ("<think>\nParis is in France, and Rome is in Italy, and Oslo is in "
           "Norway.\n</think>\n\nIt is Paris.")
BUDGET_FIELDS = ["thinking_token_budget", "thinking_budget_tokens",
                 "reasoning_budget_tokens"]


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("field", BUDGET_FIELDS)
def test_reasoning_has_a_budget(copier, field, begun):
    def think(budget, **fields):
        return ask(copier, user(THOUGHT), tools=[], extra_body={
            field: budget,
            "chat_template_kwargs": {"enable_thinking": begun}}, **fields)
    tags = 12  # at most; <think> and </think> are no special tokens here
    whole = think(-1)
    used = whole.usage.completion_tokens_details.reasoning_tokens
    assert used > 10
    assert think(1000).choices == whole.choices
    for budget in (0, 5):
        cut = think(budget)
        message = cut.choices[0].message
        spent = cut.usage.completion_tokens_details.reasoning_tokens
        assert spent <= budget + tags
        assert message.content or not begun  # the model may say no more
        thought = getattr(message, "reasoning_content", None) or ""
        assert whole.choices[0].message.reasoning_content.startswith(thought)
        assert len(thought) < len(whole.choices[0].message.reasoning_content)
        content = "".join(
            chunk.choices[0].delta.content or ""
            for chunk in think(budget, stream=True) if chunk.choices)
        assert content == message.content


def test_a_budget_is_a_count(copier):
    for field in BUDGET_FIELDS:
        with pytest.raises(openai.BadRequestError) as caught:
            ask(copier, user("Hi"), tools=[], extra_body={field: -2})
        assert caught.value.param == field


@pytest.mark.parametrize("temperature", [0, 1, 2])
def test_a_schema_holds_what_comes_behind_reasoning(copier, temperature):
    """The prompt has begun to reason, so that the completion goes on with it."""
    schema = {"type": "object", "additionalProperties": False,
              "properties": {"city": {"enum": ["Paris", "Rome"]}},
              "required": ["city"]}
    fields = dict(
        tools=[], temperature=temperature, seed=5, max_tokens=200,
        response_format={"type": "json_schema", "json_schema": {
            "name": "city", "schema": schema}},
        extra_body={"chat_template_kwargs": {"enable_thinking": True},
                    "thinking_token_budget": 10})
    answer = ask(copier, user(THOUGHT), **fields)
    choice = answer.choices[0]
    assert choice.finish_reason == "stop"
    assert json.loads(choice.message.content)["city"] in ("Paris", "Rome")
    assert choice.message.reasoning_content
    assert answer.usage.completion_tokens_details.reasoning_tokens >= 1
    content = "".join(chunk.choices[0].delta.content or ""
                      for chunk in ask(copier, user(THOUGHT), stream=True,
                                       **fields))
    assert content == choice.message.content


def test_a_template_without_tools_is_told_of_them(client):
    """The default model's own template: the tools become part of the text."""
    def prompt_tokens(**fields):
        return client.chat.completions.create(
            model=MODEL_ID, messages=[user("What is the weather in Paris?")],
            max_tokens=40, temperature=0, **fields)
    plain = prompt_tokens()
    told = prompt_tokens(tools=[WEATHER])
    assert told.usage.prompt_tokens > plain.usage.prompt_tokens + 60
    forced = prompt_tokens(tools=[WEATHER], tool_choice="required").choices[0]
    assert forced.message.tool_calls[0].function.name == "get_weather"
