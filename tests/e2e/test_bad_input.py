"""Wrong requests to graphs and wrong models: each has its exact error over REST
and over gRPC, and afterwards the server answers as before, with nothing held.

To look for leaks and overruns, run it with a binary built by the preset asan:

    MILLRACE_BINARY=build/asan/bin/millrace pytest tests/e2e/test_bad_input.py
"""
import gzip
import http.client
import json
import shutil
import struct
import urllib.error
import urllib.request
import zlib

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from conftest import REPO, start

DATA = REPO / "tests" / "data" / "graph"
CASE = json.loads((DATA / "mlp.json").read_text())[0]
X = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": CASE["x"][0]}
SCALE = {"name": "scale", "datatype": "FP32", "shape": [1],
         "data": CASE["scale"]}
BYTES = struct.pack("<4f", *CASE["x"][0])


def put(root, name, data, version="1", config=None):
    folder = root / name / version
    folder.mkdir(parents=True)
    if data is not None:
        (folder / "model.onnx").write_bytes(data)
    if config is not None:
        (root / name / "config.pbtxt").write_text(config)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    whole = (DATA / "mlp.onnx").read_bytes()
    put(root, "mlp", whole)
    put(root, "half", whole[:len(whole) // 2])
    put(root, "empty", None)
    put(root, "text", b"no model at all\n" * 100)
    put(root, "liar", whole, config='input [ { name: "x" data_type: TYPE_INT64 '
                                    "dims: [ 4 ] } ] max_batch_size: 8")
    put(root, "sizes", whole, config='input [ { name: "x" data_type: TYPE_FP32 '
                                     "dims: [ 5 ] } ] max_batch_size: 8")
    put(root, "stranger", whole, config='output [ { name: "nobody" } ]')
    put(root, "numbers", whole, config="max_batch_size: 99999999999999999999")
    put(root, "nested", whole, config="input { " * 5000)
    with start("--model-repository", root, "--model-control-mode", "explicit",
               "--load-model", "mlp", "--http-max-input-size",
               "1MiB") as running:
        running.root = root
        yield running
        assert running.stop() == 0


def post(server, path, body, **headers):
    """(status, text) of a body that is JSON unless it is bytes already."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    request = urllib.request.Request(
        server.url + path, body,
        {"Content-Type": "application/json",
         **{k.replace("_", "-"): str(v) for k, v in headers.items()}})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def infer(server, body, **headers):
    return post(server, "/v2/models/mlp/infer", body, **headers)


def settled(server):
    """It answers, and nothing of what was refused is left."""
    status, text = infer(server, {"inputs": [X, SCALE]})
    assert status == 200
    logits = json.loads(text)["outputs"][0]["data"]
    assert logits == pytest.approx(CASE["logits"][0], rel=1e-5)
    for name in ("millrace_requests_running", "millrace_requests_waiting",
                 "millrace_http_body_bytes"):
        values = server.metric(name)
        assert values and not any(values.values()), (name, values)


def changed(of, **fields):
    return {key: value for key, value in {**of, **fields}.items()
            if value is not None}


def binary(**fields):
    return changed(X, data=None, **fields)


BINARY = json.dumps({"inputs": [
    binary(parameters={"binary_data_size": 16}), SCALE]}).encode()

REST = {
    "no JSON": (b"{", "malformed JSON at byte 2"),
    "no object": ([1, 2], "object"),
    "no inputs": ({}, "inputs is missing"),
    "inputs of a wrong kind": ({"inputs": 3}, "inputs"),
    "an input of a wrong kind": ({"inputs": [3]}, "inputs[0]"),
    "an unknown name": ({"inputs": [changed(X, name="z"), SCALE]}, "'z'"),
    "no name": ({"inputs": [changed(X, name=None), SCALE]}, "inputs[0].name"),
    "a missing tensor": ({"inputs": [X]}, "'scale' is missing"),
    "a tensor twice": ({"inputs": [X, SCALE, X]}, "'x' is given twice"),
    "another dtype": ({"inputs": [changed(X, datatype="FP64"), SCALE]}, "'x'"),
    "an unknown dtype": ({"inputs": [changed(X, datatype="FP31"), SCALE]},
                         "FP31"),
    "another shape": ({"inputs": [changed(X, shape=[2, 2]), SCALE]}, "'x'"),
    "too few values": ({"inputs": [changed(X, data=[1, 2]), SCALE]}, "'x'"),
    "too many values": ({"inputs": [changed(X, data=[1] * 5), SCALE]}, "'x'"),
    "a negative size": ({"inputs": [changed(X, shape=[-1, 4]), SCALE]},
                        "shape[0]"),
    "huge sizes": ({"inputs": [changed(X, shape=[2**40, 2**40]), SCALE]},
                   "'x'"),
    "more sizes than there are": ({"inputs": [changed(X, shape=[1] * 99),
                                              SCALE]}, "99 dimensions"),
    "a size beyond 64 bits": (
        b'{"inputs": [{"name": "x", "datatype": "FP32", '
        b'"shape": [99999999999999999999, 4], "data": [1]}]}', "shape"),
    "text for numbers": ({"inputs": [changed(X, data=["a"] * 4), SCALE]}, "'x'"),
    "NaN": (b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], '
            b'"data": [NaN, 1, 1, 1]}]}', "NaN"),
    "a number beyond FP32": ({"inputs": [changed(X, data=[1e300] * 4), SCALE]},
                             "'x'"),
    "deep JSON": (b'{"inputs": ' + b"[" * 100000, "deep"),
    "an unknown output": ({"inputs": [X, SCALE], "outputs": [{"name": "q"}]},
                          "'q'"),
    "an output twice": ({"inputs": [X, SCALE],
                         "outputs": [{"name": "logits"}] * 2}, "twice"),
    "neither data nor bytes": ({"inputs": [changed(X, data=None), SCALE]},
                               "'x'"),
}


@pytest.mark.parametrize("name", REST)
def test_rest(server, name):
    body, said = REST[name]
    status, text = infer(server, body)
    assert status == 400, text
    assert said in json.loads(text)["error"]
    settled(server)


@pytest.mark.parametrize("body, length, status, said", [
    (BINARY + BYTES[:7], len(BINARY), 400, "binary_data_size of 16 but only 7"),
    (BINARY + BYTES + b"more", len(BINARY), 400, "4 bytes are left behind"),
    (BINARY + BYTES, len(BINARY) + 99, 400, "Inference-Header-Content-Length"),
    (BINARY + BYTES, -1, 400, "Inference-Header-Content-Length"),
    (BINARY + BYTES, "many", 400, "Inference-Header-Content-Length"),
    (BINARY.replace(b"16", b"15") + BYTES[:15], len(BINARY), 400, "'x'"),
    (BINARY.replace(b"16", b"-1") + BYTES, len(BINARY), 400,
     "binary_data_size"),
    (BINARY.replace(b"16", b"9" * 18) + BYTES, len(BINARY) + 16, 400, "'x'"),
])
def test_binary_tensors(server, body, length, status, said):
    got, text = infer(server, body, Inference_Header_Content_Length=length)
    assert got == status, text
    assert said in json.loads(text)["error"]
    settled(server)


def test_a_body_above_the_limit_is_refused_before_it_comes(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port,
                                            timeout=60)
    connection.putrequest("POST", "/v2/models/mlp/infer")
    connection.putheader("Content-Length", str(2 << 20))
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 413
    assert "http_max_input_size" in json.loads(answer.read())["error"]
    connection.close()
    settled(server)


@pytest.mark.parametrize("body, coding, status, said", [
    (gzip.compress(b" " * (64 << 20)), "gzip", 413, "http_max_input_size"),
    (zlib.compress(b" " * (64 << 20)), "deflate", 413, "http_max_input_size"),
    (gzip.compress(json.dumps({"inputs": [X]}).encode())[:-9], "gzip", 400,
     "gzip"),
    (b"no gzip at all", "gzip", 400, "gzip"),
    (b"{}", "br", 415, "br"),
])
def test_compressed_bodies(server, body, coding, status, said):
    got, text = infer(server, body, Content_Encoding=coding)
    assert got == status, text
    assert said in json.loads(text)["error"]
    settled(server)


@pytest.mark.parametrize("model, said", [
    ("half", "model.onnx"),
    ("empty", "empty"),
    ("text", "model.onnx"),
    ("liar", "has data_type TYPE_INT64 but the model has TYPE_FP32"),
    ("sizes", "has dims [5]"),
    ("stranger", "output 'nobody'"),
    ("numbers", "config.pbtxt line 1"),
    ("nested", "config.pbtxt line 1"),
    ("nobody", "nobody"),
])
def test_models_that_cannot_be_loaded(server, model, said):
    status, text = post(server, f"/v2/repository/models/{model}/load", {})
    assert 400 <= status < 500, text
    assert said in json.loads(text)["error"]
    settled(server)


@pytest.mark.parametrize("config, said", [
    ('{"max_batch_size": "many"}', "max_batch_size"),
    ('{"max_batch_size": -4}', "max_batch_size"),
    ('{"dynamic_batching": {"preferred_batch_size": [9]}, '
     '"max_batch_size": 4}', "preferred_batch_size"),
    ('{"instance_group": [{"kind": "KIND_GPU"}]}', "set device to cpu"),
    ("{", "malformed JSON"),
])
def test_overrides_that_are_wrong_leave_the_model(server, config, said):
    status, text = post(server, "/v2/repository/models/mlp/load",
                        {"parameters": {"config": config}})
    assert status == 400, text
    assert said in json.loads(text)["error"]
    settled(server)


def test_a_folder_that_is_half_written_is_loaded_when_it_is_whole(server):
    whole = (DATA / "mlp.onnx").read_bytes()
    put(server.root, "growing", whole[:64])
    path = "/v2/repository/models/growing/"
    assert post(server, path + "load", {})[0] == 400
    shutil.rmtree(server.root / "growing")
    put(server.root, "growing", whole)
    assert post(server, path + "load", {})[0] == 200
    assert post(server, path + "unload", {})[0] == 200
    settled(server)


def call(**fields):
    request = service_pb2.ModelInferRequest(model_name="mlp")
    for source in (X, SCALE):
        tensor = request.inputs.add(name=source["name"],
                                    datatype=source["datatype"],
                                    shape=source["shape"])
        tensor.contents.fp32_contents.extend(source["data"])
    for key, value in fields.items():
        setattr(request, key, value)
    return request


def raw(*parts):
    request = call()
    for tensor in request.inputs:
        tensor.ClearField("contents")
    request.raw_input_contents.extend(parts)
    return request


def changed_call(**fields):
    request = call()
    for key, value in fields.items():
        if key == "shape":
            del request.inputs[0].shape[:]
            request.inputs[0].shape.extend(value)
        else:
            setattr(request.inputs[0], key, value)
    return request


def twice():
    request = call()
    request.inputs.append(request.inputs[0])
    return request


def without_scale():
    request = call()
    del request.inputs[1]
    return request


SCALE_BYTES = struct.pack("<f", *CASE["scale"])
GRPC = {
    "an unknown name": (changed_call(name="z"), "'z'"),
    "a missing tensor": (without_scale(), "'scale' is missing"),
    "a tensor twice": (twice(), "twice"),
    "another dtype": (changed_call(datatype="INT32"), "'x'"),
    "an unknown dtype": (changed_call(datatype="FP31"), "FP31"),
    "another shape": (changed_call(shape=[2, 2]), "'x'"),
    "a negative size": (changed_call(shape=[-1, 4]), "'x'"),
    "huge sizes": (changed_call(shape=[2**62, 2**62]), "'x'"),
    "bytes cut short": (raw(BYTES[:7], SCALE_BYTES), "'x'"),
    "too many bytes": (raw(BYTES + BYTES, SCALE_BYTES), "'x'"),
    "a part too few": (raw(BYTES), "raw_input_contents"),
    "a part too many": (raw(BYTES, SCALE_BYTES, b""), "raw_input_contents"),
}


@pytest.mark.parametrize("name", GRPC)
def test_grpc(server, name):
    request, said = GRPC[name]
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.ModelInfer(request, timeout=60)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert said in refused.value.details()
        assert stub.ModelInfer(call(), timeout=60).outputs
    settled(server)
