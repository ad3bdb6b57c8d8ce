"""What tests of sessions share: models, a client, and bare sockets that speak
frames (RFC 6455, section 5.2)."""
import base64
import contextlib
import importlib.util
import json
import os
import pathlib
import shutil
import socket
import struct
import time

from websockets.sync.client import connect

from conftest import REPO
from test_sequences import YAML

SUM = REPO / "tests" / "data" / "sequences" / "running_sum.onnx"
SILERO = pathlib.Path(importlib.util.find_spec(
    "silero_vad").submodule_search_locations[0]) / "data" / "silero_vad.onnx"
SILERO_CONFIG = """
sequence_batching:
  max_sequence_idle_microseconds: 60000000
  oldest: {max_candidate_sequences: 1000}
  state:
    - {input_name: state, output_name: stateN, data_type: TYPE_FP32, dims: [2, 1, 128]}
"""


def put(root, name, model, config):
    (root / name / "1").mkdir(parents=True)
    shutil.copy(model, root / name / "1" / "model.onnx")
    (root / name / "config.yaml").write_text(config)


def put_sum(root, name="sum", config=YAML):
    put(root, name, SUM, config)


def url(server, model="sum"):
    return f"ws://127.0.0.1:{server.http_port}/v2/models/{model}/sessions"


@contextlib.contextmanager
def session(server, model="sum", **kwargs):
    with connect(url(server, model), compression=None, **kwargs) as opened:
        yield opened


def ask(opened, message):
    opened.send(message if isinstance(message, (str, bytes))
                else json.dumps(message))
    return json.loads(opened.recv(timeout=30))


def number(value, end=False, **more):
    body = {"inputs": [{"name": "INPUT", "datatype": "INT32",
                        "shape": [1, 1], "data": [value]}], **more}
    if end:
        body["parameters"] = {"sequence_end": True}
    return body


def sum_of(answer):
    assert "error" not in answer, answer
    return next(output["data"][0] for output in answer["outputs"]
                if output["name"] == "OUTPUT")


def live(server, model="sum"):
    return server.metric("millrace_sequences")[f'{{model="{model}"}}']


def wait_for(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


class RawSocket(socket.socket):
    """A bare socket behind the upgrade; `head` is that of the response."""


def raw_session(server, model="sum", headers=""):
    opened = RawSocket(fileno=socket.create_connection(
        ("127.0.0.1", server.http_port), 30).detach())
    opened.settimeout(30)
    key = base64.b64encode(os.urandom(16)).decode()
    opened.sendall(
        f"GET /v2/models/{model}/sessions HTTP/1.1\r\nHost: x\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        f"{headers}\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        got = opened.recv(4096)
        assert got, head
        head += got
    assert head.startswith(b"HTTP/1.1 101"), head
    opened.head = head
    return opened


def frame(opcode, data=b"", final=True, masked=True, length=None):
    length = len(data) if length is None else length
    bits = 0x80 if masked else 0
    head = bytes([(0x80 if final else 0) | opcode])
    if length < 126:
        head += bytes([bits | length])
    elif length < 65536:
        head += bytes([bits | 126]) + struct.pack(">H", length)
    else:
        head += bytes([bits | 127]) + struct.pack(">Q", length)
    if not masked:
        return head + data
    mask = b"\1\2\3\4"
    return head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data))


def close_of(opened):
    """Code and reason of the close frame that comes, behind anything else; none:
    a reset."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while got := opened.recv(65536):
            data += got
    at = 0
    while at + 2 <= len(data):
        size = data[at + 1] & 127
        skip = 2
        if size == 126:
            size, skip = struct.unpack(">H", data[at + 2: at + 4])[0], 4
        if data[at] & 15 == 8:
            return (struct.unpack(">H", data[at + 2: at + 4])[0],
                    data[at + 4: at + 2 + size].decode())
        at += skip + size
    return None
