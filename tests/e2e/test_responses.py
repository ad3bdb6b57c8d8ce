"""OpenAI's Responses through openai-python, unmodified."""
import json

import openai
import pytest

from conftest import MODEL_ID, start
from test_tools import CALL, COPYING

ASK = "Which city is the capital of Japan?"
WEATHER = {"type": "function", "name": "get_weather", "strict": False,
           "parameters": {"type": "object", "properties": {
               "city": {"type": "string"}}}}


@pytest.fixture(scope="module")
def copier():
    with start("--chat-template", COPYING, "--reasoning-parser",
               "think") as server:
        yield openai.OpenAI(base_url=server.url + "/v1", api_key="none",
                            max_retries=0, timeout=120)


def test_a_response(client):
    response = client.responses.create(
        model=MODEL_ID, input=ASK, temperature=0, max_output_tokens=32,
        metadata={"k": "v"})
    assert response.id.startswith("resp_") and response.status == "completed"
    assert "Tokyo" in response.output_text
    assert response.usage.total_tokens == (
        response.usage.input_tokens + response.usage.output_tokens)
    assert response.metadata == {"k": "v"}
    chat = client.chat.completions.create(
        model=MODEL_ID, messages=[{"role": "user", "content": ASK}],
        temperature=0, max_tokens=32)
    assert chat.choices[0].message.content == response.output_text
    cut = client.responses.create(model=MODEL_ID, input=ASK, temperature=0,
                                  max_output_tokens=2)
    assert cut.status == "incomplete"
    assert cut.incomplete_details.reason == "max_output_tokens"


def test_a_stream_of_typed_events(client):
    ask = dict(model=MODEL_ID, input=ASK, temperature=0, max_output_tokens=32)
    whole = client.responses.create(**ask)
    with client.responses.stream(**ask) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == whole.output_text
    names = [event.type for event in events]
    assert names[:4] == ["response.created", "response.in_progress",
                         "response.output_item.added",
                         "response.content_part.added"]
    assert names[-4:] == ["response.output_text.done",
                          "response.content_part.done",
                          "response.output_item.done", "response.completed"]
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert "".join(e.delta for e in events
                   if e.type == "response.output_text.delta") == (
                       whole.output_text)
    assert client.responses.retrieve(final.id).output_text == whole.output_text


def test_probabilities(client):
    ask = dict(model=MODEL_ID, input=ASK, temperature=0, max_output_tokens=8,
               include=["message.output_text.logprobs",
                        "reasoning.encrypted_content"], top_logprobs=2)
    chat = client.chat.completions.create(
        model=MODEL_ID, messages=[{"role": "user", "content": ASK}],
        temperature=0, max_tokens=8, logprobs=True, top_logprobs=2)
    expected = [(each.token, each.logprob, len(each.top_logprobs))
                for each in chat.choices[0].logprobs.content]

    def told(tokens):
        return [(each.token, each.logprob, len(each.top_logprobs))
                for each in tokens]

    whole = client.responses.create(**ask)
    assert told(whole.output[0].content[0].logprobs) == expected
    with client.responses.stream(**ask) as stream:
        pieces = [told(event.logprobs) for event in stream
                  if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert sum(pieces, []) == expected
    assert told(final.output[0].content[0].logprobs) == expected
    with pytest.raises(openai.BadRequestError, match="include"):
        client.responses.create(model=MODEL_ID, input=ASK, include=["moods"])


def test_kept_responses(client):
    first = client.responses.create(
        model=MODEL_ID, input="My name is Ann.", instructions="Be brief.",
        temperature=0, max_output_tokens=16)
    second = client.responses.create(
        model=MODEL_ID, input="What is my name?", temperature=0,
        previous_response_id=first.id, max_output_tokens=16)
    alone = client.responses.create(
        model=MODEL_ID, input="What is my name?", temperature=0,
        max_output_tokens=16)
    assert second.usage.input_tokens > (alone.usage.input_tokens
                                        + first.usage.output_tokens)
    assert client.responses.retrieve(second.id).output == second.output
    (item,) = client.responses.input_items.list(first.id).data
    assert item.content[0].text == "My name is Ann."
    client.responses.delete(first.id)
    for call in (lambda: client.responses.retrieve(first.id),
                 lambda: client.responses.create(
                     model=MODEL_ID, input="x", previous_response_id=first.id)):
        with pytest.raises(openai.NotFoundError) as caught:
            call()
        assert caught.value.code == "response_not_found"
    unkept = client.responses.create(model=MODEL_ID, input="Hi", store=False,
                                     max_output_tokens=4)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unkept.id)


def test_a_loop_of_tools(copier):
    ask = dict(model=MODEL_ID, tools=[WEATHER], temperature=0,
               max_output_tokens=120)
    first = copier.responses.create(input="One call.\n" + CALL, **ask)
    message, call = first.output
    assert message.content[0].text == "One call."
    assert call.type == "function_call" and call.name == "get_weather"
    assert json.loads(call.arguments) == {"city": "Paris"}
    with copier.responses.stream(input="One call.\n" + CALL, **ask) as stream:
        deltas = [event.delta for event in stream if
                  event.type == "response.function_call_arguments.delta"]
        assert stream.get_final_response().output[1].arguments == call.arguments
    assert "".join(deltas) == call.arguments and len(deltas) > 1
    result = {"type": "function_call_output", "call_id": call.call_id,
              "output": "It is sunny."}
    second = copier.responses.create(
        input=[result], previous_response_id=first.id, **ask)
    assert second.output_text == "It is sunny."
    by_hand = copier.responses.create(
        input=[{"role": "user", "content": "x"}, *[
            item.model_dump(exclude_none=True) for item in first.output],
               result], **ask)
    assert by_hand.output_text == "It is sunny."


def test_reasoning_items(copier):
    ask = dict(model=MODEL_ID, temperature=0, max_output_tokens=60,
               input="<think>Paris?</think>\n\nIt is Paris.")
    response = copier.responses.create(**ask)
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.output[0].content[0].text == "Paris?"
    assert response.usage.output_tokens_details.reasoning_tokens > 0
    with copier.responses.stream(**ask) as stream:
        thought = "".join(event.delta for event in stream
                          if event.type == "response.reasoning_text.delta")
    assert thought == "Paris?"


@pytest.mark.parametrize("text", [
    "One call.\n" + CALL, "<think>Paris?</think>\n\nIt is Paris."])
def test_probabilities_are_of_the_text_alone(copier, text):
    ask = dict(model=MODEL_ID, input=text, tools=[WEATHER], temperature=0,
               max_output_tokens=120, include=["message.output_text.logprobs"])

    def told(response):
        return [(item.type, [
            [each.token for each in part.logprobs] for part in item.content
        ] if item.type == "message" else None) for item in response.output]

    whole = copier.responses.create(**ask)
    with copier.responses.stream(**ask) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert told(final) == told(whole)
    assert final.output_text == whole.output_text
    message = next(item for item in whole.output if item.type == "message")
    tokens = "".join(each.token for each in message.content[0].logprobs)
    assert message.content[0].text in tokens
    assert "Paris?" not in tokens and "think" not in tokens
    assert "get_weather" not in tokens


def test_errors(client):
    for fields, param in (({"background": True}, "background"),
                          ({"input": [{"type": "item_reference"}]}, "input[0]"),
                          ({"tools": [{"type": "web_search"}]},
                           "tools[0].type")):
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(**{"model": MODEL_ID, "input": "x",
                                       **fields})
        assert caught.value.param == param


def test_tokens_are_counted_without_an_answer(client):
    ask = dict(model=MODEL_ID, input=ASK, instructions="Be brief.")
    count = client.responses.input_tokens.count(**ask)
    assert count.object == "response.input_tokens"
    first = client.responses.create(max_output_tokens=2, **ask)
    assert count.input_tokens == first.usage.input_tokens
    more = dict(model=MODEL_ID, input="And of Peru?",
                previous_response_id=first.id)
    count = client.responses.input_tokens.count(**more)
    assert count.input_tokens == client.responses.create(
        max_output_tokens=2, **more).usage.input_tokens > 0
    with pytest.raises(openai.NotFoundError):
        client.responses.input_tokens.count(
            model=MODEL_ID, input="Hi", previous_response_id="resp_none")
