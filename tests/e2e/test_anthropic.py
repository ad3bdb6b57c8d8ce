"""Anthropic's Python SDK, unmodified, against the real server."""
import datetime
import json
import urllib.request

import anthropic
import pytest

from conftest import MODEL_ID, start
from test_tools import CALL, COPYING

ASK = [{"role": "user", "content": "Which city is the capital of Japan?"}]
WEATHER = {"name": "get_weather", "description": "The weather of a city",
           "input_schema": {"type": "object", "properties": {
               "city": {"type": "string"}}, "required": ["city"]}}


def sdk(server, **fields):
    return anthropic.Anthropic(base_url=server.url, max_retries=0, timeout=120,
                               **{"api_key": "none", **fields})


@pytest.fixture(scope="module")
def plain(server):
    return sdk(server)


@pytest.fixture(scope="module")
def copier():
    with start("--chat-template", COPYING, "--reasoning-parser",
               "think") as server:
        yield sdk(server)


def test_a_message(plain):
    ask = dict(model=MODEL_ID, messages=ASK, extra_body={"temperature": 0}, max_tokens=32)
    message = plain.messages.create(**ask)
    assert message.type == "message" and message.role == "assistant"
    assert message.id.startswith("msg_") and message.model == MODEL_ID
    (block,) = message.content
    assert block.type == "text" and "Tokyo" in block.text
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens > 0
    briefed = plain.messages.create(
        **{**ask, "system": [{"type": "text", "text": "Be brief."}]})
    # The template's own system prompt is longer.
    assert (briefed.usage.input_tokens + briefed.usage.cache_read_input_tokens
            < message.usage.input_tokens)

    cut = plain.messages.create(**{**ask, "stop_sequences": ["Tokyo"]})
    assert cut.stop_reason == "stop_sequence" and cut.stop_sequence == "Tokyo"
    short = plain.messages.create(**{**ask, "max_tokens": 2})
    assert short.stop_reason == "max_tokens"
    count = plain.messages.count_tokens(model=MODEL_ID, messages=ASK)
    assert count.input_tokens == (message.usage.input_tokens
                                  + message.usage.cache_read_input_tokens)


def test_a_last_message_of_the_assistant_goes_on(plain):
    begun = {"role": "assistant", "content": "The capital of Japan is the"}
    ask = dict(model=MODEL_ID, max_tokens=16, extra_body={"temperature": 0})
    message = plain.messages.create(messages=[*ASK, begun], **ask)
    (block,) = message.content
    assert block.text.startswith(" city of Tokyo"), block.text
    in_blocks = {**begun, "content": [{"type": "text",
                                       "text": begun["content"]}]}
    again = plain.messages.create(messages=[*ASK, in_blocks], **ask)
    assert again.content[0].text == block.text


def test_a_stream_is_the_message_in_pieces(plain):
    ask = dict(model=MODEL_ID, messages=ASK, extra_body={"temperature": 0}, max_tokens=32)
    whole = plain.messages.create(**ask)
    events = []
    with plain.messages.stream(**ask) as stream:
        for event in stream:
            events.append(event.type)
        final = stream.get_final_message()
    assert final.content[0].text == whole.content[0].text
    assert final.stop_reason == "end_turn"
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert events[0] == "message_start" and events[-1] == "message_stop"
    assert events.count("content_block_start") == 1


def test_a_loop_of_tools(copier):
    messages = [{"role": "user", "content": "One call.\n" + CALL}]
    ask = dict(model=MODEL_ID, tools=[WEATHER], extra_body={"temperature": 0}, max_tokens=120)
    message = copier.messages.create(messages=messages, **ask)
    assert message.stop_reason == "tool_use"
    text, use = message.content
    assert text.text == "One call."
    assert use.type == "tool_use" and use.name == "get_weather"
    assert use.input == {"city": "Paris"} and use.id.startswith("toolu_")

    with copier.messages.stream(messages=messages, **ask) as stream:
        deltas = [event.partial_json for event in stream
                  if event.type == "input_json"]
        streamed = stream.get_final_message()
    assert json.loads("".join(deltas)) == use.input
    assert streamed.content[1].input == use.input

    messages += [
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": use.id,
             "content": [{"type": "text", "text": "It is sunny."}]}]}]
    answer = copier.messages.create(messages=messages, **ask)
    assert answer.content[0].text == "It is sunny."
    forced = copier.messages.create(
        messages=messages[:1], tool_choice={"type": "tool",
                                            "name": "get_weather"}, **ask)
    assert forced.content[0].name == "get_weather"


def test_thinking(copier):
    ask = dict(model=MODEL_ID, extra_body={"temperature": 0}, max_tokens=60, messages=[
        {"role": "user", "content": "<think>Paris?</think>\n\nIt is Paris."}])
    message = copier.messages.create(**ask)
    assert [b.type for b in message.content] == ["thinking", "text"]
    assert message.content[0].thinking == "Paris?"
    with copier.messages.stream(**ask) as stream:
        assert stream.get_final_message().content[0].thinking == "Paris?"


def test_thinking_has_a_budget(copier):
    ask = dict(model=MODEL_ID, extra_body={"temperature": 0}, max_tokens=60,
               messages=[{"role": "user", "content":
                          "<think>\nParis, Rome, Oslo, Bern.\n</think>\n\nIt is so."}])
    whole = copier.messages.create(
        thinking={"type": "enabled", "budget_tokens": 50}, **ask)
    cut = copier.messages.create(
        thinking={"type": "enabled", "budget_tokens": 2}, **ask)
    thoughts = [message.content[0].thinking for message in (whole, cut)]
    assert thoughts[0].startswith(thoughts[1])
    assert len(thoughts[1]) < len(thoughts[0])
    with pytest.raises(anthropic.BadRequestError) as caught:
        copier.messages.create(
            thinking={"type": "enabled", "budget_tokens": 0}, **ask)
    assert "budget_tokens" in str(caught.value)


def test_errors_are_anthropics(plain):
    ask = dict(model=MODEL_ID, messages=ASK, max_tokens=8)
    with pytest.raises(anthropic.NotFoundError) as caught:
        plain.messages.create(**{**ask, "model": "nobody"})
    assert caught.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError) as caught:
        plain.messages.create(**{**ask, "extra_body": {"temperature": 3.5}})
    assert caught.value.body["type"] == "error"
    assert "3.5" in caught.value.body["error"]["message"]
    with pytest.raises(anthropic.BadRequestError) as caught:
        plain.messages.create(**{**ask, "messages": [
            {"role": "user", "content": [{"type": "image", "source": {}}]}]})
    assert "image" in str(caught.value)
    with start("--api-key", "secret") as locked:
        with pytest.raises(anthropic.AuthenticationError):
            sdk(locked, api_key="wrong").messages.create(**ask)
        assert sdk(locked, api_key="secret").messages.count_tokens(
            model=MODEL_ID, messages=ASK).input_tokens > 0


def test_models_are_listed_in_pages():
    names = [MODEL_ID, "a/b", "c", "d"]
    with start("--served-model-name", "a/b,c,d") as server:
        client = sdk(server)
        listed = list(client.models.list())
        assert [each.id for each in listed] == names
        assert {each.type for each in listed} == {"model"}
        assert listed[0].display_name == MODEL_ID
        assert listed[0].lifecycle == "active"
        assert listed[0].max_input_tokens == 8192
        age = datetime.datetime.now(datetime.UTC) - listed[0].created_at
        assert datetime.timedelta() <= age < datetime.timedelta(minutes=10)
        for name in names:
            assert client.models.retrieve(name).id == name

        assert [each.id for each in client.models.list(limit=1)] == names
        page = client.models.list(limit=2)
        assert page.has_more and (page.first_id, page.last_id) == (
            MODEL_ID, "a/b")
        page = client.models.list(limit=2, after_id="a/b")
        assert not page.has_more and page.last_id == "d"
        page = client.models.list(limit=2, before_id="d")
        assert page.has_more and [each.id for each in page.data] == ["a/b", "c"]
        page = client.models.list(limit=2, before_id=MODEL_ID)
        assert page.data == [] and page.first_id is None

        for wrong, field in (({"limit": 0}, "limit"), ({"limit": 2000}, "limit"),
                             ({"after_id": "e"}, "after_id"),
                             ({"after_id": "c", "before_id": "d"}, "before_id")):
            with pytest.raises(anthropic.BadRequestError, match=field) as caught:
                client.models.list(**wrong)
            assert caught.value.body["type"] == "error"
        with pytest.raises(anthropic.NotFoundError) as caught:
            client.models.retrieve("nobody")
        assert caught.value.body["error"]["type"] == "not_found_error"
        # Others get OpenAI's list.
        with urllib.request.urlopen(server.url + "/v1/models") as reply:
            assert json.load(reply)["object"] == "list"


@pytest.mark.parametrize("field", ["output_config", "output_format"])
def test_text_is_held_to_a_schema(plain, field):
    form = {"type": "json_schema", "schema": {
        "type": "object", "properties": {"n": {"type": "integer",
                                               "minimum": 3, "maximum": 5}},
        "required": ["n"], "additionalProperties": False}}
    body = {field: {"format": form} if field == "output_config" else form,
            "temperature": 0}
    ask = dict(model=MODEL_ID, max_tokens=100, messages=ASK)
    message = plain.messages.create(extra_body=body, **ask)
    assert json.loads(message.content[0].text)["n"] in (3, 4, 5)
    for bad in ("json", {"type": "text"}, {"type": "json_schema"}):
        body = {field: {"format": bad} if field == "output_config" else bad}
        with pytest.raises(anthropic.BadRequestError, match=field):
            plain.messages.create(extra_body=body, **ask)
