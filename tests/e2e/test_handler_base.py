"""The bases of external handlers against Google's protocol buffers: this test is
the server, and the handler a process behind its socket."""
import ast
import fcntl
import json
import mmap
import os
import socket
import struct
import subprocess
import sys

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from conftest import REPO

BASES = REPO / "handlers" / "external"
SHARED_BYTES = 1 << 20
SPACE = (1 << 16, 1 << 19)  # begin and size of what a request lends

HANDLER = """
import millrace_handler, numpy as np

class Work(millrace_handler.Handler):
    inputs = {"x": ("FP32", [-1, 3]), "of": ("BYTES", [])}
    outputs = {"y": ("FP32", [-1, 3])}

    def initialize(self, context):
        self.name = f"{context.model} {context.version}"

    def handle(self, inputs, context):
        what = context.parameters.get("what")
        if what == "call":
            return context.call("other", inputs, ["z"], "7")
        if what == "parts":
            context.part({"y": np.float16([1])})
        if what == "fail":
            raise ValueError("no good")
        if what == "fail with text":
            raise ValueError(context.parameters["text"] * 100_000)
        if what == "fail without text":
            raise NoText()
        if what == "large":
            return {"y": np.zeros(65 << 20, np.uint8)}
        if what == "large call":
            return context.call("other", {"y": np.zeros(65 << 20, np.uint8)})
        if what == "unwritable name":
            return {"\\ud800": np.zeros(1)}
        if what == "many":
            return {str(i): np.full(100_000, i, np.int8) for i in range(7)}
        if what == "texts":
            return {"y": np.array([["a", b"\\xff"], [self.name, 5]], object),
                    "z": np.array("\\u00fc"), "b": np.array([True, False])}
        return {name: array[::-1] for name, array in inputs.items()}

class NoText(Exception):
    def __str__(self):
        raise AttributeError("it has none")

millrace_handler.serve(Work())
"""
IN_CPP = """
#include "millrace_handler.h"
int main() {
  millrace::Handler handler;
  handler.Serve([](const millrace::Tensors& in, millrace::Context& context) {
    millrace::Tensor y = in.at(0);
    if (y.datatype == "BYTES") throw std::runtime_error("unknown " + y.bytes);
    if (y.bytes.empty()) y.bytes.resize(65 << 20);
    if (context.parameters == "call") return context.Call("other", {y});
    return millrace::Tensors{y};
  });
}
"""


@pytest.fixture(scope="module")
def message_class(tmp_path_factory):
    """The class Message, as protoc reads handler.proto."""
    file = tmp_path_factory.mktemp("proto") / "set"
    subprocess.run(["protoc", "-I", BASES / "proto", "handler.proto",
                    f"--descriptor_set_out={file}"], check=True)
    pool = descriptor_pool.DescriptorPool()
    for each in descriptor_pb2.FileDescriptorSet.FromString(
            file.read_bytes()).file:
        pool.Add(each)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName("millrace.handler.Message"))


class Peer:
    """The server's end."""

    def __init__(self, folder, message_class, *command):
        self.Message = message_class
        memory = os.memfd_create("shared")
        os.ftruncate(memory, SHARED_BYTES)
        self.memory = mmap.mmap(memory, 0)
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(60)
        # Bash puts both where a handler looks for them.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 100) for end in (theirs, memory)]
        self.process = subprocess.Popen(
            ["bash", "-c", "exec {} 3<&{} 4<&{}".format(
                " ".join(command), *ends)], cwd=folder, pass_fds=ends, env={
                **os.environ, "PYTHONPATH": str(BASES / "python"),
                "MILLRACE_MODEL": "work", "MILLRACE_VERSION": "2"})
        for end in (memory, *ends):
            os.close(end)
        theirs.close()
        self.stream = self.socket.makefile("rb")
        self.ready = self.receive()

    def send(self, **fields):
        data = self.Message(**fields).SerializeToString()
        self.socket.sendall(struct.pack("<I", len(data)) + data)

    def receive(self):
        size, = struct.unpack("<I", self.stream.read(4))
        return self.Message.FromString(self.stream.read(size))

    def ask(self, what, *tensors, text="", **fields):
        self.send(kind="REQUEST", id=1 << 40, tensors=tensors,
                  parameters=json.dumps({"what": what, "text": text})
                  if what else "", **fields)
        return self.receive()

    def end(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        assert self.process.wait(60) == 0


@pytest.fixture(scope="module")
def peer(tmp_path_factory, message_class):
    folder = tmp_path_factory.mktemp("handler")
    (folder / "handler.py").write_text(HANDLER)
    peer = Peer(folder, message_class, sys.executable, "handler.py")
    yield peer
    peer.end()


def tensor(name, array):
    return {"name": name.encode(), "datatype": "FP32", "shape": array.shape,
            "data": array.tobytes()}


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def kind_of(message):
    kinds = message.DESCRIPTOR.fields_by_name["kind"].enum_type.values_by_number
    return kinds[message.kind].name


def test_it_says_what_it_takes_and_gives(peer):
    assert kind_of(peer.ready) == "READY"
    assert [(t.name, t.datatype, list(t.shape)) for t in peer.ready.inputs] == [
        (b"x", "FP32", [-1, 3]), (b"of", "BYTES", [])]
    assert [(t.name, list(t.shape)) for t in peer.ready.tensors] == [
        (b"y", [-1, 3])]


def test_arrays_come_back_with_the_id_of_their_request(peer):
    texts = {"name": b"of", "datatype": "BYTES", "shape": [2],
             "data": b"\1\0\0\0a\0\0\0\0"}
    got = peer.ask("", tensor("x", X), texts)
    assert (kind_of(got), got.id, got.error) == ("RESPONSE", 1 << 40, b"")
    x, of = got.tensors
    assert (x.name, x.datatype, list(x.shape)) == (b"x", "FP32", [2, 3])
    np.testing.assert_array_equal(np.frombuffer(x.data, "<f4"),
                                  X[::-1].reshape(-1))
    assert (of.datatype, list(of.shape)) == ("BYTES", [2])
    assert of.data == b"\0\0\0\0\1\0\0\0a"


def test_texts_numbers_and_scalars(peer):
    y, z, b = peer.ask("texts").tensors
    assert (y.datatype, list(y.shape)) == ("BYTES", [2, 2])
    assert y.data == b"\1\0\0\0a\1\0\0\0\xff\6\0\0\0work 2\1\0\0\0" b"5"
    assert (z.datatype, list(z.shape), z.data) == ("BYTES", [], b"\2\0\0\0\xc3\xbc")
    assert (b.datatype, b.data) == ("BOOL", b"\1\0")


def test_large_tensors_go_through_the_memory_while_they_fit(peer):
    at, size = SPACE
    got = peer.ask("many", space_offset=at, space_bytes=size)
    for i, each in enumerate(got.tensors):
        where = peer.memory[each.shared_offset:][:each.shared_bytes]
        assert len(where or each.data) == 100_000
        assert (where or each.data) == bytes([i]) * 100_000
        # Five of them have room.
        assert each.shared_offset == (at + i * 100_000 if i < 5 else 0)
    values = np.arange(30_000, dtype=np.float32)
    peer.memory[64:64 + values.nbytes] = values.tobytes()
    got = peer.ask("", {"name": b"x", "datatype": "FP32", "shape": [30_000],
                        "shared_offset": 64, "shared_bytes": values.nbytes})
    np.testing.assert_array_equal(
        np.frombuffer(got.tensors[0].data, "<f4"), values[::-1])


@pytest.mark.parametrize("result, answer", [
    ({"tensors": [tensor("z", X)]}, {"tensors": [tensor("z", X)]}),
    ({"error": b"there is none"}, {"error": b"RuntimeError: there is none"})])
def test_a_call_gets_its_result(peer, result, answer):
    call = peer.ask("call", tensor("x", X))
    assert (kind_of(call), call.model, call.version) == ("CALL", b"other", b"7")
    assert list(call.outputs) == [b"z"] and call.tensors[0].data == X.tobytes()
    peer.send(kind="RESULT", id=call.id, **result)
    assert peer.receive() == peer.Message(kind="RESPONSE", id=1 << 40, **answer)


def test_parts_come_before_the_answer(peer):
    part = peer.ask("parts", tensor("x", X))
    assert (kind_of(part), part.id) == ("PART", 1 << 40)
    assert (part.tensors[0].datatype, part.tensors[0].data) == ("FP16", b"\0<")
    assert kind_of(peer.receive()) == "RESPONSE"


def test_an_error_is_the_answer_to_its_request_alone(peer):
    assert peer.ask("fail").error == b"ValueError: no good"
    assert b"BF16" in peer.ask("", {
        "name": b"x", "datatype": "BF16", "shape": [1], "data": b"00"}).error
    assert peer.ask("", tensor("x", X)).error == b""


def test_an_error_may_have_any_text(peer):
    got = peer.ask("fail with text", text="\ud800 \u00fc ").error
    assert got.startswith(b"ValueError: \\ud800 \xc3\xbc ")
    assert len(got) < 1 << 20
    assert peer.ask("fail without text").error == b"NoText"
    assert b"surrogates" in peer.ask("unwritable name").error
    assert peer.ask("", tensor("x", X)).error == b""


def test_a_message_that_is_too_large_is_an_error_of_its_request(peer):
    for what in "large", "large call":
        got = peer.ask(what, space_offset=SPACE[0], space_bytes=SPACE[1])
        assert kind_of(got) == "RESPONSE"
        assert b"may have 67108864; raise shared_memory" in got.error
    assert peer.ask("", tensor("x", X)).error == b""


def test_errors_in_cpp_are_those_of_their_requests(tmp_path, message_class):
    (tmp_path / "main.cc").write_text(IN_CPP)
    subprocess.run(["g++", "-std=c++17", "-O1", "-I", BASES / "cpp", "-o",
                    tmp_path / "handler", tmp_path / "main.cc"], check=True)
    peer = Peer(tmp_path, message_class, "./handler")

    def ask(bytes, datatype="UINT8", parameters=""):
        peer.send(kind="REQUEST", id=7, parameters=parameters, tensors=[{
            "name": b"\xff", "datatype": datatype, "shape": [1], "data": bytes}])
        return peer.receive()
    assert ask(b"\xfe", "BYTES").error == b"unknown \xfe"
    assert len(ask(b"a" * (1 << 20), "BYTES").error) == 1 << 16
    for parameters in "", "call":
        got = ask(b"", parameters=parameters)
        assert b"may have 67108864; raise shared_memory" in got.error
    got = ask(b"a")
    assert (got.error, got.tensors[0].name) == (b"", b"\xff")
    peer.end()


def test_the_base_is_sixty_lines_of_the_standard_library():
    text = (BASES / "python" / "millrace_handler.py").read_text()
    assert len(text.splitlines()) <= 60
    for name in ["millrace_handler.py", "millrace_wire.py"]:
        text = (BASES / "python" / name).read_text()
        assert max(map(len, text.splitlines())) <= 88
        modules = {alias.name for node in ast.walk(ast.parse(text))
                   if isinstance(node, ast.Import) for alias in node.names}
        assert modules <= sys.stdlib_module_names | {"numpy", "millrace_wire"}
