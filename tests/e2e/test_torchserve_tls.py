"""TorchServe's ports behind https: REST and both ports of gRPC have the same
certificate."""
import json
import ssl
import urllib.request

import grpc
import pytest

from certificates import Authority
from test_torchserve import archives, torchserve
from test_torchserve_grpc import EVENT, INFERENCE, MANAGEMENT


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority, tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    archives.write_store(store, "onnx")
    certificate, key = authority.sign("server")
    properties = store.parent / "config.properties"
    properties.write_text("".join(
        f"{name}_address=https://127.0.0.1:{port}\n" for name, port in
        (("inference", 8443), ("management", 8444), ("metrics", 8445))) +
        f"private_key_file={key}\ncertificate_file={certificate}\n"
        f"model_store={store}\nload_models=linear.mar\n")
    with torchserve("--ts-config", properties) as running:
        yield running


def get(server, authority, port, path, body=None):
    with urllib.request.urlopen(
            f"https://localhost:{server.ports[port]}{path}", body, timeout=30,
            context=ssl.create_default_context(cafile=authority.file)) as answer:
        return answer.read()


def test_rest(server, authority):
    assert json.loads(get(server, authority, "inference",
                          "/predictions/linear", b"[1, 2, 3]")) == [3, 5, 7]
    listed = json.loads(get(server, authority, "management", "/models"))
    assert [each["modelName"] for each in listed["models"]] == ["linear"]
    assert b"ts_inference_requests_total" in get(server, authority, "metrics",
                                                 "/metrics")


def test_grpc(server, authority):
    management = next(json.loads(line)["port"] for line in server.lines
                      if EVENT in line)
    for port, method, word in (
            (server.grpc_port, f"{INFERENCE}.InferenceAPIsService/Ping",
             b"Healthy"),
            (management, f"{MANAGEMENT}.ManagementAPIsService/ListModels",
             b"linear.mar")):
        credentials = grpc.ssl_channel_credentials(authority.file.read_bytes())
        # Each new connection is given the certificate.
        for _ in range(2):
            with grpc.secure_channel(f"localhost:{port}",
                                     credentials) as channel:
                assert word in channel.unary_unary(f"/{method}")(b"",
                                                                 timeout=30)
