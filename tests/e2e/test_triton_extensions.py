"""Triton's extensions by its own clients: shared memory, classification, raw
tensors, compression, the log's settings."""
import gzip
import json
import pathlib
import sys
import urllib.request
import zlib

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from conftest import REPO, start

sys.path.insert(0, str(REPO / "tests" / "golden" / "triton"))
from repository import write_repository  # noqa: E402

WIRES = {"http": triton_http, "grpc": triton_grpc}
A = np.arange(16, dtype=np.int32).reshape(1, 16)
B = np.full((1, 16), 3, np.int32)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_repository(root, "onnx")
    with start("--model-repository", root) as running:
        yield running


@pytest.fixture(params=sorted(WIRES))
def wire(request, server):
    kind = WIRES[request.param]
    port = server.http_port if request.param == "http" else server.grpc_port
    with kind.InferenceServerClient(f"127.0.0.1:{port}") as client:
        yield kind, client


def inputs_of(kind, **values):
    inputs = []
    for name, value in values.items():
        inputs.append(kind.InferInput(name, list(value.shape), "INT32"))
        inputs[-1].set_data_from_numpy(value)
    return inputs


@pytest.fixture
def region():
    handle = shm.create_shared_memory_region("region", "/millrace_e2e", 4 * 64)
    shm.set_shared_memory_region(handle, [A, B])
    yield handle
    shm.destroy_shared_memory_region(handle)


def regions(client):
    listed = client.get_system_shared_memory_status()
    if isinstance(listed, list):
        return {each["name"]: each["byte_size"] for each in listed}
    return {name: each.byte_size for name, each in listed.regions.items()}


def test_tensors_go_both_ways_in_shared_memory(wire, region):
    kind, client = wire
    client.register_system_shared_memory("region", "/millrace_e2e", 256)
    try:
        assert regions(client) == {"region": 256}
        inputs = [kind.InferInput(name, [1, 16], "INT32")
                  for name in ("INPUT0", "INPUT1")]
        inputs[0].set_shared_memory("region", 64)
        inputs[1].set_shared_memory("region", 64, offset=64)
        outputs = [kind.InferRequestedOutput(name)
                   for name in ("OUTPUT0", "OUTPUT1")]
        outputs[0].set_shared_memory("region", 64, offset=128)
        outputs[1].set_shared_memory("region", 64, offset=192)
        reply = client.infer("simple", inputs, outputs=outputs)
        assert reply.get_output("OUTPUT0") is not None
        written = shm.get_contents_as_numpy(region, np.int32, [4, 16])
        np.testing.assert_array_equal(written[2:], [(A + B)[0], (A - B)[0]])
    finally:
        client.unregister_system_shared_memory("region")
    assert regions(client) == {}


def test_one_input_in_shared_memory(wire, region):
    kind, client = wire
    client.register_system_shared_memory("region", "/millrace_e2e", 256)
    try:
        inputs = inputs_of(kind, INPUT0=A, INPUT1=B)
        inputs[1].set_shared_memory("region", 64)
        reply = client.infer("simple", inputs)
        np.testing.assert_array_equal(reply.as_numpy("OUTPUT0"), A + A)
    finally:
        client.unregister_system_shared_memory()


@pytest.mark.parametrize("what, text", [
    (dict(key="/millrace_absent"), "cannot be opened"),
    (dict(key="/../etc/passwd"), "no name of a shared memory object"),
    (dict(byte_size=257), "which has 256"),
    (dict(offset=200), "which has 256"),
])
def test_regions_that_cannot_be(wire, region, what, text):
    wanted = {"key": "/millrace_e2e", "byte_size": 256, **what}
    with pytest.raises(InferenceServerException, match=text):
        wire[1].register_system_shared_memory("bad", **wanted)
    assert regions(wire[1]) == {}


def test_what_does_not_lie_in_the_region(wire, region):
    kind, client = wire
    client.register_system_shared_memory("region", "/millrace_e2e", 128)
    try:
        with pytest.raises(InferenceServerException, match="already"):
            client.register_system_shared_memory("region", "/millrace_e2e", 8)
        inputs = inputs_of(kind, INPUT0=A, INPUT1=B)
        inputs[1].set_shared_memory("region", 64, offset=100)
        with pytest.raises(InferenceServerException, match="within"):
            client.infer("simple", inputs)
        inputs[1].set_shared_memory("absent", 64)
        with pytest.raises(InferenceServerException, match="absent"):
            client.infer("simple", inputs)
        output = kind.InferRequestedOutput("OUTPUT0")
        output.set_shared_memory("region", 32)
        with pytest.raises(InferenceServerException, match="does not fit"):
            client.infer("simple", inputs_of(kind, INPUT0=A, INPUT1=B),
                         outputs=[output])
    finally:
        client.unregister_system_shared_memory()


def test_a_region_that_shrank_is_an_error_and_no_crash(wire):
    kind, client = wire
    path = "/dev/shm/millrace_shrinks"
    with open(path, "wb") as file:
        file.write(A.tobytes())
        file.flush()
        client.register_system_shared_memory("region", "/millrace_shrinks", 64)
        try:
            file.truncate(0)
            inputs = inputs_of(kind, INPUT0=A, INPUT1=B)
            inputs[1].set_shared_memory("region", 64)
            with pytest.raises(InferenceServerException, match="shorter"):
                client.infer("simple", inputs)
            output = kind.InferRequestedOutput("OUTPUT0")
            output.set_shared_memory("region", 64)
            with pytest.raises(InferenceServerException, match="shorter"):
                client.infer("simple", inputs_of(kind, INPUT0=A, INPUT1=B),
                             outputs=[output])
        finally:
            client.unregister_system_shared_memory("region")
            pathlib.Path(path).unlink()
    assert client.is_server_live()


def test_regions_count_against_the_limit_of_a_request(tmp_path, region):
    """Of the smallest limit, 1 KiB, two tensors of half of it."""
    write_repository(tmp_path / "models", "onnx")
    with start("--model-repository", tmp_path / "models",
               "--http-max-input-size", "1KiB") as server:
        for name, kind in WIRES.items():
            port = getattr(server, f"{name}_port")
            client = kind.InferenceServerClient(f"127.0.0.1:{port}")
            client.register_system_shared_memory("region", "/millrace_e2e", 256)
            inputs = [kind.InferInput(f"INPUT{i}", [4, 16], "INT32")
                      for i in range(2)]
            inputs[0].set_shared_memory("region", 256)
            inputs[1].set_shared_memory("region", 256)
            client.infer("simple", inputs)
            many = inputs + [kind.InferInput(f"X{i}", [4, 16], "INT32")
                             for i in range(2)]
            for more in many[2:]:
                more.set_shared_memory("region", 256)
            with pytest.raises(InferenceServerException,
                               match="raise http_max_input_size"):
                client.infer("simple", many)
            client.unregister_system_shared_memory()


def test_shared_memory_can_be_switched_off(tmp_path, region):
    write_repository(tmp_path / "models", "onnx")
    with start("--model-repository", tmp_path / "models",
               "--no-shared-memory") as server:
        with triton_http.InferenceServerClient(
                f"127.0.0.1:{server.http_port}") as client:
            with pytest.raises(InferenceServerException,
                               match="no-shared-memory"):
                client.register_system_shared_memory("r", "/millrace_e2e", 1)


def test_cuda_memory_is_not_there(wire):
    with pytest.raises(InferenceServerException, match="CPUs"):
        wire[1].register_cuda_shared_memory("r", b"aGFuZGxl", 0, 16)


def test_classification(wire):
    kind, client = wire
    outputs = [kind.InferRequestedOutput("OUTPUT0", class_count=2)]
    reply = client.infer("simple", inputs_of(kind, INPUT0=A, INPUT1=B),
                         outputs=outputs)
    assert reply.as_numpy("OUTPUT0").tolist() == [[b"18:15", b"17:14"]]


@pytest.mark.parametrize("request_by", [None, "gzip", "deflate"])
@pytest.mark.parametrize("response_by", [None, "gzip", "deflate"])
def test_bodies_are_compressed_as_asked(server, request_by, response_by):
    values = np.arange(640, dtype=np.float32).reshape(10, 64)
    tensor = triton_http.InferInput("INPUT0", [10, 64], "FP32")
    tensor.set_data_from_numpy(values)
    with triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}") as client:
        reply = client.infer("identity", [tensor],
                             request_compression_algorithm=request_by,
                             response_compression_algorithm=response_by)
    np.testing.assert_array_equal(reply.as_numpy("OUTPUT0"), values)


def test_a_compressed_body_may_not_grow_beyond_the_limit(server):
    for name, squeeze in (("gzip", gzip.compress), ("deflate", zlib.compress)):
        request = urllib.request.Request(
            f"{server.url}/v2/models/identity/infer",
            squeeze(bytes(200 << 20), 9), {"Content-Encoding": name})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        assert refused.value.code == 413
        assert "http_max_input_size" in json.load(refused.value)["error"]


def test_a_compressed_body_of_json(server):
    request = urllib.request.Request(
        f"{server.url}/v2/models/identity/infer",
        gzip.compress(json.dumps({"inputs": [
            {"name": "INPUT0", "shape": [1, 1], "datatype": "FP32",
             "data": [7]}]}).encode()),
        {"Content-Encoding": "gzip", "Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        assert json.load(reply)["outputs"][0]["data"] == [7.0]


def test_the_log_is_changed_while_it_runs(wire, server):
    client = wire[1]

    def told(settings):
        if isinstance(settings, dict):
            return settings["log_verbose_level"], settings["log_info"]
        settings = settings.settings
        return (settings["log_verbose_level"].uint32_param,
                settings["log_info"].bool_param)

    assert told(client.get_log_settings()) == (0, True)
    changed = client.update_log_settings({"log_verbose_level": 2})
    assert told(changed) == (2, True)
    client.update_log_settings({"log_verbose_level": 0, "log_info": False})
    try:
        assert told(client.get_log_settings()) == (0, False)
        with pytest.raises(InferenceServerException, match="log_file"):
            client.update_log_settings({"log_file": "/tmp/x"})
    finally:
        client.update_log_settings({"log_info": True})


def test_log_settings_that_are_unknown_or_null_are_left_alone(server, wire):
    kind, client = wire
    before = client.get_log_settings()
    assert client.update_log_settings({"log_nothing": True}) == before
    assert client.update_log_settings({}) == before
    if kind is not triton_http:
        return
    # As tritonclient never sends them: null is as if it were left out.
    body = {"log_file": None, "log_info": None, "log_verbose_level": None,
            "log_format": None, "log_nothing": {"deep": [1]}}
    request = urllib.request.Request(server.url + "/v2/logging",
                                     json.dumps(body).encode())
    with urllib.request.urlopen(request) as reply:
        assert json.load(reply) == before


def test_a_wrong_log_setting_changes_none(wire):
    kind, client = wire
    before = client.get_log_settings()
    for wrong in ({"log_format": "x"}, {"log_file": "/tmp/x"}):
        with pytest.raises(InferenceServerException, match=next(iter(wrong))):
            client.update_log_settings(
                {"log_info": False, "log_verbose_level": 1, **wrong})
        assert client.get_log_settings() == before


def test_trace_settings_say_that_there_are_none(wire):
    client = wire[1]
    client.get_trace_settings()
    client.update_trace_settings(settings={"trace_level": ["OFF"]})
    with pytest.raises(InferenceServerException, match="not offered"):
        client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]})
