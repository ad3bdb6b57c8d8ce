"""infer of a language model, as Triton's vLLM backend has it, by tritonclient
over REST and gRPC."""
import json
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import MODEL_ID
from triton_clients import strings, triton  # noqa: F401

PROMPT = "The capital of France is"
GREEDY = {"temperature": 0, "max_tokens": 8}


@pytest.fixture(scope="module")
def wanted(server, client):
    return client.completions.create(
        model=MODEL_ID, prompt=PROMPT, **GREEDY).choices[0].text


def switch(module, name, value):
    given = module.InferInput(name, [1], "BOOL")
    given.set_data_from_numpy(np.array([value]))
    return given


def ask(module, prompt=PROMPT, sampling=GREEDY, **switches):
    inputs = [strings(module, "text_input", [prompt.encode()])]
    if sampling is not None:
        inputs.append(strings(module, "sampling_parameters",
                              [json.dumps(sampling).encode()]))
    return inputs + [switch(module, *each) for each in switches.items()]


def said(answer):
    (text,) = answer.as_numpy("text_output")
    return text.decode()


def post(server, body, headers=()):
    request = urllib.request.Request(
        f"{server.url}/v2/models/{MODEL_ID}/infer", json.dumps(body).encode(),
        {"Content-Type": "application/json", **dict(headers)})
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_the_text_is_that_of_completions(triton, wanted):
    module, client = triton
    answer = client.infer(MODEL_ID, ask(module), request_id="r1")
    assert said(answer) == wanted
    response = answer.get_response(**({"as_json": True} if module is not
                                      triton_http else {}))
    assert response["id"] == "r1"
    assert response["parameters"]["finish_reason"] in (
        "length", {"string_param": "length"})
    whole = client.infer(MODEL_ID, ask(module, exclude_input_in_output=False))
    assert said(whole) == PROMPT + wanted
    alone = client.infer(MODEL_ID, ask(module, exclude_input_in_output=True,
                                       stream=False))
    assert said(alone) == wanted


def test_fields_as_strings_and_as_parameters(triton, wanted):
    module, client = triton
    as_strings = {"temperature": "0", "max_tokens": "8"}
    assert said(client.infer(MODEL_ID, ask(module, sampling=as_strings))) == wanted
    given = client.infer(MODEL_ID, ask(module, sampling=None),
                         parameters=GREEDY)
    assert said(given) == wanted
    # Those of the tensor win.
    given = client.infer(MODEL_ID, ask(module, sampling=GREEDY),
                         parameters={"max_tokens": 2})
    assert said(given) == wanted


def test_metadata_say_what_infer_takes(triton):
    module, client = triton
    metadata = client.get_model_metadata(
        MODEL_ID, **({"as_json": True} if module is not triton_http else {}))
    assert [(each["name"], each["datatype"]) for each in metadata["inputs"]] == [
        ("text_input", "BYTES"), ("stream", "BOOL"),
        ("sampling_parameters", "BYTES"), ("exclude_input_in_output", "BOOL")]
    assert [each["name"] for each in metadata["outputs"]] == ["text_output"]


@pytest.mark.parametrize("inputs, words", [
    (lambda m: ask(m, stream=True), "stream is true"),
    (lambda m: [switch(m, "stream", False)], "'text_input' is missing"),
    (lambda m: ask(m) + ask(m, sampling=None), "'text_input' is given twice"),
    (lambda m: [strings(m, "text_input", [b"a", b"b"])], "takes one element"),
    (lambda m: [strings(m, "prompt", [b"a"])],
     "'prompt' is not one of this model's inputs"),
    (lambda m: ask(m, sampling={"temperature": 9}), "temperature"),
    (lambda m: [strings(m, "text_input", [b"a\xff"])], "is not UTF-8"),
])
def test_what_does_not_fit_is_named(triton, inputs, words):
    module, client = triton
    with pytest.raises(InferenceServerException, match=words):
        client.infer(MODEL_ID, inputs(module))


def test_outputs_are_checked(triton):
    module, client = triton
    with pytest.raises(InferenceServerException, match="output 'logits'"):
        client.infer(MODEL_ID, ask(module),
                     outputs=[module.InferRequestedOutput("logits")])


def test_json_alone(server, wanted):
    text = {"name": "text_input", "shape": [1], "datatype": "BYTES",
            "data": [PROMPT]}
    status, reply = post(server, {"id": "7", "inputs": [text],
                                  "parameters": GREEDY})
    assert status == 200
    assert reply == {
        "model_name": MODEL_ID, "model_version": "1", "id": "7",
        "parameters": {"finish_reason": "length", "prompt_tokens": 5,
                       "completion_tokens": 8},
        "outputs": [{"name": "text_output", "datatype": "BYTES", "shape": [1],
                     "data": [wanted]}]}
    assert post(server, {"inputs": [text], "parameters": {
        "max_tokens": 4096, "timeout": 1}})[0] == 504
    assert post(server, {"inputs": [text], "parameters": {
        "sequence_id": 3}})[0] == 400
    assert post(server, {"inputs": [text]}, {
        "Inference-Header-Content-Length": "0"})[0] == 400


def test_generate_takes_the_names_of_the_tensors(server, wanted):
    body = json.dumps({
        "text_input": PROMPT, "stream": False, "exclude_input_in_output": False,
        "sampling_parameters": json.dumps({"temperature": "0",
                                           "max_tokens": "8"})})
    request = urllib.request.Request(
        f"{server.url}/v2/models/{MODEL_ID}/generate", body.encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        assert json.loads(reply.read())["text_output"] == PROMPT + wanted
