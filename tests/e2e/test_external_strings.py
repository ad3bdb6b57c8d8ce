"""Tensors of BYTES that external handlers take and give, in Python and C++."""
import json
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import start
from test_external import (ANY, ask, external, in_cpp, put,  # noqa: F401
                           python)
from triton_clients import strings, triton  # noqa: F401 (a fixture)

WORDS = """
import millrace_handler, numpy as np

class Words(millrace_handler.Handler):
    inputs = {"x": ("BYTES", [-1, 2])}
    outputs = {"upper": ("BYTES", [-1, 2]), "count": ("INT32", [-1, 2])}

    def handle(self, inputs, context):
        x = inputs["x"]
        assert x.dtype == object and all(type(v) is bytes for v in x.flat)
        return {"upper": [[v.decode().upper() for v in row] for row in x]
                if x.size else x,
                "count": np.array([[len(v) for v in row] for row in x],
                                  np.int32).reshape(x.shape)}

millrace_handler.serve(Words())
"""
ASKS_WORDS = """
import millrace_handler

class Asks(millrace_handler.Handler):
    inputs = {"x": ("BYTES", [-1, -1])}
    def handle(self, inputs, context):
        return context.call("words", inputs, ["upper"])

millrace_handler.serve(Asks())
"""
CPP_STRINGS = """
#include "millrace_handler.h"
int main() {
  millrace::Handler handler;
  handler.inputs = {{"x", "BYTES", {-1}, {}}};
  handler.Serve([](const millrace::Tensors& in, millrace::Context& context) {
    millrace::Tensor y = in.at(0), count{"count", "INT64", {1}, "12345678"};
    y.name = "y";
    std::vector<std::string> texts = y.Strings();
    for (std::string& text : texts) text += "!";
    y.SetStrings(texts);
    count.Values<int64_t>()[0] = int64_t(texts.size());
    return millrace::Tensors{y, count};
  });
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory, python):  # noqa: F811
    root = tmp_path_factory.mktemp("repository")
    external(root, "any", ANY)
    external(root, "words", WORDS)
    external(root, "asks_words", ASKS_WORDS)
    with start("--model-repository", root, env=python) as running:
        yield running


STRINGS = [
    [[b"ada", "\u00e9t\u00e9".encode()], [b"", b"a\0b"]],
    [[b"x" * 40_000, b"y" * 70_000]] * 3,    # through the shared memory
    [[b"x" * 7_000_000, b"z"]] * 7,          # beyond it: inline
]


@pytest.mark.parametrize("values", STRINGS, ids=["small", "shared", "large"])
def test_strings_go_there_and_back(triton, values):  # noqa: F811
    module, client = triton
    values = np.array(values, object)
    given = [strings(module, "x", values)]
    got = client.infer("words", given)
    upper = [[v.decode().upper().encode() for v in row] for row in values]
    assert got.as_numpy("upper").tolist() == upper
    assert got.as_numpy("count").tolist() == [
        [len(v) for v in row] for row in values]


def test_no_strings_and_outputs_that_are_wanted(triton):  # noqa: F811
    module, client = triton
    got = client.infer("words", [strings(module, "x", np.empty((0, 2), object))])
    assert got.as_numpy("upper").shape == (0, 2)
    got = client.infer("words", [strings(module, "x", [[b"a", b"bc"]])],
                       outputs=[module.InferRequestedOutput("count")])
    assert got.as_numpy("upper") is None
    assert got.as_numpy("count").tolist() == [[1, 2]]


def test_strings_as_json(server):
    body = json.dumps({"inputs": [{"name": "x", "datatype": "BYTES",
                                   "shape": [1, 2], "data": ["ada", "\u00e9"]}]})
    got = json.load(urllib.request.urlopen(
        server.url + "/v2/models/words/infer", body.encode(), timeout=30))
    assert {o["name"]: o["data"] for o in got["outputs"]} == {
        "upper": ["ADA", "\u00c9"], "count": [3, 2]}


def test_strings_of_other_models(triton):  # noqa: F811
    module, client = triton
    text = np.array([[b"ada", b"x" * 30_000]], object)
    got = client.infer("asks_words", [strings(module, "x", text)])
    assert got.as_numpy("upper").tolist() == [[b"ADA", b"X" * 30_000]]
    assert got.as_numpy("count") is None


def test_strings_go_through_an_ensemble(tmp_path, python):  # noqa: F811
    external(tmp_path, "words", WORDS)
    put(tmp_path, "twice", {}, """
ensemble:
  inputs: [text]
  outputs: [upper, count]
  steps:
    - {model: words, inputs: {x: text}, outputs: {upper: first}}
    - {model: words, inputs: {x: first}, outputs: {upper: upper, count: count}}
""")
    with start("--model-repository", tmp_path, env=python) as server:
        client = triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}")
        text = [[b"ada", b"x" * 30_000]]
        got = client.infer("twice", [strings(triton_http, "text", text)])
        assert got.as_numpy("upper").tolist() == [[b"ADA", b"X" * 30_000]]
        assert got.as_numpy("count").tolist() == [[3, 30_000]]


def test_strings_of_a_handler_that_says_nothing_are_parts_of_a_task(triton):  # noqa: F811
    """Those of TorchServe get them so, one by one."""
    module, client = triton
    y = module.InferInput("y", [1], "FP32")
    y.set_data_from_numpy(np.ones(1, np.float32))
    with pytest.raises(InferenceServerException) as refused:
        client.infer("any", [strings(module, "x", [b"text"]), y])
    assert "a task takes BYTES alone" in str(refused.value)
    got = client.infer("any", [strings(module, "x", [b"text"])])
    assert got.as_numpy("output").tolist() == [b"text"]
    assert ask(triton, "any", [4]) == [4]


def test_strings_in_cpp(tmp_path, python):  # noqa: F811
    in_cpp(tmp_path, "exclaim", CPP_STRINGS)
    with start("--model-repository", tmp_path, env=python) as server:
        client = triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}")
        for values in [b"ada", b"", b"a\0b"], [b"x" * 100_000] * 2, []:
            given = strings(triton_http, "x", values)
            got = client.infer("exclaim", [given])
            assert got.as_numpy("y").tolist() == [v + b"!" for v in values]
            assert got.as_numpy("count").tolist() == [len(values)]
        got = client.infer("exclaim", [given], outputs=[
            triton_http.InferRequestedOutput("count")])
        assert got.as_numpy("y") is None


CPP_REFUSES = """
#include "millrace_handler.h"
int main() {
  millrace::Handler handler;
  handler.Serve([](const millrace::Tensors& in, millrace::Context& context) {
    const std::string text(in.at(0).bytes);
    if (text == "call") return context.Call("\\xff", in);
    if (text != "name") throw std::runtime_error("unknown " + text);
    millrace::Tensor y = in.at(0);
    y.name = "\\xff";
    return millrace::Tensors{y};
  });
}
"""
REFUSES = """
import millrace_handler, numpy as np

class Refuses(millrace_handler.Handler):
    def handle(self, inputs, context):
        text = bytes(inputs["data"]).decode()
        if text == "large":
            return {"y": np.zeros(65 << 20, np.uint8)}
        raise ValueError("unknown " + text.replace("?", "\\ud800"))

millrace_handler.serve(Refuses())
"""


def test_what_a_client_sends_ends_no_process(tmp_path, python):  # noqa: F811
    """Its bytes in an exception's text, or in the name of an output."""
    in_cpp(tmp_path, "cpp", CPP_REFUSES)
    external(tmp_path, "py", REFUSES)
    with start("--model-repository", tmp_path, env=python) as server:
        def post(model, body):
            try:
                return urllib.request.urlopen(urllib.request.Request(
                    f"{server.url}/v1/tasks/{model}", body,
                    {"Content-Type": "text/plain"}), timeout=30).read()
            except urllib.error.HTTPError as refused:
                return refused.code, json.load(refused)["error"]["message"]
        for model, body, code, told in [
                ("cpp", b"a\xfeb", 400, "unknown a\ufffdb"),
                ("cpp", b"call", 400, "\ufffd"),
                ("py", b"a?", 400, "ValueError: unknown a\\ud800"),
                ("py", b"large", 400, "raise shared_memory")]:
            got = post(model, body)
            assert got[0] == code and told in got[1], got
        assert post("cpp", b"name") == b"name"
        assert not any(
            server.metric("millrace_external_restarts_total").values())
