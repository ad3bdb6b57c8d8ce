"""Text by the Open Inference Protocol: generate and generate_stream."""
import json
import urllib.error
import urllib.request

import pytest

from conftest import MODEL_ID, REPO, start

PROMPT = "The capital of France is"
GREEDY = {"temperature": 0, "max_tokens": 8}


def post(server, path, body):
    request = urllib.request.Request(
        server.url + path, json.dumps(body).encode(),
        {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status, reply.headers, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def generate(server, body, end="generate"):
    status, _, text = post(server, f"/v2/models/{MODEL_ID}/{end}", body)
    return status, json.loads(text)


@pytest.fixture(scope="module")
def wanted(server, client):
    return client.completions.create(
        model=MODEL_ID, prompt=PROMPT, **GREEDY).choices[0].text


@pytest.mark.parametrize("fields", [
    {"parameters": GREEDY}, GREEDY,
    {"parameters": {"temperature": 0}, "max_tokens": 8}])
def test_the_text_is_that_of_completions(server, wanted, fields):
    status, reply = generate(server, {"text_input": PROMPT, **fields})
    assert status == 200
    assert reply == {"model_name": MODEL_ID, "model_version": "1",
                     "text_output": wanted}


def test_id_version_and_details(server, wanted):
    status, _, text = post(
        server, f"/v2/models/{MODEL_ID}/versions/1/generate",
        {"id": "a", "text_input": PROMPT,
         "parameters": {**GREEDY, "details": True}})
    reply = json.loads(text)
    assert (status, reply["id"], reply["text_output"]) == (200, "a", wanted)
    assert reply["details"] == {"finish_reason": "length",
                                "prompt_tokens": 5, "completion_tokens": 8}


def test_a_stop_string_is_told(server, wanted):
    stop = wanted.split()[1]
    _, reply = generate(server, {"text_input": PROMPT, "parameters": {
        **GREEDY, "stop": [stop], "details": True}})
    assert reply["text_output"] == wanted[:wanted.index(stop)]
    assert reply["details"]["finish_reason"] == "stop_sequence"


def test_a_stream_gives_the_text_in_pieces(server, wanted):
    status, headers, text = post(
        server, f"/v2/models/{MODEL_ID}/generate_stream",
        {"id": "b", "text_input": PROMPT, "parameters": GREEDY})
    assert status == 200
    assert headers["Content-Type"] == "text/event-stream; charset=utf-8"
    events = [json.loads(line[len("data: "):])
              for line in text.split("\n\n") if line]
    assert len(events) > 1
    assert {(e["id"], e["model_name"], e["model_version"])
            for e in events} == {("b", MODEL_ID, "1")}
    assert "".join(event["text_output"] for event in events) == wanted


@pytest.mark.parametrize("body, words", [
    ({}, "text_input is missing"),
    ({"text_input": 1}, "text_input"),
    ({"text_input": "a", "parameters": []}, "parameters"),
    ({"text_input": "a", "parameters": {"temperature": "hot"}}, "temperature"),
    ({"text_input": "a", "temperature": -1}, "temperature"),
    ({"text_input": "a", "max_tokens": 1, "parameters": {"max_tokens": 2}},
     "send it once"),
    ({"text_input": "a", "stream": True}, "generate_stream"),
    ({"text_input": "a", "n": 2}, "send several requests"),
])
def test_what_is_wrong_is_named(server, body, words):
    status, reply = generate(server, body)
    assert status == 400 and words in reply["error"]
    status, _, text = post(
        server, f"/v2/models/{MODEL_ID}/generate_stream", {**body, "n": 3})
    assert status == 400 and "error" in json.loads(text)


def test_models_that_make_no_text(server):
    status, _, text = post(server, "/v2/models/none/generate",
                           {"text_input": "a"})
    assert status == 404 and "none" in json.loads(text)["error"]
    with start(REPO / "tests" / "data" / "graph" / "mlp.onnx") as graph:
        status, _, text = post(graph, "/v2/models/mlp/generate",
                               {"text_input": "a"})
        assert status == 400 and "error" in json.loads(text)
