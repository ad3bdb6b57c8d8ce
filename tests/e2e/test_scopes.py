"""What a key of each scope may do at every route of every protocol: a table. A
route or gRPC method that has no row here fails, so that none is open by mistake.
Afterwards no key stands in anything that the server wrote."""
import json
import re
import urllib.error
import urllib.request

import grpc
import pytest
from conftest import REPO, start
from test_keys import create
from tokens import Signer

GRAPH = REPO / "tests/data/graph/mlp.onnx"
LLM = REPO / "tests/data/hf_llama_yarn/model.gguf"
PROTOS = REPO / "server/grpc/proto"
TORCHSERVE = REPO / "server/http/torchserve_routes.cc"
SCOPES = ("infer", "manage", "metrics")
PUBLIC, ANY = (), SCOPES
INFER, MANAGE, METRICS = ("infer",), ("manage",), ("metrics",)

# Scopes of which one is needed, by routes. PUBLIC: no key; ANY: any key.
REST = {
    PUBLIC: """
      GET /health
      GET /v1/health
      GET /health/live
      GET /health/ready
      GET /v2/health/live
      GET /v2/health/ready
      GET /version
      GET /console
      GET /console/{file}""",
    ANY: """
      GET /
      GET /openapi.json
      GET /v1/models
      GET /v1/models/{id}
      GET /api/tags
      GET /api/ps
      GET /api/version
      GET /props
      GET /slots
      GET /lora-adapters
      GET /v2
      GET /v2/models
      GET /v2/models/{id}
      GET /v2/models/{id}/config
      GET /v2/models/{id}/ready
      GET /v2/models/{id}/versions/{version}
      GET /v2/models/{id}/versions/{version}/config
      GET /v2/models/{id}/versions/{version}/ready
      GET /v2/systemsharedmemory/status
      GET /v2/systemsharedmemory/region/{region}/status
      GET /v2/cudasharedmemory/status""",
    INFER: """
      POST /v1/chat/completions
      POST /chat/completions
      POST /v1/chat/completions/input_tokens
      POST /chat/completions/input_tokens
      POST /v1/completions
      POST /v1/responses
      POST /responses
      POST /v1/responses/input_tokens
      GET /v2/models/{id}/sessions
      GET /v2/models/{id}/versions/{version}/sessions
      GET /v1/responses/{id}
      GET /v1/responses/{id}/input_items
      DELETE /v1/responses/{id}
      POST /v1/files
      GET /v1/files
      GET /v1/files/{id}
      GET /v1/files/{id}/content
      DELETE /v1/files/{id}
      POST /v1/batches
      GET /v1/batches
      GET /v1/batches/{id}
      POST /v1/batches/{id}/cancel
      POST /v1/messages
      POST /v1/messages/count_tokens
      POST /v1/audio/transcriptions
      POST /v1/embeddings
      POST /v1/rerank
      POST /v2/rerank
      POST /rerank
      POST /reranking
      POST /v1/reranking
      POST /v1/score
      POST /score
      POST /classify
      POST /v1/tasks/{id}
      POST /api/chat
      POST /api/generate
      POST /api/embed
      POST /api/embeddings
      POST /api/show
      POST /completion
      POST /completions
      POST /embedding
      POST /embeddings
      POST /infill
      POST /slots/{id}
      POST /tokenize
      POST /detokenize
      POST /apply-template
      POST /v2/models/{id}/infer
      POST /v2/models/{id}/generate
      POST /v2/models/{id}/generate_stream
      POST /v2/models/{id}/versions/{version}/infer
      POST /v2/models/{id}/versions/{version}/generate
      POST /v2/models/{id}/versions/{version}/generate_stream
      POST /v2/systemsharedmemory/region/{region}/register
      POST /v2/systemsharedmemory/region/{region}/unregister
      POST /v2/systemsharedmemory/unregister
      POST /v2/cudasharedmemory/region/{region}/register
      POST /v2/cudasharedmemory/unregister""",
    MANAGE: """
      POST /lora-adapters
      POST /v2/repository/index
      POST /v2/repository/models/{id}/load
      POST /v2/repository/models/{id}/unload
      GET /v2/logging
      POST /v2/logging
      GET /v2/trace/setting
      POST /v2/trace/setting
      GET /v2/models/{id}/trace/setting
      POST /v2/models/{id}/trace/setting
      POST /v1/load_lora_adapter
      POST /v1/unload_lora_adapter
      GET /debug/cores
      POST /debug/trace""",
    METRICS: """
      GET /metrics
      GET /v2/models/stats
      GET /v2/models/{id}/drift
      GET /v2/models/{id}/stats
      GET /v2/models/{id}/versions/{version}/drift
      GET /v2/models/{id}/versions/{version}/stats""",
}

# Of --profile torchserve, on its three ports.
TORCHSERVE_REST = {
    ("inference", PUBLIC): """
      OPTIONS /
      GET /api-description
      OPTIONS /predictions/{model}
      GET /ping
      POST /ping
      PUT /ping
      DELETE /ping""",
    ("inference", INFER): """
      GET /predictions/{model}
      POST /predictions/{model}
      PUT /predictions/{model}
      DELETE /predictions/{model}
      GET /explanations/{model}
      POST /explanations/{model}
      PUT /explanations/{model}
      POST /invocations
      POST /v1/models/{model}
      POST /v2/models/{model}/explain
      GET /wfpredict/{workflow}
      POST /wfpredict/{workflow}
      PUT /wfpredict/{workflow}""",
    ("management", PUBLIC): """
      OPTIONS /
      GET /api-description""",
    ("management", MANAGE): """
      GET /models
      GET /models/
      POST /models
      GET /models/{model}
      PUT /models/{model}
      DELETE /models/{model}
      GET /workflows
      POST /workflows
      GET /workflows/{workflow}
      DELETE /workflows/{workflow}""",
    ("metrics", PUBLIC): """
      OPTIONS /
      GET /health""",
    ("metrics", METRICS): """
      GET /metrics""",
}

# By service and scopes.
KSERVE = "inference.GRPCInferenceService"
TORCH_INFERENCE = "org.pytorch.serve.grpc.inference.InferenceAPIsService"
TORCH_MANAGEMENT = "org.pytorch.serve.grpc.management.ManagementAPIsService"
GRPC = {
    (KSERVE, PUBLIC): "ServerLive ServerReady",
    (KSERVE, ANY): "ModelReady ServerMetadata ModelMetadata ModelConfig",
    (KSERVE, INFER): "ModelInfer ModelStreamInfer "
                     "SystemSharedMemoryStatus SystemSharedMemoryRegister "
                     "SystemSharedMemoryUnregister CudaSharedMemoryStatus "
                     "CudaSharedMemoryRegister CudaSharedMemoryUnregister",
    (KSERVE, MANAGE): "RepositoryIndex RepositoryModelLoad "
                      "RepositoryModelUnload TraceSetting LogSettings",
    (KSERVE, METRICS): "ModelStatistics",
    (TORCH_INFERENCE, PUBLIC): "Ping",
    (TORCH_INFERENCE, INFER): "Predictions StreamPredictions "
                              "StreamPredictions2",
    (TORCH_MANAGEMENT, MANAGE): "DescribeModel ListModels RegisterModel "
                                "ScaleWorker SetDefault UnregisterModel",
}
STREAMS = ("ModelStreamInfer", "StreamPredictions", "StreamPredictions2")

WRONG = "mr_" + "w" * 43


def rows(table):
    return [(key, *line.split()) for key, text in table.items()
            for line in text.strip().splitlines()]


class Keys:
    """One key of each scope, a token of each scope, a tenant that may ask for
    one request, and all that was said to any of them."""

    def __init__(self, folder):
        self.file, self.jwks = folder / "keys.yaml", folder / "jwks.json"
        self.of, self.said = {"wrong": WRONG}, []
        text = "tenants: {spent: {requests_per_second: 0.001}}\nkeys:\n"
        for scope in SCOPES:
            self.of[scope], entry = create("--id", scope, "--scopes", scope)
            text += entry
        self.of["spent"], entry = create("--id", "spent", "--tenant", "spent")
        self.file.write_text(text + entry)
        signer = Signer(folder, "ES256", "signer")
        self.jwks.write_text(json.dumps({"keys": [signer.public]}))
        for scope in SCOPES:
            self.of["token " + scope] = signer.sign(
                {"sub": "user", "exp": 1 << 33, "scope": scope})
        self.digests = re.findall(r"sha256: (\w+)", text + entry)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return Keys(tmp_path_factory.mktemp("scopes"))


@pytest.fixture(scope="module")
def server(keys, tmp_path_factory):
    with start(f"mlp={GRAPH}", f"llm={LLM}", "--max-model-len", 64,
               "--compute-dtype", "f32", "--log-level", "debug",
               "--api-keys-file", keys.file, "--jwt-jwks-file", keys.jwks,
               "--batch-dir", tmp_path_factory.mktemp("batches")) as running:
        yield running


def ask(url, keys, method, pattern, who, header="Authorization"):
    """Status, headers and body. Paths name what does not exist, bodies are
    empty: who may, is told that; who may not, is told so before."""
    path = re.sub(r"\{\w+\}", "nothing", pattern)
    if pattern == "/debug/trace":
        path += "?seconds=0.01"
    headers = {"Content-Type": "application/json"}
    if who is not None:
        key = keys.of[who]
        headers[header] = f"Bearer {key}" if header == "Authorization" else key
    request = urllib.request.Request(
        url + path, method=method, headers=headers,
        data=b"{}" if method in ("POST", "PUT") else None)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            out = answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        out = error.code, error.headers, error.read().decode()
    keys.said.append(str(out[1]) + out[2])
    return out


def refusal(pattern, status, headers, body):
    """401, 403 or None, and that it is told in the shape of its protocol."""
    if status not in (401, 403):
        return None
    assert headers["Content-Type"].startswith("application/json")
    said = json.loads(body)
    if status == 401:
        assert headers["WWW-Authenticate"].startswith("Bearer")
    if pattern.startswith(("/v2", "/api/")):
        assert set(said) == {"error"} and isinstance(said["error"], str)
    elif pattern.startswith("/v1/messages"):
        assert said["type"] == "error" and said["error"]["type"] == (
            "authentication_error" if status == 401 else "permission_error")
    else:
        assert set(said["error"]) == {"message", "type", "param", "code"}
    return status


def check_route(url, keys, method, pattern, needed, refusal_of=refusal):
    def told(who, header="Authorization"):
        answer = ask(url, keys, method, pattern, who, header)
        return refusal_of(pattern, *answer), answer
    for who in (None, "wrong"):
        refused, answer = told(who)
        assert refused == (None if needed == PUBLIC else 401), answer
    for scope in SCOPES:
        for who, header in ((scope, "Authorization"), (scope, "x-api-key"),
                            (f"token {scope}", "Authorization")):
            refused, answer = told(who, header)
            if needed == PUBLIC or scope in needed:
                assert refused is None, answer
            else:
                assert refused == 403 and f"'{needed[0]}'" in answer[2], answer


@pytest.mark.parametrize("needed, method, pattern", rows(REST),
                         ids=[f"{m} {p}" for _, m, p in rows(REST)])
def test_each_scope_at_each_route(server, keys, needed, method, pattern):
    check_route(server.url, keys, method, pattern, needed)


def test_every_route_has_a_row(server, keys):
    described = json.loads(ask(server.url, keys, "GET", "/openapi.json",
                               "infer")[2])
    served = {(method.upper(), path)
              for path, methods in described["paths"].items()
              for method in methods}
    assert served == {row[1:] for row in rows(REST)}


def test_every_method_of_grpc_has_a_row():
    served = set()
    for path in PROTOS.glob("*.proto"):
        text = path.read_text()
        package = re.search(r"^package (\S+);", text, re.M)[1]
        for service, body in re.findall(r"^service (\w+) \{(.*?)^\}", text,
                                        re.M | re.S):
            served |= {(f"{package}.{service}", method)
                       for method in re.findall(r"rpc (\w+)\(", body)}
    assert served == {(key[0], name) for key, names in GRPC.items()
                      for name in names.split()}


@pytest.mark.parametrize("service, needed, method", [
    (*key, name) for key, names in GRPC.items() for name in names.split()])
def test_each_scope_at_each_method_of_grpc(server, torchserve, keys, service,
                                           needed, method):
    port = {KSERVE: server.grpc_port, TORCH_INFERENCE: torchserve.grpc_port,
            TORCH_MANAGEMENT: torchserve.grpc_management_port}[service]
    raw = {"request_serializer": bytes, "response_deserializer": bytes}
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        path = f"/{service}/{method}"

        def code(who, header="authorization"):
            metadata = []
            if who is not None:
                key = keys.of[who]
                metadata = [(header, f"Bearer {key}" if header ==
                             "authorization" else key)]
            try:
                if method in STREAMS:
                    list(channel.stream_stream(path, **raw)(
                        iter([b""]), metadata=metadata, timeout=30))
                else:
                    channel.unary_unary(path, **raw)(b"", metadata=metadata,
                                                     timeout=30)
            except grpc.RpcError as error:
                keys.said.append(str(error))
                return error.code()
            return grpc.StatusCode.OK
        refused = (grpc.StatusCode.UNAUTHENTICATED,
                   grpc.StatusCode.PERMISSION_DENIED)
        for who in (None, "wrong"):
            assert (code(who) == refused[0]) == (needed != PUBLIC)
        for scope in SCOPES:
            for caller in ((scope,), (scope, "x-api-key"),
                           (f"token {scope}",)):
                found = code(*caller)
                if needed == PUBLIC or scope in needed:
                    assert found not in refused
                else:
                    assert found == refused[1]


def torchserve_refusal(pattern, status, headers, body):
    """TorchServe answers 400 and names its exception, whatever is missing."""
    if pattern.startswith(("/v1/", "/v2/")):
        return refusal(pattern, status, headers, body)
    if not re.search('"type":"Invalid(Key|Token)Exception"', body):
        return None
    assert json.loads(body)["code"] == status == 400
    return 403 if "has not the scope" in body else 401


@pytest.fixture(scope="module")
def torchserve(keys):
    with start("--profile", "torchserve", "--model-store", GRAPH.parent,
               "--models", f"mlp={GRAPH.name}",
               "--management-port", "0", "--metrics-port", "0",
               "--grpc-management-port", "0", "--enable-model-api", "--api-keys-file", keys.file,
               "--jwt-jwks-file", keys.jwks) as running:
        ready = next(json.loads(line) for line in running.lines
                     if '"ready"' in line)
        running.grpc_management_port = next(
            json.loads(line)["port"] for line in running.lines
            if "TorchServe's management over gRPC" in line)
        running.urls = {
            "inference": running.url,
            "management": f"http://127.0.0.1:{ready['management_port']}",
            "metrics": f"http://127.0.0.1:{ready['metrics_port']}"}
        yield running


@pytest.mark.parametrize(
    "place, method, pattern", rows(TORCHSERVE_REST),
    ids=[f"{r[0][0]} {r[1]} {r[2]}" for r in rows(TORCHSERVE_REST)])
def test_each_scope_at_each_route_of_torchserve(torchserve, keys, place, method,
                                                pattern):
    check_route(torchserve.urls[place[0]], keys, method, pattern, place[1],
                torchserve_refusal)


@pytest.mark.parametrize("place", ["inference", "management"])
def test_no_key_of_ours_makes_keys_of_torchserve(torchserve, keys, place):
    for who in (None, *keys.of):
        status, _, body = ask(torchserve.urls[place], keys, "GET",
                              "/token?type=inference", who)
        assert status >= 400 and "key" not in json.loads(body), (who, body)


def test_every_route_of_torchserve_has_a_row():
    text = TORCHSERVE.read_text()
    tables = text[text.index("constexpr Route kInference"):
                  text.index("struct Described")]
    served = set(re.findall(r'"(/[^"]*)"', tables)) | {
        "/ping", "/predictions/{model}", "/explanations/{model}",
        "/wfpredict/{workflow}"}
    # That one has a check of its own: the test above.
    assert served == {row[2] for row in rows(TORCHSERVE_REST)} | {"/token"}


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_each_method_that_predicts_counts(torchserve, keys, method):
    """The tenant has spent its one request, whatever the method of the next."""
    path = "/predictions/{model}"
    ask(torchserve.url, keys, "POST", path, "spent")
    status, headers, body = ask(torchserve.url, keys, method, path, "spent")
    assert status == 503 and "'spent'" in body  # TorchServe knows no 429
    assert int(headers["Retry-After"]) > 0


def test_keys_stand_in_nothing_that_was_written(server, torchserve, keys):
    """Log lines, metrics, headers and bodies of the whole file; keys in places
    where they do not belong, too."""
    for url in (server.url, torchserve.url):
        for who, key in keys.of.items():
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(urllib.request.Request(
                    url + f"/v1/models?api_key={key}",
                    headers={"Authorization": f"Basic {key}"}), timeout=30)
            keys.said.append(refused.value.read().decode())
        ask(url, keys, "GET", "/metrics", "metrics")
        ask(url, keys, "GET", "/v2/models/stats", "metrics")
    written = "".join([*server.lines, *torchserve.lines, *keys.said])
    assert '"key":"infer"' in written
    for secret in [*keys.of.values(), *keys.digests]:
        assert secret not in written
