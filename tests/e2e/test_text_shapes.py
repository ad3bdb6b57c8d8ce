"""Tasks over texts in the shapes of KServe and TorchServe: BYTES tensors over
REST and gRPC, /v1/tasks, /predictions and /v1/models/NAME:predict answer what
the routes of OpenAI and vLLM do."""
import json
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import start
from test_external import external, python  # noqa: F401 (a fixture)
from test_texts import CLASSIFY, DATA, EMBED, RERANK, SHORT, TASKS, put_onnx
from test_torchserve import archive, ask, manifest, torchserve
from texts import cosine, post
from triton_clients import strings, triton  # noqa: F401 (a fixture)

TEXTS = EMBED["texts"][:SHORT]
QUERY = RERANK["query"]


@pytest.fixture(scope="module", params=["onnx", "folder"])
def server(request, tmp_path_factory):
    flags = [DATA / name for name in TASKS]
    if request.param == "onnx":
        root = tmp_path_factory.mktemp("repository")
        for name, task in TASKS.items():
            put_onnx(root, name, task)
        flags = ["--model-repository", root]
    with start(*flags) as running:
        yield running


def raw(server, path, body, kind):
    request = urllib.request.Request(server.url + path, body,
                                     {"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def vectors(server, texts):
    return [each["embedding"] for each in post(server, "/v1/embeddings", {
        "model": "bert_embed", "input": texts})["data"]]


def scores(server, query, texts):
    return [each["score"] for each in post(server, "/v1/score", {
        "model": "bert_rerank", "text_1": query, "text_2": texts})["data"]]


def classes(server, texts):
    return [each["probs"] for each in post(server, "/classify", {
        "model": "bert_classify", "input": texts})["data"]]


def test_vectors_of_bytes_are_a_tensor(server, triton):  # noqa: F811
    module, client = triton
    got = client.infer("bert_embed", [strings(module, "input-0", TEXTS)])
    rows = got.as_numpy("output-0")
    assert rows.dtype == np.float32 and len(rows.shape) == 2
    np.testing.assert_array_equal(
        rows, np.array(vectors(server, TEXTS), np.float32))
    for row, want in zip(rows, EMBED["mean"]):
        assert cosine(row, want) > 0.99999


def test_kserve_in_json(server):
    answer = post(server, "/v2/models/bert_embed/infer", {
        "id": "7", "inputs": [{"name": "text", "datatype": "BYTES",
                               "shape": [2], "data": ["mill", "river"]}]})
    output, = answer["outputs"]
    assert answer["id"] == "7" and output["name"] == "output-0"
    assert output["datatype"] == "FP32"
    size = len(EMBED["mean"][0])
    assert output["shape"] == [2, size] and len(output["data"]) == 2 * size


def test_pairs_of_bytes(server, triton):  # noqa: F811
    module, client = triton
    want = np.array(scores(server, QUERY, TEXTS[:3]), np.float32)
    both = [[QUERY, text] for text in TEXTS[:3]]
    for given in ([strings(module, "pairs", both)],
                  [strings(module, "query", [QUERY]),
                   strings(module, "documents", TEXTS[:3])],
                  [strings(module, "documents", TEXTS[:3]),
                   strings(module, "query", [QUERY] * 3)]):
        got = client.infer("bert_rerank", given).as_numpy("output-0")
        assert got.shape == (3,)
        np.testing.assert_array_equal(got, want)


def test_classes_of_bytes(server, triton):  # noqa: F811
    module, client = triton
    texts = CLASSIFY["texts"][:3]
    got = client.infer("bert_classify", [strings(module, "text", texts)])
    want = np.array(classes(server, texts), np.float32)
    np.testing.assert_array_equal(got.as_numpy("scores"), want)
    assert got.as_numpy("output-0").tolist() == want.argmax(1).tolist()
    only = client.infer("bert_classify", [strings(module, "text", texts)],
                        outputs=[module.InferRequestedOutput("output-0")])
    assert only.as_numpy("scores") is None


@pytest.mark.parametrize("model, inputs, outputs, told", [
    ("bert_rerank", {"text": ["a", "b"]}, [], "pairs"),
    ("bert_rerank", {"query": ["a", "b"], "text": ["a"] * 3}, [],
     "2 texts and 'text' 3"),
    ("bert_embed", {"a": ["x"], "b": ["y"]}, [], "2 inputs of texts"),
    ("bert_embed", {"a": ["x"]}, ["y"], "'output-0'"),
    ("bert_embed", {"a": ["mill " * 5000]}, [], "takes 4"),
    ("bert_embed", {"a": [b"\xff"]}, [], "UTF-8"),
    ("bert_embed", {"a": []}, [], ""),
])
def test_bytes_that_are_refused(triton, model, inputs, outputs, told):  # noqa: F811
    module, client = triton
    with pytest.raises(InferenceServerException) as refused:
        client.infer(model, [strings(module, name, values)
                             for name, values in inputs.items()],
                     outputs=[module.InferRequestedOutput(n) for n in outputs])
    assert told in str(refused.value)


def test_tokens_go_to_the_graph_as_before(server):
    told = json.loads(server.get("/v2/models/bert_embed"))
    assert {each["datatype"] for each in told["inputs"]} == {"INT64"}
    answer = post(server, "/v2/models/bert_embed/infer", {"inputs": [
        {"name": each["name"], "datatype": "INT64", "shape": [1, 3],
         "data": [1, 1, 1]} for each in told["inputs"]]})
    assert answer["outputs"][0]["datatype"] == "FP32"


def test_plain_requests(server):
    def near(got, want):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-9)
    want = vectors(server, TEXTS[:2])
    path = "/v1/tasks/bert_embed"
    near(raw(server, path, TEXTS[0].encode(), "text/plain"), want[0])
    near(post(server, path, {"inputs": TEXTS[:2]}), want)
    near(post(server, path, {"inputs": [{"text": TEXTS[0]}, TEXTS[1]]}), want)
    short = post(server, path, {"inputs": TEXTS[0],
                                "parameters": {"dimensions": 8}})
    assert len(short) == 8
    want = scores(server, QUERY, TEXTS[:2])
    path = "/v1/tasks/bert_rerank"
    near(post(server, path, {"inputs": [
        {"query": QUERY, "texts": TEXTS[:2]}]}), want)
    near(post(server, path, {"inputs": [
        {"text": QUERY, "text_pair": text} for text in TEXTS[:2]]}), want)
    want = classes(server, CLASSIFY["texts"][:1])[0]
    path = "/v1/tasks/bert_classify"
    got = post(server, path, {"inputs": CLASSIFY["texts"][0]})
    near(list(got.values()), sorted(want, reverse=True)[:len(got)])
    best = post(server, path + "?top_k=1", {"inputs": CLASSIFY["texts"][0],
                                            "parameters": {"top_k": 1}})
    assert list(best) == list(got)[:1]


@pytest.mark.parametrize("model, inputs, told", [
    ("bert_rerank", ["a"], "pairs of texts"),
    ("bert_rerank", [{"text": "a"}], "pairs of texts"),
    ("bert_rerank", [{"text": ["a", "b"], "text_pair": ["c"]}], "pairs of"),
    ("bert_embed", [{"text": "a", "text_pair": "b"}], "not pairs"),
    ("bert_embed", [{"query": "b", "texts": ["a"]}], "not pairs"),
    ("bert_embed", [{"text": 3}], "text"),
    ("bert_embed", [], "texts"),
    ("bert_embed", ["a"] * 2049, "2048"),
])
def test_plain_requests_that_are_refused(server, model, inputs, told):
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(server, f"/v1/tasks/{model}", {"inputs": inputs})
    assert refused.value.code == 400
    assert told in json.load(refused.value)["error"]["message"]


def test_torchserves_text_classifier(tmp_path):
    source = DATA / "bert_classify"
    config = json.loads((source / "config.json").read_text())
    archive(tmp_path / "words.mar", **{
        "model.onnx": (source / "model.onnx").read_bytes(),
        "tokenizer.json": (source / "tokenizer.json").read_bytes(),
        "config.json": json.dumps(config),
        "index_to_name.json": '{"0": "mill", "1": "river", "2": "stone"}',
        "MAR-INF/MANIFEST.json": manifest(
            modelName="words", serializedFile="model.onnx",
            handler="text_classifier")})
    text = CLASSIFY["texts"][0]
    with torchserve("--model-store", tmp_path, "--models", "words.mar",
                    "--disable-token-auth") as server:
        def predict(path, body, kind=None):
            status, answer = ask(server, "inference", "POST", path, body, kind)
            assert status == 200, answer
            return answer
        path = "/predictions/words"
        want = predict(path, text.encode(), "text/plain")
        logits = np.array(CLASSIFY["logits"][0])
        softmax = np.exp(logits) / np.exp(logits).sum()
        names = ["mill", "river", "stone"][:len(logits)]
        assert [name for name, _ in sorted(
            want.items(), key=lambda each: -each[1])] == list(want)
        for name, value in zip(names, softmax):
            assert want[name] == pytest.approx(value, abs=1e-5)
        form = (f"--b\r\nContent-Disposition: form-data; name=\"data\"\r\n\r\n"
                f"{text}\r\n--b--\r\n").encode()
        assert predict(path, form, "multipart/form-data; boundary=b") == want
        for body in text, {"data": text}, {"text": text}:
            assert predict(path, json.dumps(body).encode(),
                           "application/json") == want
        assert predict("/v1/models/words:predict", json.dumps(
            {"instances": [{"data": text}, text, {"text": text}]}).encode(),
            "application/json") == {"predictions": [want] * 3}


SEARCH = """
import millrace_handler, numpy as np

class Search(millrace_handler.Handler):
    inputs = {"query": ("BYTES", [1]), "texts": ("BYTES", [-1])}
    outputs = {"best": ("BYTES", [1]), "scores": ("FP32", [-1])}

    def handle(self, inputs, context):
        both = np.concatenate([inputs["query"], inputs["texts"]])
        rows = context.call("bert_embed", {"text": both})["output-0"]
        scores = rows[1:] @ rows[0]
        return {"scores": scores, "best": inputs["texts"][[scores.argmax()]]}

millrace_handler.serve(Search())
"""


def test_a_handler_of_ones_own_calls_a_model_with_texts(tmp_path, python):
    put_onnx(tmp_path, "bert_embed", "embed")
    external(tmp_path, "search", SEARCH)
    with start("--model-repository", tmp_path, env=python) as server:
        client = triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}")
        got = client.infer("search", [strings(triton_http, "query", TEXTS[:1]),
                                      strings(triton_http, "texts", TEXTS)])
        rows = np.array(vectors(server, TEXTS), np.float32)
    assert got.as_numpy("best").tolist() == [TEXTS[0].encode()]
    np.testing.assert_allclose(got.as_numpy("scores"), rows @ rows[0],
                               atol=1e-6)
