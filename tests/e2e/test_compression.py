"""Accept-Encoding: JSON answers are compressed from 1024 bytes on, on every route,
and so are metrics; streams, small answers and other bodies are as they were. Real clients decode them
without being told."""
import gzip
import http.client
import json
import zlib

import httpx
import openai
import pytest
import requests

from conftest import REPO, start
from onnx_bytes import affine
from test_torchserve import archive, manifest, torchserve

DATA = REPO / "tests" / "data"
EMBEDDER = DATA / "encoders" / "bert_embed" / "model.gguf"
LEAST = 1024


@pytest.fixture(scope="module")
def server():
    with start(f"text={DATA}/hf_llama", f"bert={EMBEDDER}",
               "--compute-dtype", "f32") as running:
        yield running


def raw(port, path, body=None, **headers):
    """Headers in lower case and the bytes as they came."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    if body is not None:
        headers["Content-Type"] = "application/json"
    connection.request("GET" if body is None else "POST", path,
                       None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return {k.lower(): v for k, v in answer.getheaders()}, data


COMPLETION = {"model": "text", "prompt": [5, 6, 7], "max_tokens": 40,
              "temperature": 0, "ignore_eos": True, "logprobs": 5}
CHAT = {"model": "text", "messages": [{"role": "user", "content": "ab"}],
        "max_tokens": 40, "temperature": 0, "ignore_eos": True,
        "logprobs": True, "top_logprobs": 5}
LARGE = [("/v1/completions", COMPLETION),
         ("/v1/chat/completions", CHAT),
         ("/v1/embeddings", {"model": "bert", "input": ["ab"] * 8}),
         ("/openapi.json", None),
         ("/v2/models/stats", None)]


@pytest.mark.parametrize("path,body", LARGE, ids=[path for path, _ in LARGE])
def test_large_answers_are_compressed_when_asked(server, path, body):
    headers, plain = raw(server.http_port, path, body)
    assert "content-encoding" not in headers
    assert len(plain) >= LEAST, len(plain)
    want = json.loads(plain)
    for accepted, decode in (("gzip", gzip.decompress),
                             ("deflate", zlib.decompress),
                             ("br, gzip;q=0.5", gzip.decompress)):
        headers, data = raw(server.http_port, path, body,
                            **{"Accept-Encoding": accepted})
        coding = headers["content-encoding"]
        assert coding in accepted and headers["vary"] == "Accept-Encoding"
        assert int(headers["content-length"]) == len(data) < len(plain)
        told = json.loads(decode(data))
        for each in (told, want):
            for key in ("id", "created", "timings"):
                if isinstance(each, dict):
                    each.pop(key, None)
        assert told == want
    for accepted in ("identity", "gzip;q=0", "br"):
        headers, data = raw(server.http_port, path, body,
                            **{"Accept-Encoding": accepted})
        assert "content-encoding" not in headers


def test_small_answers_and_streams_are_not(server):
    asks = {"Accept-Encoding": "gzip"}
    for path, body in (("/v2/health/ready", None), ("/v2", None),
                       ("/v2/models/none", None),
                       ("/v1/completions", {**COMPLETION, "max_tokens": 1,
                                            "logprobs": None})):
        headers, data = raw(server.http_port, path, body, **asks)
        assert "content-encoding" not in headers and len(data) < LEAST
    for path, body in (("/v1/completions", COMPLETION),
                       ("/v1/chat/completions", CHAT)):
        headers, data = raw(server.http_port, path, {**body, "stream": True},
                            **asks)
        assert "content-encoding" not in headers and len(data) > LEAST
        assert data.rstrip().endswith(b"data: [DONE]")


@pytest.mark.parametrize("accept,names", [
    ("text/plain", "text/plain; version=0.0.4"),
    ("application/openmetrics-text", "application/openmetrics-text; version=1.0.0")])
def test_metrics_are_compressed_as_prometheus_asks(server, accept, names):
    headers, plain = raw(server.http_port, "/metrics", Accept=accept)
    assert "content-encoding" not in headers and len(plain) > LEAST
    headers, data = raw(server.http_port, "/metrics", **{
        "Accept": accept, "Accept-Encoding": "gzip"})
    assert headers["content-encoding"] == "gzip"
    assert headers["content-type"].startswith(names)
    assert int(headers["content-length"]) == len(data) < len(plain) / 3
    told = gzip.decompress(data).decode()
    assert told.startswith("# ")
    series = [{line.split(" ")[0] for line in text.splitlines()}
              for text in (told, plain.decode())]
    # The first scrape made series of its own route.
    assert series[0] >= series[1]


def test_a_head_request_tells_the_length_of_the_get(server):
    with httpx.Client(base_url=server.url) as client:
        get = client.get("/openapi.json")
        head = client.head("/openapi.json")
    assert get.headers["content-encoding"] == "gzip"
    assert head.headers["content-length"] == get.headers["content-length"]
    assert head.headers["content-encoding"] == "gzip"


def test_openai_python_and_requests_read_them(server):
    seen = []
    hook = httpx.Client(event_hooks={"response": [lambda answer: seen.append(
        answer.headers.get("content-encoding"))]})
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none",
                       max_retries=0, http_client=hook) as client:
        asked = {**CHAT, "extra_body": {"ignore_eos": True}}
        del asked["ignore_eos"]
        chat = client.chat.completions.create(**asked)
        assert len(chat.choices[0].logprobs.content) == 40
        vectors = client.embeddings.create(model="bert", input=["ab"] * 8,
                                           encoding_format="float")
        assert len(vectors.data) == 8
    assert seen == ["gzip", "gzip"]
    answer = requests.post(server.url + "/v1/completions", json=COMPLETION,
                           timeout=60)
    assert answer.headers["content-encoding"] == "gzip"
    assert len(answer.json()["choices"][0]["logprobs"]["tokens"]) == 40


def test_torchserve_predictions(tmp_path):
    archive(tmp_path / "m.mar", **{
        "linear.onnx": affine(2, size=600),
        "MAR-INF/MANIFEST.json": manifest()})
    numbers = list(range(600))
    with torchserve("--model-store", tmp_path, "--models",
                    "m.mar") as running:
        def post(accepted):
            return requests.post(
                f"http://127.0.0.1:{running.ports['inference']}/predictions/m",
                json=numbers, timeout=60,
                headers={"Accept-Encoding": accepted})

        plain, coded = post("identity"), post("gzip")
        assert "content-encoding" not in plain.headers
        assert coded.headers["content-encoding"] == "gzip"
        assert plain.json() == coded.json() == [2 * x for x in numbers]
