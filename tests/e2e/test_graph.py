"""An ONNX graph beside a language model, asked by Triton's clients, by plain
JSON, and wrongly."""
import json
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import MODEL, MODEL_ID, REPO, start

DATA = REPO / "tests" / "data" / "graph"
CASES = json.loads((DATA / "mlp.json").read_text())


@pytest.fixture(scope="module")
def server():
    with start(DATA / "mlp.onnx", f"other={DATA / 'mlp.onnx'}", MODEL,
               "--max-model-len", 256) as running:
        yield running


@pytest.fixture(params=[triton_http, triton_grpc], ids=["http", "grpc"])
def triton(request, server):
    port = (server.http_port if request.param is triton_http
            else server.grpc_port)
    with request.param.InferenceServerClient(f"127.0.0.1:{port}") as client:
        yield request.param, client


def arrays(case, *names):
    return [np.array(case[name], np.float32) for name in names]


def post(server, path, body, headers=None):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    request = urllib.request.Request(
        server.url + path, body,
        {"Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def json_inputs(case):
    return [{"name": name, "datatype": "FP32",
             "shape": list(np.array(case[name]).shape), "data": case[name]}
            for name in ("scale", "x")]


@pytest.mark.parametrize("case", CASES, ids=["one", "three"])
@pytest.mark.parametrize("model", ["mlp", "other"])
def test_tritonclient_gets_what_onnxruntime_answers(triton, case, model):
    module, client = triton
    inputs = []
    for name, value in zip(("x", "scale"), arrays(case, "x", "scale")):
        made = module.InferInput(name, list(value.shape), "FP32")
        made.set_data_from_numpy(value)
        inputs.append(made)
    answer = client.infer(model, inputs, request_id="r1", model_version="1")
    for name in ("logits", "probabilities"):
        np.testing.assert_allclose(answer.as_numpy(name), case[name],
                                   rtol=2e-6, atol=1e-6)
    one = client.infer(model, inputs, outputs=[
        module.InferRequestedOutput("probabilities")])
    assert one.as_numpy("logits") is None
    np.testing.assert_allclose(one.as_numpy("probabilities"),
                               case["probabilities"], rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("binary_in, binary_out",
                         [(False, False), (False, True), (True, False)])
def test_binary_data_either_way(server, binary_in, binary_out):
    case = CASES[1]
    with triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}") as client:
        inputs = []
        for name, value in zip(("x", "scale"), arrays(case, "x", "scale")):
            made = triton_http.InferInput(name, list(value.shape), "FP32")
            made.set_data_from_numpy(value, binary_data=binary_in)
            inputs.append(made)
        answer = client.infer("mlp", inputs, outputs=[
            triton_http.InferRequestedOutput("logits",
                                             binary_data=binary_out)])
        np.testing.assert_allclose(answer.as_numpy("logits"), case["logits"],
                                   rtol=2e-6, atol=1e-6)


def test_metadata(triton):
    module, client = triton
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("mlp") and client.is_model_ready("mlp", "1")
    assert not client.is_model_ready("nobody")
    metadata = client.get_model_metadata("mlp")
    if module is triton_grpc:
        inputs = {i.name: (i.datatype, list(i.shape)) for i in metadata.inputs}
        outputs = {o.name: (o.datatype, list(o.shape))
                   for o in metadata.outputs}
        platform = metadata.platform
    else:
        inputs = {i["name"]: (i["datatype"], i["shape"])
                  for i in metadata["inputs"]}
        outputs = {o["name"]: (o["datatype"], o["shape"])
                   for o in metadata["outputs"]}
        platform = metadata["platform"]
    assert platform == "millrace_onnx"
    assert inputs == {"x": ("FP32", [-1, 4]), "scale": ("FP32", [1])}
    assert outputs == {"logits": ("FP32", [-1, 3]),
                       "probabilities": ("FP32", [-1, 3])}


def test_plain_json(server):
    case = CASES[0]
    status, answer = post(server, "/v2/models/mlp/infer", {
        "id": "7", "inputs": json_inputs(case),
        "outputs": [{"name": "logits"}]})
    assert status == 200, answer
    assert answer["id"] == "7" and answer["model_name"] == "mlp"
    assert answer["outputs"][0]["shape"] == [1, 3]
    np.testing.assert_allclose(answer["outputs"][0]["data"],
                               case["logits"][0], rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("change, words", [
    ({"data": [1, 2]}, "input 'x'"),
    ({"datatype": "FP64"}, "input 'x' is FP64 [1, 4]"),
    ({"shape": [4], "data": [1, 2, 3, 4]},
     "input 'x' is FP32 [4] but the model takes"),
    ({"name": "y"}, "input 'y' is not one of model 'mlp'"),
    ({"data": [1, 2, 3, "four"]}, "input 'x' holds a string"),
    ({"data": [1, 2, 3, 1e39]}, "input 'x' is 1e+39"),
    ({"data": [float("nan"), 2, 3, 4]}, "input 'x' has unreadable data"),
])
def test_what_is_wrong_is_named(server, change, words):
    inputs = json_inputs(CASES[0])
    inputs[1].update(change)
    status, answer = post(server, "/v2/models/mlp/infer", {"inputs": inputs})
    assert status == 400
    assert words in answer["error"]


def test_errors_of_tritonclient(triton):
    module, client = triton
    made = module.InferInput("x", [1, 4], "FP32")
    made.set_data_from_numpy(np.zeros((1, 4), np.float32))
    with pytest.raises(InferenceServerException) as caught:
        client.infer("mlp", [made])
    assert "input 'scale' is missing" in caught.value.message()
    with pytest.raises(InferenceServerException) as caught:
        client.infer("nobody", [made])
    assert "does not exist" in caught.value.message()


def test_kinds_stand_side_by_side(server):
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    status, answer = post(server, "/v1/chat/completions", chat)
    assert status == 200 and answer["model"] == MODEL_ID
    status, answer = post(server, "/v1/chat/completions",
                          {**chat, "model": "mlp"})
    assert status == 400
    assert answer["error"]["code"] == "wrong_model_kind"
    status, answer = post(server, f"/v2/models/{MODEL_ID}/infer",
                          {"inputs": []})
    assert status == 400 and "'text_input' is missing" in answer["error"]
    models = json.loads(server.get("/v2/models"))["models"]
    assert models == ["mlp", "other", MODEL_ID]


def test_metrics_count_requests_and_stages(server):
    before = server.metric("millrace_inference_requests_total")
    post(server, "/v2/models/other/infer", {"inputs": json_inputs(CASES[0])})
    label = '{model="other",outcome="ok",version="1"}'
    after = server.metric("millrace_inference_requests_total")
    assert after[label] == before[label] + 1
    stages = server.metric("millrace_inference_stage_seconds_total")
    assert stages['{model="other",stage="compute_infer",version="1"}'] > 0
    label = '{model="other",version="1"}'
    assert server.metric("millrace_queue_time_seconds_count")[label] > 0
