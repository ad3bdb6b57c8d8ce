"""Sequences of requests that share a state: an archive whose model-config.yaml
has sequence_batching, asked by StreamPredictions2 and by TorchServe's headers.
The model adds what it gets to what its sequence has got so far."""
import itertools
import json
import time
import urllib.error
import urllib.request
import zipfile

import grpc
import pytest

from test_torchserve import archives
from test_torchserve_grpc import Client, NO_KEYS, fails, serve
from test_torchserve_grpc import field as manage_field
from test_torchserve_workflows import field

YAML = """
sequenceMaxIdleMSec: 60000
maxNumSequence: 3
sequence_batching:
  oldest: {}
  state:
    - {input_name: old, output_name: new}
"""
BAD = {
    "state": (YAML.replace("new}", "absent}"), "absent"),
    "word": (YAML.replace("oldest", "eldest"), "sequence_batching"),
    "handler": (YAML, "base_handler"),
    "aliases": ("sequence_batching:\n  a0: &a0 [x, x, x, x, x, x, x, x]\n" +
                "".join(f"  a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]\n"
                        for i in range(1, 8)), "than 100000 values"),
    "list": ("sequence_batching: [1, 2]\n", "sequence_batching"),
}
ids = (f"s{i}" for i in itertools.count())


def running_sum():
    """ONNX: sum = x + old, new = sum; FP32 [batch, 1]."""
    shape = field(1, field(2, "batch")) + field(1, field(1, 1))
    kind = field(1, field(1, 1) + field(2, shape))
    ports = {name: field(1, name) + field(2, kind)
             for name in ("x", "old", "sum", "new")}
    nodes = [field(1, "x") + field(1, "old") + field(2, "sum") +
             field(4, "Add"),
             field(1, "sum") + field(2, "new") + field(4, "Identity")]
    graph = (b"".join(field(1, node) for node in nodes) + field(2, "sum") +
             b"".join(field(11, ports[name]) for name in ("x", "old")) +
             b"".join(field(12, ports[name]) for name in ("sum", "new")))
    return (field(1, 8) + bytes([7 << 3 | 2, len(graph) & 127 | 128,
                                 len(graph) >> 7]) + graph +
            field(8, field(2, 17)))


def mar(store, name, yaml, **fields):
    with zipfile.ZipFile(store / f"{name}.mar", "w") as out:
        out.writestr("sum.onnx", running_sum())
        out.writestr("c.yaml", yaml)
        out.writestr("MAR-INF/MANIFEST.json", archives.manifest(
            name, "1.0", "onnx", serializedFile="sum.onnx",
            configFile="c.yaml", **fields))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("store")
    archives.write_store(root, "onnx")
    mar(root, "sum", YAML)
    mar(root, "brief", YAML.replace("60000", "200"))
    for name, (yaml, _) in BAD.items():
        mar(root, name, yaml, **(
            {"handler": "image_classifier"} if name == "handler" else {}))
    return root


@pytest.fixture(scope="module")
def server(store):
    # The last --models counts.
    running = serve(store, NO_KEYS, "--models", "sum=sum.mar", "brief=brief.mar")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def client(server):
    client = Client(server)
    yield client
    client.close()


def ask(client, *messages, model="sum"):
    """(sequence, value[, inputs that tell more]) each; sums or errors."""
    def requests():
        for sequence, value, *more in messages:
            yield client.message("PredictionsRequest", model_name=model,
                                 sequenceId=sequence, input={
                                     "x": f"[{value}]".encode(),
                                     **{f"ts_request_sequence_{name}": b"true"
                                        for name in more}})
    replies = list(client.stream("StreamPredictions2", requests()))
    assert [reply.sequenceId for reply in replies] == \
        [message[0] for message in messages]
    return [reply.status.message or json.loads(reply.prediction)
            for reply in replies]


def rest(server, value, model="sum", **headers):
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.http_port}/predictions/{model}",
        f'{{"x": [{value}]}}'.encode(), {
            "Content-Type": "application/json",
            **{f"ts_request_sequence_{name}": text
               for name, text in headers.items()}})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["message"]


def test_a_sequence_keeps_its_state(client):
    a, b = next(ids), next(ids)
    assert ask(client, (a, 1), (a, 2), (b, 10), (a, 3), (b, 20),
               (b, 0, "end"), (a, 0, "end")) == [
        [1], [3], [10], [6], [30], [30], [6]]
    # Both have ended: their names are free.
    assert ask(client, (a, 5, "end"), (b, 7, "end")) == [[5], [7]]


def test_a_sequence_goes_on_in_another_stream_and_over_rest(client, server):
    a = next(ids)
    assert ask(client, (a, 1), (a, 2)) == [[1], [3]]
    assert ask(client, (a, 3)) == [[6]]
    assert rest(server, 4, id=a) == (200, [10])
    assert ask(client, (a, 5, "start"), (a, 1)) == [[5], [6]]
    assert rest(server, 1, id=a, end="true") == (200, [7])
    assert rest(server, 1, id=a, start="true", end="true") == (
        200, [1])


def test_a_failed_request_leaves_the_state_as_it_was(client):
    a = next(ids)
    [first, wrong, last] = ask(client, (a, 1), (a, '"x"'), (a, 2, "end"))
    assert (first, last) == ([1], [3])
    assert "BadRequestException" in wrong


def test_a_request_without_a_sequence_is_refused(client, server):
    status, message = rest(server, 1)
    assert status == 400 and "sequence_id" in message
    details = fails(grpc.StatusCode.INVALID_ARGUMENT, client.predict,
                    model_name="sum", input={"x": b"[1]"})
    assert "sequence_id" in details


def test_no_more_sequences_than_allowed(client):
    live = [next(ids) for _ in range(3)]
    ask(client, *((each, 1) for each in live))
    [refused] = ask(client, (next(ids), 1))
    assert "keeps 3 sequences" in refused
    ask(client, *((each, 1, "end") for each in live))
    assert ask(client, (next(ids), 1, "end")) == [[1]]


def test_an_idle_sequence_ends(client):
    a = next(ids)
    assert ask(client, (a, 1), model="brief") == [[1]]
    time.sleep(1)
    assert ask(client, (a, 5), model="brief") == [[5]]


def test_what_is_wrong_with_sequences_is_told_at_registration(client):
    for name, (_, word) in BAD.items():
        details = fails(
            grpc.StatusCode.FAILED_PRECONDITION if name == "handler"
            else grpc.StatusCode.INVALID_ARGUMENT,
            client.manage, "RegisterModel",
            manage_field(9, f"{name}.mar") + manage_field(3, 1) +
            manage_field(8, True))
        assert word in details, (name, details)
        fails(grpc.StatusCode.NOT_FOUND, client.manage, "DescribeModel",
              manage_field(1, name))
