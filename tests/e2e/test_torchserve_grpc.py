"""TorchServe's gRPC services and its key file. Messages are made from what the
server's reflection tells, so that no generated code stands here."""
import json
import stat
import struct
import sys
import threading
import urllib.error
import urllib.request

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.empty_pb2 import Empty
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase)

from conftest import REPO, Server
from model_host import Host
from test_torchserve_python import FUNCTION, mar

GOLDEN = REPO / "tests" / "golden" / "torchserve"
INFERENCE = "org.pytorch.serve.grpc.inference"
MANAGEMENT = "org.pytorch.serve.grpc.management"
EVENT = "TorchServe's management over gRPC"
NO_KEYS = "--disable-token-auth"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("store")
    sys.path.insert(0, str(GOLDEN))
    try:
        sys.modules.pop("archives", None)
        import archives
        archives.write_store(root, "onnx")
    finally:
        sys.path.remove(str(GOLDEN))
        sys.modules.pop("archives", None)
    return root


class Client:
    """Both services of one server."""

    def __init__(self, server, metadata=()):
        port = next(json.loads(line)["port"] for line in server.lines
                    if EVENT in line)
        self.inference = grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}")
        self.management = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.metadata = metadata
        database = ProtoReflectionDescriptorDatabase(self.inference)
        self.pool = descriptor_pool.DescriptorPool(database)

    def close(self):
        self.inference.close()
        self.management.close()

    def message(self, name, **fields):
        kind = message_factory.GetMessageClass(
            self.pool.FindMessageTypeByName(f"{INFERENCE}.{name}"))
        return kind(**fields)

    def predict(self, **fields):
        reply = self.message("PredictionResponse").__class__
        return self.inference.unary_unary(
            f"/{INFERENCE}.InferenceAPIsService/Predictions",
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=reply.FromString)(
                self.message("PredictionsRequest", **fields), timeout=30,
                metadata=self.metadata)

    def stream(self, method, request):
        """`request`: a message, or an iterator of them."""
        kind = (self.inference.unary_stream if method == "StreamPredictions"
                else self.inference.stream_stream)
        reply = self.message("PredictionResponse").__class__
        return kind(f"/{INFERENCE}.InferenceAPIsService/{method}",
                    request_serializer=lambda m: m.SerializeToString(),
                    response_deserializer=reply.FromString)(
                        request, timeout=30, metadata=self.metadata)

    def ping(self):
        reply = self.message("TorchServeHealthResponse").__class__
        return self.inference.unary_unary(
            f"/{INFERENCE}.InferenceAPIsService/Ping",
            request_serializer=Empty.SerializeToString,
            response_deserializer=reply.FromString)(Empty(), timeout=30)

    def manage(self, method, request=b"", timeout=60):
        """The message's bytes in, `msg` out: the port of management has no
        reflection of its own to depend on."""
        reply = self.management.unary_unary(
            f"/{MANAGEMENT}.ManagementAPIsService/{method}")(
                request, timeout=timeout, metadata=self.metadata)
        assert not reply or reply[0] == 0x0A
        return text_field(reply)


def field(number, value):
    """A field on the wire; numbers below 128 and short strings only."""
    if isinstance(value, (bool, int)):
        return bytes([number << 3, int(value)])
    data = value.encode()
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def text_field(data):
    """The only field of ManagementResponse."""
    length, at, shift = 0, 1, 0
    while True:
        length |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            break
    assert at + length == len(data)
    return data[at:].decode()


def serve(store, *flags, **options):
    return Server("--profile", "torchserve", "--model-store", store,
                  "--models", "linear=linear.mar", "--enable-model-api",
                  "--grpc-management-port", "0", "--management-port", "0",
                  "--metrics-port", "0", *flags, "--http-port", "0",
                  "--grpc-port", "0", **options)


@pytest.fixture(scope="module")
def client(store):
    server = serve(store, NO_KEYS)
    client = Client(server)
    yield client
    client.close()
    server.stop()


def fails(code, call, *args, **kwargs):
    with pytest.raises(grpc.RpcError) as error:
        call(*args, **kwargs)
    assert error.value.code() is code, error.value
    return error.value.details()


def test_predictions(client):
    row = struct.pack("<3f", 1, 2, 3)
    for data in (b"[1, 2, 3]", row):
        reply = client.predict(model_name="linear", input={"data": data})
        assert json.loads(reply.prediction) == [3, 5, 7]
    reply = client.predict(model_name="linear", model_version="1.0",
                           input={"data": b"[[1, 2, 3], [0, 0, 0]]"})
    assert json.loads(reply.prediction) == [[3, 5, 7], [1, 1, 1]]
    assert json.loads(client.ping().health) == {"status": "Healthy"}


def test_wrong_predictions_name_what_is_wrong(client):
    details = fails(grpc.StatusCode.NOT_FOUND, client.predict,
                    model_name="absent", input={"data": b"[1]"})
    assert "absent" in details and "ModelNotFoundException" in details
    fails(grpc.StatusCode.NOT_FOUND, client.predict, model_name="linear",
          model_version="9", input={"data": b"[1, 2, 3]"})
    assert "model_name" in fails(grpc.StatusCode.INVALID_ARGUMENT,
                                 client.predict, input={"data": b"[1]"})
    assert "BadRequestException" in fails(
        grpc.StatusCode.INVALID_ARGUMENT, client.predict, model_name="linear",
        input={"data": b"[1, 2]"})
    fails(grpc.StatusCode.INVALID_ARGUMENT, client.predict,
          model_name="linear", input={"other": b"[1, 2, 3]"})
    fails(grpc.StatusCode.INVALID_ARGUMENT, client.predict,
          model_name="linear")


def test_streams(client):
    [reply] = client.stream("StreamPredictions", client.message(
        "PredictionsRequest", model_name="linear", input={"data": b"[1, 2, 3]"}))
    assert json.loads(reply.prediction) == [3, 5, 7]

    def requests():
        for i in range(20):
            yield client.message(
                "PredictionsRequest", model_name="linear", sequenceId="s",
                input={"data": b"[0]" if i == 7 else f"[{i}, 0, 0]".encode()})
        yield client.message("PredictionsRequest", model_name="linear",
                             input={"data": b"[1, 2, 3]"})

    replies = list(client.stream("StreamPredictions2", requests()))
    assert len(replies) == 21
    for i, reply in enumerate(replies[:20]):
        assert reply.sequenceId == "s"
        if i == 7:
            assert reply.status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        else:
            assert json.loads(reply.prediction) == [2 * i + 1, 1, 1]
    assert "sequenceId" in replies[20].status.message


def test_management(client):
    listed = json.loads(client.manage("ListModels"))
    assert [each["modelName"] for each in listed["models"]] == ["linear"]
    about = client.manage("RegisterModel", field(9, "other.mar") +
                          field(5, "second") + field(3, 1) + field(8, True))
    assert about.startswith('Model "second" Version: 1.0 registered with 1')
    [model] = json.loads(client.manage("DescribeModel", field(1, "second")))
    assert (model["minWorkers"], len(model["workers"])) == (1, 1)
    reply = client.predict(model_name="second", input={"data": b"[1, 2, 3]"})
    assert json.loads(reply.prediction)
    assert "scaled to 2" in client.manage(
        "ScaleWorker", field(1, "second") + field(4, 2) + field(6, True))
    assert "1.0" in client.manage("SetDefault",
                                  field(1, "second") + field(2, "1.0"))
    assert client.manage("UnregisterModel", field(1, "second")) == \
        'Model "second" unregistered'
    fails(grpc.StatusCode.NOT_FOUND, client.manage, "DescribeModel",
          field(1, "second"))
    assert "url" in fails(grpc.StatusCode.INVALID_ARGUMENT, client.manage,
                          "RegisterModel")
    fails(grpc.StatusCode.NOT_FOUND, client.manage, "RegisterModel",
          field(9, "absent.mar"))
    assert "256" in fails(grpc.StatusCode.INVALID_ARGUMENT, client.manage,
                          "ScaleWorker", field(1, "linear") +
                          b"\x20\x90\x4e")  # min_worker = 10000


def test_an_archive_is_registered_by_its_address(client, store):
    host = Host()
    host.files = {"/m/other.mar": (store / "other.mar").read_bytes()}
    try:
        url = host.url + "/m/other.mar"
        about = client.manage("RegisterModel", field(9, url) +
                              field(5, "fetched") + field(3, 1) +
                              field(8, True))
        assert about.startswith('Model "fetched" Version: 1.0 registered')
        [model] = json.loads(client.manage("DescribeModel",
                                           field(1, "fetched")))
        assert model["modelUrl"] == url
        reply = client.predict(model_name="fetched",
                               input={"data": b"[1, 2, 3]"})
        assert json.loads(reply.prediction)
        client.manage("UnregisterModel", field(1, "fetched"))
        why = fails(grpc.StatusCode.INVALID_ARGUMENT, client.manage,
                    "RegisterModel", field(9, host.url + "/m/absent.mar"))
        assert f"Failed to download archive from: {host.url}/m/absent" in why
        listed = json.loads(client.manage("ListModels"))
        assert [each["modelName"] for each in listed["models"]] == ["linear"]
    finally:
        host.close()


def test_management_is_not_on_the_port_of_inference(client):
    call = client.inference.unary_unary(
        f"/{MANAGEMENT}.ManagementAPIsService/ListModels")
    fails(grpc.StatusCode.UNIMPLEMENTED, call, b"", timeout=30)


def test_idle_streams_do_not_hold_up_the_end(store):
    server = serve(store, NO_KEYS)
    client = Client(server)
    answered = threading.Event()

    def requests():
        yield client.message("PredictionsRequest", model_name="linear",
                             sequenceId="s", input={"data": b"[1, 2, 3]"})
        answered.wait(30)
        server.process.terminate()
        server.process.wait(20)

    replies = client.stream("StreamPredictions2", requests())
    assert json.loads(next(replies).prediction) == [3, 5, 7]
    answered.set()
    with pytest.raises(grpc.RpcError) as error:
        next(replies)
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    client.close()
    assert server.process.wait(20) == 0


# ---- the key file ----

def ask(port, path, key=None, body=None, method=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body,
                                     method=method)
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_keys_are_as_torchserve_makes_them(store, tmp_path):
    server = serve(store, cwd=tmp_path)
    path = tmp_path / "key_file.json"
    keys = json.loads(path.read_text())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    inference, management, api = (keys[name]["key"] for name in
                                  ("inference", "management", "API"))
    ready = next(json.loads(line) for line in server.lines if '"ready"' in line)
    port, manage = server.http_port, ready["management_port"]
    body = b"[1, 2, 3]"
    assert ask(port, "/ping")[0] == 200
    for key in (None, "wrong", management, api):
        status, error = ask(port, "/predictions/linear", key, body)
        assert (status, error["type"]) == (400, "InvalidKeyException"), key
    assert ask(port, "/predictions/linear", inference, body) == (200, [3, 5, 7])
    for key in (None, "wrong", inference, api):
        assert ask(manage, "/models", key)[0] == 400, key
    assert ask(manage, "/models", management)[0] == 200

    # A new key replaces the old one, in the file and for requests.
    for key in (None, inference, management):
        assert ask(manage, "/token?type=inference", key)[0] == 400, key
    assert ask(manage, "/token?type=other", api)[0] == 400
    assert ask(manage, "/token?type=inference", api)[0] == 200
    renewed = json.loads(path.read_text())
    assert renewed["management"] == keys["management"]
    assert renewed["inference"]["key"] != inference
    assert ask(port, "/predictions/linear", inference, body)[0] == 400
    assert ask(port, "/predictions/linear", renewed["inference"]["key"],
               body)[0] == 200

    # Over gRPC, too.
    without = Client(server)
    fails(grpc.StatusCode.UNAUTHENTICATED, without.predict,
          model_name="linear", input={"data": body})
    fails(grpc.StatusCode.UNAUTHENTICATED, without.manage, "ListModels")
    fails(grpc.StatusCode.PERMISSION_DENIED,
          Client(server, [("authorization",
                           f"Bearer {renewed['inference']['key']}")]).manage,
          "ListModels")
    assert "linear" in Client(server, [("authorization",
                                        f"Bearer {management}")]).manage(
        "ListModels")
    server.stop()
    assert not path.exists()
    log = "".join(server.lines)
    assert not any(key in log for key in (inference, management, api))


def test_keys_expire(store, tmp_path):
    """A clock that cannot be moved from outside is waited for: the shortest
    lifetime is a minute, so the expiry itself is a unit test's."""
    config = tmp_path / "config.properties"
    config.write_text("token_expiration_min=30\n")
    server = serve(store, "--ts-config", config, cwd=tmp_path)
    keys = json.loads((tmp_path / "key_file.json").read_text())
    line = next(json.loads(each) for each in server.lines
                if "requests want a key" in each)
    assert line["lifetime_s"] == 1800
    assert keys["inference"]["expiration time"].endswith("Z")
    server.stop()


def test_keys_of_the_operator_replace_them(store, tmp_path):
    server = serve(store, "--api-key", "mine", cwd=tmp_path)
    assert not (tmp_path / "key_file.json").exists()
    assert ask(server.http_port, "/predictions/linear", "mine",
               b"[1, 2, 3]")[0] == 200
    server.stop()


TELLS = """
import time


def tells(data, context):
    if data is None:
        return None
    asked = context.get_request_header(0, "describe")
    return [{"labels": ["a", "b"]} if asked == "True" else b"no"]


def fails(data, context):
    if data is not None:
        raise RuntimeError("knows nothing")


def slow(data, context):
    if data is not None:
        time.sleep(20)
        return [{}]
"""


def test_handlers_in_python_describe_themselves(tmp_path):
    names = ("tells", "fails", "slow")
    for name in names:
        mar(tmp_path, name, TELLS, handler=f"handler:{name}")
    mar(tmp_path, "plain", FUNCTION)
    properties = tmp_path / "config.properties"
    properties.write_text(f"model_store={tmp_path}\npython={sys.executable}\n"
                          "load_models=all\n")
    server = Server("--profile", "torchserve", "--ts-config", properties,
                    NO_KEYS, "--grpc-management-port", "0",
                    "--management-port", "0", "--metrics-port", "0",
                    "--http-port", "0", "--grpc-port", "0")
    client = Client(server)

    def describe(name, *fields, **options):
        asked = field(1, name) + b"".join(fields) + field(3, True)
        return json.loads(client.manage("DescribeModel", asked, **options))

    try:
        for fields in ((), (field(2, "1.0"),)):
            [model] = describe("tells", *fields)
            assert model["customizedMetadata"] == {"labels": ["a", "b"]}
            assert model["modelName"] == "tells" and len(model["workers"]) == 1
        [model] = json.loads(client.manage("DescribeModel", field(1, "tells")))
        assert "customizedMetadata" not in model
        assert "labels" not in json.dumps(describe("tells", field(2, "all")))
        [model] = describe("plain")
        assert model["customizedMetadata"] == {"model": "plain", "keys": []}
        with pytest.raises(grpc.RpcError) as error:
            describe("fails")
        assert "knows nothing" in error.value.details()
        with pytest.raises(grpc.RpcError) as error:
            describe("slow", timeout=1)
        assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert describe("tells")
    finally:
        client.close()
        server.stop()
