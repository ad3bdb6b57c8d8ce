"""tritonclient and the gRPC health and reflection clients, unmodified."""
import json
import queue

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase)
from tritonclient.utils import InferenceServerException

from conftest import MODEL_ID, REPO, start
from half_calls import HalfCalls

GRAPH = REPO / "tests/data/graph/mlp.onnx"
SERVICE = "inference.GRPCInferenceService"


@pytest.fixture(scope="module")
def address(server):
    return f"127.0.0.1:{server.grpc_port}"


@pytest.fixture
def client(address):
    with triton.InferenceServerClient(address) as made:
        yield made


def inputs(prompt, stream, **sampling):
    def tensor(name, value, kind):
        made = triton.InferInput(name, [1], kind)
        made.set_data_from_numpy(value)
        return made
    return [
        tensor("text_input", np.array([prompt.encode()], np.object_), "BYTES"),
        tensor("stream", np.array([stream]), "BOOL"),
        tensor("sampling_parameters",
               np.array([json.dumps(sampling).encode()], np.object_), "BYTES"),
    ]


def test_health_and_metadata(client, address):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready(MODEL_ID)
    assert not client.is_model_ready("nobody")
    assert client.get_server_metadata().name == "millrace"
    metadata = client.get_model_metadata(MODEL_ID)
    assert {"text_input", "stream", "sampling_parameters"} <= {
        i.name for i in metadata.inputs}
    assert "text_output" in {o.name for o in metadata.outputs}
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        assert SERVICE in ProtoReflectionDescriptorDatabase(
            channel).get_services()


def test_infer(client):
    answer = client.infer(MODEL_ID, inputs(
        "The capital of France is", False, temperature=0, max_tokens=4),
        request_id="r1")
    assert b"Paris" in answer.as_numpy("text_output")[0]
    assert answer.get_response().id == "r1"


def test_stream_equals_whole(client):
    sampling = dict(temperature=0, max_tokens=12)
    whole = client.infer(MODEL_ID, inputs("Count: one, two,", False,
                                          **sampling))
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer(
        MODEL_ID, inputs("Count: one, two,", True, **sampling),
        enable_empty_final_response=True)
    text, pieces = b"", 0
    while True:
        result, error = answers.get(timeout=30)
        assert error is None
        response = result.get_response()
        output = result.as_numpy("text_output")
        if output is not None and output.size:
            text += output.flatten()[0]
            pieces += 1
        if response.parameters["triton_final_response"].bool_param:
            break
    client.stop_stream()
    assert text == whole.as_numpy("text_output")[0]
    assert pieces > 3


def test_errors(client):
    with pytest.raises(InferenceServerException) as caught:
        client.infer("nobody", inputs("x", False))
    assert "NOT_FOUND" in caught.value.status()
    with pytest.raises(InferenceServerException) as caught:
        client.infer(MODEL_ID, inputs("x", False, temperature=9))
    assert "INVALID_ARGUMENT" in caught.value.status()
    assert "temperature" in caught.value.message()


def resident(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_messages_that_never_end_have_a_bound():
    with start(GRAPH, "--http-max-input-size", "1MiB") as running:
        with triton.InferenceServerClient(
                f"127.0.0.1:{running.grpc_port}") as client:
            assert client.is_server_live()
            before = resident(running.process.pid)
            halves = [HalfCalls(running.grpc_port, f"/{SERVICE}/ModelInfer", 50,
                                (1 << 20) - 1000) for _ in range(3)]
            most = 0
            while any([half.step() for half in halves]):
                most = max(most, resident(running.process.pid) - before)
            # 150 MiB were sent, or would have been.
            assert most < 48 << 20
            assert client.is_server_live()
            for half in halves:
                half.close()
            assert client.is_model_ready("mlp")
