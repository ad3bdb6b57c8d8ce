"""Ensembles whose steps take and give BYTES: texts and pictures for models with
a task, beside what the same models answer when they are asked by themselves."""
import json
import subprocess

import numpy as np
import pytest
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import BINARY, start
from onnx_bytes import affine
from pictures import photo, post as post_bytes, put_classifier
from test_external import external, python  # noqa: F401 (a fixture)
from test_texts import CLASSIFY, EMBED, RERANK, SHORT, TASKS, put_onnx
from texts import post
from triton_clients import strings, triton  # noqa: F401 (a fixture)

TEXTS = EMBED["texts"][:SHORT]
SIZE = len(EMBED["mean"][0])
CLASSES = len(CLASSIFY["logits"][0])

LOWER = """
import millrace_handler

class Lower(millrace_handler.Handler):
    inputs = {"text": ("BYTES", [-1])}
    outputs = {"lower": ("BYTES", [-1])}

    def handle(self, inputs, context):
        return {"lower": [each.decode().lower() for each in inputs["text"]]}

millrace_handler.serve(Lower())
"""
LOOK = """
import millrace_handler

class Look(millrace_handler.Handler):
    inputs = {"file": ("BYTES", [-1])}
    outputs = {"seen": ("BYTES", [-1])}

    def handle(self, inputs, context):
        return {"seen": context.call("net", {"any": inputs["file"]})["output"]}

millrace_handler.serve(Look())
"""
HEAD = """
ensemble:
  steps:
    - {model: bert_embed, inputs: {text: TEXT}, outputs: {output-0: vector}}
    - {model: head, inputs: {x: vector}, outputs: {y: Y}}
"""
HEAD_OF_TRITON = f"""
platform: "ensemble"
max_batch_size: 0
input [ {{ name: "TEXT" data_type: TYPE_STRING dims: [ -1 ] }} ]
output [ {{ name: "Y" data_type: TYPE_FP32 dims: [ -1, {SIZE} ] }} ]
ensemble_scheduling {{ step [
  {{ model_name: "bert_embed" model_version: -1
    input_map {{ key: "text" value: "TEXT" }}
    output_map {{ key: "output-0" value: "vector" }} }},
  {{ model_name: "head" model_version: -1
    input_map {{ key: "x" value: "vector" }}
    output_map {{ key: "y" value: "Y" }} }} ] }}
"""
JUDGE = """
ensemble:
  outputs: [best, Y]
  steps:
    - {model: lower, inputs: {text: TEXT}, outputs: {lower: small}}
    - model: bert_classify
      inputs: {text: small}
      outputs: {output-0: best, scores: scores}
    - {model: judge, inputs: {x: scores}, outputs: {y: Y}}
"""
SEARCH = """
ensemble:
  inputs: [query, TEXT]
  steps:
    - {model: lower, inputs: {text: TEXT}, outputs: {lower: small}}
    - model: bert_rerank
      inputs: {query: query, documents: small}
      outputs: {output-0: scores}
"""
SEE = """
ensemble:
  steps:
    - {model: net, inputs: {picture: FILE}, outputs: {output: seen}}
"""


def put(root, name, config, graph=None, file="config.yaml"):
    (root / name / "1").mkdir(parents=True)
    (root / name / file).write_text(config)
    if graph:
        (root / name / "1" / "model.onnx").write_bytes(graph)


@pytest.fixture(scope="module")
def server(tmp_path_factory, python):  # noqa: F811
    root = tmp_path_factory.mktemp("repository")
    for name, task in TASKS.items():
        put_onnx(root, name, task)
    put(root, "head", "max_batch_size: 8", affine(2.0, 1.0, SIZE))
    put(root, "judge", "max_batch_size: 8", affine(10.0, 0.0, CLASSES))
    put_classifier(root, "net", "task: classify\n"
                   "task_options: {labels: index_to_name.json}\n")
    external(root, "lower", LOWER)
    external(root, "look", LOOK)
    put(root, "text_head", HEAD)
    put(root, "triton_head", HEAD_OF_TRITON, file="config.pbtxt")
    put(root, "text_judge", JUDGE)
    put(root, "search", SEARCH)
    put(root, "see", SEE)
    with start("--model-repository", root, env=python) as running:
        yield running


@pytest.mark.parametrize("model", ["text_head", "triton_head"])
def test_a_text_becomes_a_vector_and_goes_on(server, triton, model):  # noqa: F811
    module, client = triton
    got = client.infer(model, [strings(module, "TEXT", TEXTS)]).as_numpy("Y")
    vectors = np.array([each["embedding"] for each in post(
        server, "/v1/embeddings",
        {"model": "bert_embed", "input": TEXTS})["data"]], np.float32)
    np.testing.assert_allclose(got, 2 * vectors + 1, rtol=1e-6)


def test_texts_go_from_a_handler_to_a_task_over_texts(server, triton):  # noqa: F811
    module, client = triton
    texts = [text.upper() for text in CLASSIFY["texts"][:3]]
    got = client.infer("text_judge", [strings(module, "TEXT", texts)])
    want = np.array([each["probs"] for each in post(server, "/classify", {
        "model": "bert_classify",
        "input": [text.lower() for text in texts]})["data"]], np.float32)
    np.testing.assert_allclose(got.as_numpy("Y"), 10 * want, rtol=1e-6)
    assert got.as_numpy("best").tolist() == want.argmax(1).tolist()


def test_pairs_of_a_step_are_a_query_and_texts(server, triton):  # noqa: F811
    module, client = triton
    query = RERANK["query"]
    got = client.infer("search", [strings(module, "query", [query]),
                                  strings(module, "TEXT", TEXTS)])
    want = [each["score"] for each in post(server, "/v1/score", {
        "model": "bert_rerank", "text_1": query,
        "text_2": [text.lower() for text in TEXTS]})["data"]]
    np.testing.assert_allclose(got.as_numpy("scores"), want, rtol=1e-6)


def test_files_of_pictures_are_a_tensor(server, triton):  # noqa: F811
    module, client = triton
    files = [photo("photo.jpg"), photo("turned.png")]
    want = [post_bytes(server, "/v1/tasks/net", file) for file in files]
    for model, name in ("see", "FILE"), ("look", "file"):
        got = client.infer(model, [strings(module, name, files)])
        assert [json.loads(each) for each in got.as_numpy("seen")] == want


def test_what_a_step_refuses_names_the_step(server, triton):  # noqa: F811
    module, client = triton
    for model, name, value, told in [
            ("text_head", "TEXT", b"\xff", "UTF-8"),
            ("see", "FILE", b"no picture", "picture")]:
        with pytest.raises(InferenceServerException) as refused:
            client.infer(model, [strings(module, name, [value])])
        assert "step 1 (model '" in str(refused.value)
        assert told in str(refused.value)


def test_metadata_tells_of_texts(server):
    client = triton_http.InferenceServerClient(
        f"127.0.0.1:{server.http_port}")
    told = client.get_model_metadata("text_head")
    assert [(each["name"], each["datatype"]) for each in told["inputs"]] == [
        ("TEXT", "BYTES")]
    assert [(each["name"], each["shape"]) for each in told["outputs"]] == [
        ("Y", [-1, SIZE])]


@pytest.mark.parametrize("config, told", [
    (HEAD.replace("{text: TEXT}", "{input_idz: TEXT, mask: M}"),
     "maps input 'input_idz', which the model does not have; it takes "
     "'input_ids', 'attention_mask', 'token_type_ids', or as BYTES one input "
     "of any name"),
    (HEAD.replace("model: head", "model: wide"),
     f"has tensor 'vector' with shape [-1,{SIZE}] in output 'output-0' of step "
     f"1 (model 'bert_embed') but [-1,{SIZE + 1}] in input 'x'"),
    (HEAD.replace("output-0: vector", "scores: vector"),
     "maps output 'scores', which the model does not have; it gives "
     "'output-0'"),
    (HEAD.replace("model: bert_embed", "model: bert_classify"),
     "has tensor 'vector' as INT64 in output 'output-0' of step 1"),
    (HEAD.replace("model: head, inputs: {x: vector}",
                  "model: head, inputs: {x: TEXT}").replace(
                      "outputs: {y: Y}", "outputs: {y: Y}"),
     "has tensor 'TEXT' as BYTES in input 'text' of step 1 (model "
     "'bert_embed') but as FP32 in input 'x' of step 2"),
    (HEAD.replace("outputs: {y: Y}}", "outputs: {y: Y}, when: TEXT > 0}"),
     "tests tensor 'TEXT', which is BYTES; conditions compare numbers"),
])
def test_types_that_do_not_fit_are_found_at_load(tmp_path, config, told):
    put_onnx(tmp_path, "bert_embed", "embed")
    put_onnx(tmp_path, "bert_classify", "classify_text")
    put(tmp_path, "head", "max_batch_size: 8", affine(2.0, 1.0, SIZE))
    put(tmp_path, "wide", "max_batch_size: 8", affine(2.0, 1.0, SIZE + 1))
    put(tmp_path, "text_head", config)
    ended = subprocess.run(
        [BINARY, "serve", "--http-port", "0", "--grpc-port", "0",
         "--model-repository", tmp_path],
        stderr=subprocess.PIPE, text=True, timeout=60)
    assert ended.returncode != 0
    assert told in " ".join(ended.stderr.split()), ended.stderr
