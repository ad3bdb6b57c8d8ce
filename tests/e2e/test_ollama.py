"""Ollama's Python client, unmodified, against the real server."""
import re

import ollama
import pytest

from conftest import MODEL_ID, start
from test_tools import CALL, COPYING, WEATHER

ASK = [{"role": "user", "content": "Which city is the capital of Japan?"}]
COLD = {"temperature": 0, "num_predict": 32}


@pytest.fixture(scope="module")
def plain(server):
    return ollama.Client(host=server.url)


@pytest.fixture(scope="module")
def copier():
    with start("--chat-template", COPYING, "--reasoning-parser",
               "think") as server:
        yield ollama.Client(host=server.url)


def test_chat(plain):
    answer = plain.chat(model=MODEL_ID, messages=ASK, options=COLD)
    assert "Tokyo" in answer.message.content and answer.done
    assert answer.done_reason == "stop" and answer.created_at
    assert answer.prompt_eval_count > 0 and answer.eval_count > 0
    assert answer.total_duration >= answer.eval_duration > 0
    chunks = list(plain.chat(model=MODEL_ID + ":latest", messages=ASK,
                             options=COLD, stream=True))
    assert "".join(c.message.content for c in chunks) == answer.message.content
    assert [c.done for c in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].eval_count == answer.eval_count
    cut = plain.chat(model=MODEL_ID, messages=ASK,
                     options={**COLD, "stop": ["Tokyo"]})
    assert cut.message.content == answer.message.content.split("Tokyo")[0]


def test_generate(plain):
    answer = plain.generate(model=MODEL_ID, prompt=ASK[0]["content"],
                            options=COLD)
    assert "Tokyo" in answer.response
    chat = plain.chat(model=MODEL_ID, messages=ASK, options=COLD)
    assert answer.response == chat.message.content
    raw = plain.generate(model=MODEL_ID, prompt="The capital of France is",
                         raw=True, options={"temperature": 0, "num_predict": 4})
    assert "Paris" in raw.response and raw.done_reason == "length"
    text = "".join(c.response for c in plain.generate(
        model=MODEL_ID, prompt=ASK[0]["content"], options=COLD, stream=True))
    assert text == answer.response
    assert plain.generate(model=MODEL_ID).done_reason == "load"


def test_a_loop_of_tools(copier):
    messages = [{"role": "user", "content": "One call.\n" + CALL}]
    ask = dict(model=MODEL_ID, tools=[WEATHER],
               options={"temperature": 0, "num_predict": 120})
    answer = copier.chat(messages=messages, **ask)
    (call,) = answer.message.tool_calls
    assert call.function.name == "get_weather"
    assert call.function.arguments == {"city": "Paris"}
    assert answer.message.content == "One call."
    calls = [call for chunk in copier.chat(messages=messages, stream=True, **ask)
             for call in chunk.message.tool_calls or []]
    assert calls == [call]
    messages += [answer.message, {"role": "tool", "content": "It is sunny.",
                                  "tool_name": "get_weather"}]
    assert copier.chat(messages=messages,
                       **ask).message.content == "It is sunny."
    thinking = copier.chat(
        model=MODEL_ID, options=ask["options"], messages=[
            {"role": "user", "content": "<think>Hm.</think>\n\nYes."}])
    assert thinking.message.thinking == "Hm."
    assert thinking.message.content == "Yes."


def test_models(plain):
    (model,) = plain.list().models
    assert model.model == MODEL_ID and model.size > 0
    assert re.fullmatch("[0-9a-f]{64}", model.digest)
    assert plain.list().models[0].digest == model.digest
    assert model.details.family == "llama"
    assert model.details.quantization_level == "Q4_1"
    shown = plain.show(MODEL_ID)
    assert "completion" in shown.capabilities and "im_start" in shown.template
    assert shown.modelinfo["general.architecture"] == "llama"
    (running,) = plain.ps().models
    assert running.context_length == 8192


def test_errors(plain):
    with pytest.raises(ollama.ResponseError) as caught:
        plain.chat(model="nobody", messages=ASK)
    assert caught.value.status_code == 404 and "nobody" in caught.value.error
    with pytest.raises(ollama.ResponseError) as caught:
        plain.chat(model=MODEL_ID, messages=ASK, options={"temperature": 9})
    assert caught.value.status_code == 400
    assert "temperature" in caught.value.error
