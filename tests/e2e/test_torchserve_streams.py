"""Handlers in Python that answer in parts, as with TorchServe's
send_intermediate_predict_response: in chunks over REST, in messages over gRPC."""
import http.client
import socket
import sys
import time

import grpc
import pytest

from test_torchserve import torchserve
from test_torchserve_grpc import Client
from test_torchserve_python import mar

HANDLER = """
import time
from ts.protocol.otf_message_handler import send_intermediate_predict_response
from ts.handler_utils.utils import send_intermediate_predict_response as same
assert same is send_intermediate_predict_response


def handle(data, context):
    if data is None:
        return None
    said = bytes(data[0]["body"]).decode()
    for i in range(3):
        part = "x" * (40 << 20) if said == "large" else f"part{i} "
        send_intermediate_predict_response(
            [part], context.request_ids, "Intermediate Prediction success",
            200, context)
        time.sleep(0.4)
        if said == "fail" and i == 1:
            raise ValueError("in the middle")
    return ["last"]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("store")
    mar(root, "parts", HANDLER)
    properties = tmp_path_factory.mktemp("config") / "config.properties"
    properties.write_text(f"model_store={root}\npython={sys.executable}\n"
                          "load_models=parts-1.0.mar\n")
    with torchserve("--ts-config", properties) as running:
        yield running


def chunks(server, body=b"abc"):
    """The head, and what came when."""
    begun = time.monotonic()
    with socket.create_connection(
            ("127.0.0.1", server.ports["inference"]), 60) as connection:
        connection.sendall(b"POST /predictions/parts HTTP/1.1\r\nHost: x\r\n"
                           b"Connection: close\r\nContent-Length: %d\r\n\r\n"
                           % len(body) + body)
        came = []
        while data := connection.recv(65536):
            came.append((time.monotonic() - begun, data))
    return came


def test_parts_are_chunks_as_they_come(server):
    came = chunks(server)
    text = b"".join(data for _, data in came)
    head, _, body = text.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"transfer-encoding: chunked" in head.lower()
    assert b"ts_stream_next: true" in head and b"content-type" not in \
        head.lower()
    assert body == (b"6\r\npart0 \r\n6\r\npart1 \r\n6\r\npart2 \r\n"
                    b"4\r\nlast\r\n0\r\n\r\n")
    when = {part: at for at, data in came
            for part in (b"part0", b"last") if part in data}
    assert when[b"last"] - when[b"part0"] > 1  # three pauses of 0.4 s


def test_an_answer_that_fails_in_the_middle_is_cut(server):
    connection = http.client.HTTPConnection(
        "127.0.0.1", server.ports["inference"], timeout=60)
    connection.request("POST", "/predictions/parts", b"fail")
    answer = connection.getresponse()
    with pytest.raises(http.client.IncompleteRead) as cut:
        answer.read()
    assert cut.value.partial == b"part0 part1 "


def test_parts_have_a_bound(server):
    connection = http.client.HTTPConnection(
        "127.0.0.1", server.ports["inference"], timeout=60)
    connection.request("POST", "/predictions/parts", b"large")
    with pytest.raises(http.client.IncompleteRead) as cut:
        connection.getresponse().read()
    assert len(cut.value.partial) == 40 << 20
    assert chunks(server)  # the process goes on


def test_a_client_that_leaves_costs_nobody_else(server):
    with socket.create_connection(
            ("127.0.0.1", server.ports["inference"]), 60) as connection:
        connection.sendall(b"POST /predictions/parts HTTP/1.1\r\nHost: x\r\n"
                           b"Content-Length: 3\r\n\r\nabc")
        connection.recv(100)
    assert b"".join(d for _, d in chunks(server)).endswith(b"0\r\n\r\n")


def test_messages_of_grpc(server):
    client = Client(server)

    def ask(method, body):
        return client.stream(method, client.message(
            "PredictionsRequest", model_name="parts", input={"body": body}))
    begun, came = time.monotonic(), []
    for message in ask("StreamPredictions", b"abc"):
        came.append((time.monotonic() - begun, message.prediction))
    assert [text for _, text in came] == [b"part0 ", b"part1 ", b"part2 ",
                                          b"last"]
    assert came[-1][0] - came[0][0] > 1
    came = []
    with pytest.raises(grpc.RpcError) as error:
        for message in ask("StreamPredictions", b"fail"):
            came.append(message.prediction)
    assert came == [b"part0 ", b"part1 "]
    assert "in the middle" in error.value.details()
    # Where there is one message, it has all parts.
    assert client.predict(model_name="parts", input={
        "body": b"abc"}).prediction == b"part0 part1 part2 last"
    client.close()
