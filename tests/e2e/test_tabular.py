"""Models of scikit-learn with strings among inputs and outputs, asked by
Triton's clients, by KServe's, by plain JSON, in a batch, and wrongly."""
import asyncio
import concurrent.futures
import json
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import REPO, start

DATA = REPO / "tests" / "data" / "tabular"
COLUMNS = ("colour", "size", "a", "b")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("tabular")
    for name, batch in (("mixed_onehot", 0), ("labels", 64),
                        ("forest_words", 64), ("forest_zipmap", 0)):
        folder = root / name / "1"
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(
            (DATA / f"{name}.onnx").read_bytes())
        if batch:
            (root / name / "config.pbtxt").write_text(
                f"max_batch_size: {batch}\ndynamic_batching "
                "{ max_queue_delay_microseconds: 20000 }\n")
    with start("--model-repository", root) as running:
        yield running


@pytest.fixture(params=[triton_http, triton_grpc], ids=["http", "grpc"])
def triton(request, server):
    port = (server.http_port if request.param is triton_http
            else server.grpc_port)
    with request.param.InferenceServerClient(f"127.0.0.1:{port}") as client:
        yield request.param, client


def arrays(name):
    return np.load(DATA / f"{name}.npz")


def inputs_of(module, case, rows=slice(None)):
    inputs = []
    for column in COLUMNS:
        value = case[f"in_{column}"][rows]
        kind = "FP32" if value.dtype == np.float32 else "BYTES"
        made = module.InferInput(column, list(value.shape), kind)
        made.set_data_from_numpy(
            value if kind == "FP32" else value.astype(object))
        inputs.append(made)
    return inputs


def test_strings_go_in_and_come_out(triton):
    module, client = triton
    case = arrays("mixed_onehot")
    answer = client.infer("mixed_onehot", inputs_of(module, case))
    assert (answer.as_numpy("label").tolist()
            == case["out_label"].tolist())
    np.testing.assert_allclose(answer.as_numpy("probabilities"),
                               case["out_probabilities"], atol=1e-5)


def test_metadata_say_bytes(triton):
    module, client = triton
    told = client.get_model_metadata("mixed_onehot")
    if module is triton_grpc:
        told = {"inputs": [{"name": i.name, "datatype": i.datatype}
                           for i in told.inputs]}
    kinds = {i["name"]: i["datatype"] for i in told["inputs"]}
    assert kinds == {"colour": "BYTES", "size": "BYTES", "a": "FP32",
                     "b": "FP32"}


@pytest.mark.parametrize("model, kind, wanted", [
    ("labels", "BYTES", "variable"), ("forest_words", "FP32", "label")])
def test_requests_are_joined_and_each_gets_its_rows(server, model, kind,
                                                    wanted):
    case = arrays(model)
    rows = [i % len(case["in_X"]) for i in range(48)]

    def ask(row):
        value = case["in_X"][row:row + 1]
        made = triton_http.InferInput("X", list(value.shape), kind)
        made.set_data_from_numpy(
            value if kind == "FP32" else value.astype(object))
        with triton_http.InferenceServerClient(
                f"127.0.0.1:{server.http_port}") as client:
            return client.infer(model, [made]).as_numpy(wanted)[0]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, rows))
    assert answers == [case[f"out_{wanted}"][row] for row in rows]
    with triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}") as client:
        stats = client.get_inference_statistics(model)["model_stats"][0]
    assert int(stats["execution_count"]) < int(stats["inference_count"])


def post(server, model, body):
    request = urllib.request.Request(
        f"{server.url}/v2/models/{model}/infer", json.dumps(body).encode(),
        {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def strings(data, shape, name="X", datatype="BYTES"):
    return {"inputs": [{"name": name, "datatype": datatype, "shape": shape,
                        "data": data}]}


def test_plain_json(server):
    status, answer = post(server, "labels", strings(["z", "ä", "a"], [3]))
    assert status == 200, answer
    assert answer["outputs"][0]["data"] == [1, 2, 0]
    iris = arrays("forest_words")
    status, answer = post(server, "forest_words", strings(
        iris["in_X"][:3].tolist(), [3, 4], datatype="FP32"))
    assert status == 200, answer
    assert answer["outputs"][0]["datatype"] == "BYTES"
    assert answer["outputs"][0]["data"] == [
        word.decode() for word in iris["out_label"][:3]]


def test_a_zipmap_is_answered_as_a_table(server):
    iris = arrays("forest_zipmap")
    status, answer = post(server, "forest_zipmap", strings(
        iris["in_X"].tolist(), list(iris["in_X"].shape), datatype="FP32"))
    assert status == 200, answer
    table = answer["outputs"][1]
    assert table["shape"] == [len(iris["in_X"]), 3]
    np.testing.assert_allclose(
        np.reshape(table["data"], (-1, 3)),
        iris["out_output_probability"], atol=1e-5)


@pytest.mark.parametrize("body, words", [
    (strings([1, 2], [2]), "takes strings"),
    (strings(["a"], [2]), "has 1 values"),
    (strings([["a"], ["b"]], [2]), "takes strings"),
    (strings([1.0, 2.0], [2], datatype="FP32"), "takes BYTES"),
])
def test_wrong_json_is_told(server, body, words):
    status, answer = post(server, "labels", body)
    assert status == 400 and words in answer["error"], answer


def test_bytes_that_end_early_are_told(server):
    head = json.dumps({"inputs": [{
        "name": "X", "datatype": "BYTES", "shape": [2],
        "parameters": {"binary_data_size": 9}}]}).encode()
    request = urllib.request.Request(
        f"{server.url}/v2/models/labels/infer",
        head + b"\1\0\0\0a\xff\0\0\0",
        {"Inference-Header-Content-Length": str(len(head)),
         "Content-Type": "application/octet-stream"})
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request, timeout=30)
    assert error.value.code == 400
    assert "ends within element 1" in error.value.read().decode()


def test_classification_of_strings_is_refused(server):
    with triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}") as client:
        case = arrays("mixed_onehot")
        wanted = triton_http.InferRequestedOutput("label",
                                                  class_count=2)
        with pytest.raises(InferenceServerException,
                           match="cannot be classified"):
            client.infer("mixed_onehot", inputs_of(triton_http, case),
                         outputs=[wanted])


def test_kserves_own_client(server):
    kserve = pytest.importorskip("kserve")
    case = arrays("labels")

    async def ask():
        client = kserve.InferenceRESTClient(
            kserve.RESTConfig(protocol="v2", timeout=30))
        value = np.array([w.decode() for w in case["in_X"]], object)
        made = kserve.InferInput("X", list(value.shape), "BYTES")
        made.set_data_from_numpy(value, binary_data=False)
        try:
            return await client.infer(
                server.url, kserve.InferRequest("labels", [made]),
                model_name="labels")
        finally:
            await client.close()

    answer = asyncio.run(ask())
    assert answer.outputs[0].data == case[
        f"out_{answer.outputs[0].name}"].tolist()
