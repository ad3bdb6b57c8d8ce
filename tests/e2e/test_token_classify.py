"""Task token_classify: entities of texts over every wire, beside what transformers'
pipeline says of the same tiny random models (tests/data/encoders/*_ner)."""
import json
import shutil
import urllib.error
import urllib.parse
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import REPO, start

DATA = REPO / "tests" / "data" / "encoders"
MODELS = ["bert_ner", "roberta_ner"]
GOLDEN = {name: json.loads((DATA / name / "golden.json").read_text())
          for name in MODELS}
STRATEGIES = ["none", "simple", "first", "average", "max"]
LONG = 8  # the text that has more tokens than the models take


def put(root, folder, name, options):
    target = root / folder
    (target / "1").mkdir(parents=True)
    shutil.copy(DATA / name / "model.onnx", target / "1")
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DATA / name / file, target)
    (target / "config.yaml").write_text(
        f"task: token_classify\ntask_options: {options}\n")
    return target


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    for name in MODELS:
        put(root, name, name, "{auto_truncate: true}")
    put(root, "strict", "bert_ner", "{aggregation_strategy: simple}")
    names = put(root, "named", "bert_ner",
                "{labels: names.txt, ignore_labels: [zero, two], "
                "auto_truncate: true}")
    (names / "names.txt").write_text("zero\none\ntwo\nthree\nfour\nfive\n")
    with start("--model-repository", root) as running:
        yield running


def post(server, path, body, content_type="application/json"):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, body,
                                     {"Content-Type": content_type})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def refused(server, path, body, content_type="application/json"):
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(server, path, body, content_type)
    return caught.value.code, caught.value.read().decode()


def agrees(got, wanted):
    assert [list(e) for e in got] == [list(e) for e in wanted]
    for mine, theirs in zip(got, wanted):
        assert mine["score"] == pytest.approx(theirs["score"], abs=5e-5)
        assert {**mine, "score": 0} == {**theirs, "score": 0}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", MODELS)
def test_entities_are_those_of_transformers(server, name, strategy):
    golden = GOLDEN[name]
    answers = post(server, f"/v1/tasks/{name}", {
        "inputs": golden["texts"],
        "parameters": {"aggregation_strategy": strategy}})
    assert len(answers) == len(golden["texts"])
    for got, wanted in zip(answers, golden["entities"][strategy]):
        agrees(got, wanted)


@pytest.mark.parametrize("name", MODELS)
def test_every_token_has_its_place(server, name):
    """With no label ignored all tokens are there: words and offsets of the
    package tokenizers, in characters."""
    golden = GOLDEN[name]
    answers = post(server, f"/v1/tasks/{name}", {
        "inputs": golden["texts"], "parameters": {"ignore_labels": []}})
    for got, wanted in zip(answers, golden["all"]):
        agrees(got, wanted)


def test_a_text_as_the_body(server):
    golden = GOLDEN["bert_ner"]
    for text, wanted in zip(golden["texts"], golden["entities"]["first"]):
        if not text:
            continue
        got = post(server, "/v1/tasks/bert_ner?aggregation_strategy=first",
                   text.encode(), "text/plain; charset=utf-8")
        agrees(got, wanted)


@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient_over_rest(server, binary):
    golden = GOLDEN["bert_ner"]
    client = triton_http.InferenceServerClient(f"127.0.0.1:{server.http_port}")
    texts = golden["texts"][1:]
    given = triton_http.InferInput("text", [len(texts)], "BYTES")
    given.set_data_from_numpy(
        np.array([t.encode() for t in texts], np.object_), binary_data=binary)
    answer = client.infer("bert_ner", [given], outputs=[
        triton_http.InferRequestedOutput("output", binary_data=binary)],
        parameters={"aggregation_strategy": "max"})
    rows = answer.as_numpy("output")
    assert rows.shape == (len(texts),)
    for row, wanted in zip(rows, golden["entities"]["max"][1:]):
        agrees(json.loads(row), wanted)


def test_tritonclient_over_grpc(server):
    golden = GOLDEN["roberta_ner"]
    client = triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    texts = golden["texts"][1:]
    given = triton_grpc.InferInput("text", [len(texts), 1], "BYTES")
    given.set_data_from_numpy(
        np.array([[t.encode()] for t in texts], np.object_))
    answer = client.infer("roberta_ner", [given], parameters={
        "aggregation_strategy": "average"})
    for row, wanted in zip(answer.as_numpy("output"),
                           golden["entities"]["average"][1:]):
        agrees(json.loads(row), wanted)
    with pytest.raises(InferenceServerException, match="aggregation_strategy"):
        client.infer("roberta_ner", [given],
                     parameters={"aggregation_strategy": "best"})


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("wire", ["json", "http", "grpc"])
def test_classes_of_tokens_as_kserve_gives_them(server, name, wire):
    golden = GOLDEN[name]
    label2id = json.loads((DATA / name / "config.json").read_text())["label2id"]
    texts = np.array(golden["texts"], object)
    if wire == "json":
        output, = post(server, f"/v2/models/{name}/infer", {
            "inputs": [{"name": "input-0", "datatype": "BYTES",
                        "shape": [len(texts)], "data": golden["texts"]}],
            "outputs": [{"name": "output-0"}]})["outputs"]
        assert output["datatype"] == "INT64"
        got = np.array(output["data"]).reshape(output["shape"])
    else:
        module = triton_http if wire == "http" else triton_grpc
        given = module.InferInput("input-0", [len(texts)], "BYTES")
        given.set_data_from_numpy(texts)
        client = module.InferenceServerClient(
            f"127.0.0.1:{getattr(server, wire + '_port')}")
        got = client.infer(name, [given], outputs=[
            module.InferRequestedOutput("output-0")]).as_numpy("output-0")
    assert got.shape[:2] == (len(texts), 1)
    for classes, entities in zip(got[:, 0], golden["all"]):
        for each in entities:
            assert classes[each["index"]] == label2id[each["entity"]]
        last = max([each["index"] for each in entities], default=0) + 1
        assert (classes[:last + 1] >= 0).all()  # with those around the text
        assert (classes[last + 1:] == -100).all()


def test_labels_of_a_file(server):
    golden = GOLDEN["bert_ner"]
    names = dict(zip(["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "MISC"],
                     ["zero", "one", "two", "three", "four", "five"]))
    for text, wanted in zip(golden["texts"], golden["all"]):
        got = post(server, "/v1/tasks/named", {"inputs": [text]})
        assert [e["entity"] for e in got] == [
            names[e["entity"]] for e in wanted
            if e["entity"] not in ("O", "I-PER")]
        query = urllib.parse.quote("one,four")
        if not text:
            continue
        got = post(server, f"/v1/tasks/named?ignore_labels={query}",
                   text.encode(), "text/plain")
        assert [e["entity"] for e in got] == [
            names[e["entity"]] for e in wanted
            if e["entity"] not in ("B-PER", "I-LOC")]


def test_long_texts_are_refused_or_cut(server):
    golden = GOLDEN["bert_ner"]
    body = {"inputs": [golden["texts"][1], golden["texts"][LONG]]}
    code, text = refused(server, "/v1/tasks/strict", body)
    assert code == 400
    assert "text 1: the text has 62 tokens but model 'strict' takes 48" in text
    got = post(server, "/v1/tasks/strict",
               {**body, "parameters": {"truncate": True}})
    agrees(got[1], golden["entities"]["simple"][LONG])


@pytest.mark.parametrize("parameters, said", [
    ({"aggregation_strategy": "best"}, "aggregation_strategy is 'best' but"),
    ({"aggregation_strategy": 3}, "aggregation_strategy must be"),
    ({"ignore_labels": 3}, "ignore_labels must be a list of labels"),
    ({"ignore_labels": ["O", 3]}, "ignore_labels[1]"),
    ({"truncate": "yes"}, "truncate must be"),
])
def test_parameters_that_make_no_sense_are_named(server, parameters, said):
    code, text = refused(server, "/v1/tasks/bert_ner",
                         {"inputs": ["mill"], "parameters": parameters})
    assert code == 400 and said in text


def test_what_is_no_text_is_refused(server):
    code, text = refused(server, "/v1/tasks/bert_ner", b"mill \xff",
                         "text/plain")
    assert code == 400 and "not valid UTF-8 at byte 5" in text
    code, text = refused(server, "/v1/tasks/bert_ner", {"inputs": []})
    assert code == 400 and "0 texts; 1 to 2048" in text
    code, text = refused(server, "/v1/tasks/bert_ner",
                         {"inputs": ["a"] * 2049})
    assert code == 400 and "2049 texts; 1 to 2048" in text


@pytest.mark.parametrize("options, model, said", [
    ("{labels: names.txt}", "bert_ner",
     "names of 2 labels (labels, or id2label of config.json), but no output"),
    ("{labels: none.txt}", "bert_ner", "labels is 'none.txt', but neither"),
    ("{}", "bert_classify", "no output of the graph is FP32 [texts, tokens, "
                            "labels], which the task needs; it has 'logits'"),
    ("{aggregation: first}", "bert_ner", "unknown option of task "
                                         "token_classify 'aggregation'"),
    ("{aggregation_strategy: best}", "bert_ner", "none, simple, first"),
    ("{pooling: mean}", "bert_ner", "unknown option"),
    ("{max_length: 65}", "bert_ner", "max_length is 65 but"),
])
def test_what_does_not_fit_is_said_at_load(tmp_path, options, model, said):
    target = put(tmp_path, "ner", model, options)
    (target / "names.txt").write_text("a\nb\n")
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit") as server:
        client = triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}")
        with pytest.raises(InferenceServerException) as caught:
            client.load_model("ner")
        assert said in str(caught.value)


def test_other_tokenizers_are_refused_by_name(tmp_path):
    target = put(tmp_path, "ner", "bert_ner", "{}")
    path = target / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["decoder"] = {"type": "Metaspace", "replacement": "\u2581",
                            "prepend_scheme": "always", "split": True}
    path.write_text(json.dumps(tokenizer))
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit") as server:
        client = triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}")
        with pytest.raises(InferenceServerException,
                           match="Metaspace.* not supported"):
            client.load_model("ner")
