"""Keys with scopes and tenants with limits, on each protocol by its own
clients."""
import json
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request

import grpc
import numpy as np
import openai
import pytest
import tritonclient.grpc as triton
from certificates import replace
from conftest import BINARY, MODEL, MODEL_ID, REPO, start

GRAPH = REPO / "tests/data/graph/mlp.onnx"
SCOPES = ("infer", "manage", "metrics")


def create(*flags):
    """A key and its entry, as `millrace keys create` prints them."""
    done = subprocess.run([BINARY, "keys", "create", *flags],
                          capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stderr.strip(), done.stdout


class Keys:
    """A file of keys, one for each scope and one for each tenant."""

    TENANTS = """tenants:
  slow: {requests_per_second: 0.5, request_burst: 2}
  thrifty: {tokens_per_minute: 20}
  narrow: {max_concurrent_requests: 1}
  graphs: {models: [mlp]}
  roomy: {requests_per_second: 1000, tokens_per_minute: 1000000, priority: 5}
"""

    def __init__(self, path):
        self.path = path
        self.keys, entries = {}, ""
        for scope in SCOPES:
            self.keys[scope], entry = create("--id", scope, "--scopes", scope)
            entries += entry
        for tenant in ("slow", "thrifty", "narrow", "graphs", "roomy"):
            self.keys[tenant], entry = create("--id", tenant, "--tenant",
                                              tenant)
            entries += entry
        self.text = self.TENANTS + "keys:\n" + entries
        path.write_text(self.text)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return Keys(tmp_path_factory.mktemp("keys") / "keys.yaml")


@pytest.fixture(scope="module")
def guarded(keys):
    with start(f"mlp={GRAPH}", f"{MODEL_ID}={MODEL}", "--api-keys-file",
               keys.path, "--max-model-len", 512) as running:
        yield running


def call(server, method, path, key=None, body=None, header="Authorization"):
    """Status, headers and body."""
    headers = {"Content-Type": "application/json"}
    if key is not None:
        headers[header] = f"Bearer {key}" if header == "Authorization" else key
    request = urllib.request.Request(
        server.url + path, method=method, headers=headers,
        data=None if body is None else json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


CHAT = {"model": MODEL_ID, "max_tokens": 2,
        "messages": [{"role": "user", "content": "Hi"}]}
TENSORS = {"inputs": [
    {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]},
    {"name": "scale", "datatype": "FP32", "shape": [1], "data": [0.5]}]}

# method, path, body, the scopes that it is open to; None: no key is wanted.
ROUTES = [
    ("GET", "/health", None, None),
    ("GET", "/v2/health/ready", None, None),
    ("GET", "/version", None, None),
    ("GET", "/metrics", None, ["metrics"]),
    ("GET", "/v1/models", None, SCOPES),
    ("POST", "/v1/chat/completions", CHAT, ["infer"]),
    ("POST", "/v1/completions",
     {"model": MODEL_ID, "prompt": "Hi", "max_tokens": 2}, ["infer"]),
    ("POST", "/tokenize", {"model": MODEL_ID, "prompt": "Hi"}, ["infer"]),
    ("GET", "/v2", None, SCOPES),
    ("GET", "/v2/models/mlp", None, SCOPES),
    ("POST", "/v2/models/mlp/infer", TENSORS, ["infer"]),
    ("POST", f"/v2/models/{MODEL_ID}/generate",
     {"text_input": "Hi", "max_tokens": 2}, ["infer"]),
    ("GET", "/v2/models/mlp/stats", None, ["metrics"]),
    ("POST", "/v2/repository/index", {}, ["manage"]),
    ("GET", "/v2/logging", None, ["manage"]),
    ("POST", "/v2/logging", {}, ["manage"]),
    ("GET", "/v2/trace/setting", None, ["manage"]),
]


def code_of(path, body):
    """What the error says, in the shape of the path's protocol."""
    error = json.loads(body)["error"]
    if path.startswith("/v2"):
        assert isinstance(error, str)
        return error
    assert set(error) == {"message", "type", "param", "code"}
    return error["message"]


@pytest.mark.parametrize("method, path, body, scopes", ROUTES,
                         ids=[f"{r[0]} {r[1]}" for r in ROUTES])
def test_each_scope_at_each_route(guarded, keys, method, path, body, scopes):
    status, _, _ = call(guarded, method, path, None, body)
    assert status == (200 if scopes is None else 401)
    status, headers, said = call(guarded, method, path, "mr_" + "x" * 43, body)
    assert status == (200 if scopes is None else 401)
    if scopes is None:
        return
    assert headers["WWW-Authenticate"].startswith("Bearer")
    code_of(path, said)
    for scope in SCOPES:
        for header in ("Authorization", "x-api-key"):
            status, _, said = call(guarded, method, path, keys.keys[scope],
                                   body, header)
            if scope in scopes:
                assert status == 200, said
            else:
                assert status == 403
                assert scopes[0] in code_of(path, said)


@pytest.mark.parametrize("method, scopes", [
    ("is_server_live", None),
    ("is_server_ready", None),
    ("get_server_metadata", SCOPES),
    ("infer", ["infer"]),
    ("get_system_shared_memory_status", ["infer"]),
    ("get_inference_statistics", ["metrics"]),
    ("get_model_repository_index", ["manage"]),
    ("get_log_settings", ["manage"]),
    ("get_trace_settings", ["manage"]),
])
def test_each_scope_at_each_grpc_method(guarded, keys, method, scopes):
    client = triton.InferenceServerClient(f"127.0.0.1:{guarded.grpc_port}")

    def ask(key):
        headers = {"authorization": f"Bearer {key}"} if key else {}
        if method != "infer":
            return getattr(client, method)(headers=headers)
        inputs = [triton.InferInput("x", [1, 4], "FP32"),
                  triton.InferInput("scale", [1], "FP32")]
        inputs[0].set_data_from_numpy(np.ones((1, 4), np.float32))
        inputs[1].set_data_from_numpy(np.ones(1, np.float32))
        return client.infer("mlp", inputs, headers=headers)

    if scopes is None:
        assert ask(None) and ask("wrong")
        return
    for key in (None, "wrong"):
        with pytest.raises(triton.InferenceServerException) as refused:
            ask(key)
        assert "UNAUTHENTICATED" in refused.value.status()
    for scope in SCOPES:
        if scope in scopes:
            ask(keys.keys[scope])
            continue
        with pytest.raises(triton.InferenceServerException) as refused:
            ask(keys.keys[scope])
        assert "PERMISSION_DENIED" in refused.value.status()
        assert scopes[0] in refused.value.message()


def test_requests_a_second(guarded, keys):
    client = openai.OpenAI(base_url=guarded.url + "/v1", max_retries=0,
                           api_key=keys.keys["slow"])
    with pytest.raises(openai.RateLimitError) as refused:
        for _ in range(3):
            client.chat.completions.create(**CHAT)
    error = refused.value
    assert error.code == "rate_limit_exceeded"
    headers = error.response.headers
    assert 1 <= int(headers["retry-after"]) <= 2
    assert headers["x-ratelimit-limit-requests"] == "2"
    assert headers["x-ratelimit-remaining-requests"] == "0"
    # KServe's shape, and gRPC's status.
    status, headers, said = call(guarded, "POST", "/v2/models/mlp/infer",
                                 keys.keys["slow"], TENSORS)
    assert status == 429 and "slow" in json.loads(said)["error"]
    assert int(headers["Retry-After"]) >= 1
    remote = triton.InferenceServerClient(f"127.0.0.1:{guarded.grpc_port}")
    inputs = [triton.InferInput("x", [1, 4], "FP32")]
    inputs[0].set_data_from_numpy(np.ones((1, 4), np.float32))
    with pytest.raises(triton.InferenceServerException) as refused:
        remote.infer("mlp", inputs, headers={
            "authorization": f"Bearer {keys.keys['slow']}"})
    assert "RESOURCE_EXHAUSTED" in refused.value.status()
    # Another tenant is not concerned, and this one is served again in time.
    assert call(guarded, "POST", "/v1/chat/completions", keys.keys["infer"],
                CHAT)[0] == 200
    time.sleep(2.2)
    assert call(guarded, "POST", "/v1/chat/completions", keys.keys["slow"],
                CHAT)[0] == 200


def test_tokens_a_minute(guarded, keys):
    key = keys.keys["thrifty"]
    status, headers, _ = call(guarded, "POST", "/v1/chat/completions", key,
                              {**CHAT, "max_tokens": 30, "ignore_eos": True})
    assert status == 200 and headers["x-ratelimit-limit-tokens"] == "20"
    status, headers, said = call(guarded, "POST", "/v1/chat/completions", key,
                                 CHAT)
    assert status == 429 and "20 tokens a minute" in said
    assert headers["x-ratelimit-remaining-tokens"] == "0"
    # More than 30 tokens too many at a third of a token a second.
    assert int(headers["Retry-After"]) > 30


def test_requests_at_a_time(guarded, keys):
    client = openai.OpenAI(base_url=guarded.url + "/v1", max_retries=0,
                           api_key=keys.keys["narrow"])
    stream = client.chat.completions.create(
        **{**CHAT, "max_tokens": 400}, stream=True,
        extra_body={"ignore_eos": True})
    next(stream)
    with pytest.raises(openai.RateLimitError):
        client.chat.completions.create(**CHAT)
    stream.close()
    deadline = time.monotonic() + 20
    while True:  # the server notices that the client has left
        try:
            client.chat.completions.create(**CHAT)
            break
        except openai.RateLimitError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_models_of_a_tenant(guarded, keys):
    key = keys.keys["graphs"]
    status, _, said = call(guarded, "POST", "/v1/chat/completions", key, CHAT)
    assert status == 403
    assert json.loads(said)["error"]["code"] == "model_not_allowed"
    assert call(guarded, "POST", "/v2/models/mlp/infer", key, TENSORS)[0] == 200
    status, _, _ = call(guarded, "POST", f"/v2/models/{MODEL_ID}/generate", key,
                        {"text_input": "Hi"})
    assert status == 403
    listed = json.loads(call(guarded, "GET", "/v1/models", key)[2])["data"]
    assert listed == []
    client = triton.InferenceServerClient(f"127.0.0.1:{guarded.grpc_port}")
    prompt = triton.InferInput("text_input", [1], "BYTES")
    prompt.set_data_from_numpy(np.array([b"Hi"], np.object_))
    with pytest.raises(triton.InferenceServerException) as refused:
        client.infer(MODEL_ID, [prompt],
                     headers={"authorization": f"Bearer {key}"})
    assert "PERMISSION_DENIED" in refused.value.status()


def test_what_is_left_is_told(guarded, keys):
    _, headers, _ = call(guarded, "POST", "/v1/chat/completions",
                         keys.keys["roomy"], CHAT)
    assert headers["x-ratelimit-limit-requests"] == "1000"
    assert headers["x-ratelimit-limit-tokens"] == "1000000"
    assert re.fullmatch(r"[0-9.e-]+s", headers["x-ratelimit-reset-tokens"])


def test_keys_appear_nowhere(guarded, keys):
    call(guarded, "GET", "/v1/models", "mr_a-wrong-key-of-a-stranger")
    guarded.line('"tenant":"roomy"')
    text = "".join(guarded.lines)
    text += call(guarded, "GET", "/metrics", keys.keys["metrics"])[2]
    for key in [*keys.keys.values(), "mr_a-wrong-key-of-a-stranger"]:
        assert key not in text
    for digest in re.findall(r"sha256: (\w+)", keys.text):
        assert digest not in text


def test_the_file_is_watched(tmp_path):
    keys = Keys(tmp_path / "keys.yaml")
    with start(f"mlp={GRAPH}", "--api-keys-file", keys.path) as running:
        def status(key):
            return call(running, "GET", "/v1/models", key)[0]
        fresh, entry = create("--id", "fresh")
        assert status(keys.keys["infer"]) == 200 and status(fresh) == 401

        (tmp_path / "next").write_text("keys: [{id: broken}]\n")
        replace(keys.path, tmp_path / "next")
        until(lambda: any('"keys kept"' in line for line in running.lines),
              lambda: status(fresh))
        assert status(keys.keys["infer"]) == 200

        (tmp_path / "next").write_text("keys:\n" + entry)
        replace(keys.path, tmp_path / "next")
        until(lambda: status(fresh) == 200)
        assert status(keys.keys["infer"]) == 401


def until(holds, meanwhile=lambda: None):
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        meanwhile()
        time.sleep(0.05)


@pytest.mark.parametrize("text, sentence", [
    ("keys: [{id: a, sha256: 12, scopes: [infer]}]", "64 hexadecimal digits"),
    ("tenants: {a: {request_per_second: 1}}", "there is no field"),
    ("keys: [", "line 1"),
])
def test_a_wrong_file_ends_the_start(tmp_path, text, sentence):
    path = tmp_path / "keys.yaml"
    path.write_text(text)
    done = subprocess.run(
        [BINARY, "serve", GRAPH, "--http-port", "0", "--grpc-port", "-1",
         "--api-keys-file", path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and sentence in done.stderr, done.stderr
    assert f"api_keys_file is '{path}'" in done.stderr


def test_the_simple_key_may_do_everything():
    with start(f"mlp={GRAPH}", "--api-key", "plain") as running:
        for method, path, body, scopes in ROUTES:
            if MODEL_ID in path or (body and "model" in body):
                continue
            assert call(running, method, path, "plain", body)[0] == 200, path
        assert call(running, "GET", "/metrics")[0] == 200
