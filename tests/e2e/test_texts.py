"""Tasks over texts: tiny encoders as ONNX in a repository and as Hugging Face
folders, through openai-python, ollama's client and plain HTTP, beside what
transformers gives for the same texts."""
import json
import math
import shutil

import numpy as np
import ollama
import openai
import pytest

from conftest import REPO, start
from texts import cosine, post, refused

DATA = REPO / "tests" / "data" / "encoders"
EMBED = json.loads((DATA / "bert_embed" / "golden.json").read_text())
RERANK = json.loads((DATA / "bert_rerank" / "golden.json").read_text())
CLASSIFY = json.loads((DATA / "bert_classify" / "golden.json").read_text())
TASKS = {"bert_embed": "embed", "bert_rerank": "rerank",
         "bert_classify": "classify_text"}
# The longest of them has more tokens than the models take.
SHORT = len(EMBED["texts"]) - 1


def put_onnx(root, name, task):
    """As an exported graph with a config.yaml; the tokenizer is shared by all
    versions."""
    source, target = DATA / name, root / name
    (target / "1").mkdir(parents=True)
    shutil.copy(source / "model.onnx", target / "1")
    for file in source.iterdir():
        if file.suffix == ".json" and file.name != "golden.json":
            shutil.copy(file, target)
    if (source / "1_Pooling").exists():
        shutil.copytree(source / "1_Pooling", target / "1_Pooling")
    (target / "config.yaml").write_text(
        f"task: {task}\ntask_options: {{max_length: 48}}\n")


@pytest.fixture(scope="module", params=["onnx", "folder"])
def server(request, tmp_path_factory):
    if request.param == "folder":
        folders = [DATA / name for name in TASKS]
        with start(*folders) as running:
            running.form = "folder"
            yield running
        return
    root = tmp_path_factory.mktemp("repository")
    for name, task in TASKS.items():
        put_onnx(root, name, task)
    with start("--model-repository", root) as running:
        running.form = "onnx"
        yield running


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none",
                         max_retries=0, timeout=120)


def vectors(client, **more):
    answer = client.embeddings.create(model="bert_embed", **more)
    assert [d.index for d in answer.data] == list(range(len(answer.data)))
    return [d.embedding for d in answer.data], answer.usage


@pytest.mark.parametrize("encoding", [None, "float", "base64"])
def test_vectors_are_those_of_transformers(client, encoding):
    texts = EMBED["texts"][:SHORT]
    more = {} if encoding is None else {"encoding_format": encoding}
    got, usage = vectors(client, input=texts, **more)
    assert usage.prompt_tokens == usage.total_tokens == sum(
        EMBED["tokens"][:SHORT])
    for text, row, want in zip(texts, got, EMBED["mean"]):
        if encoding == "base64":
            import base64
            row = np.frombuffer(base64.b64decode(row), np.float32)
        assert cosine(row, want) > 0.99999, text
        assert np.linalg.norm(row) == pytest.approx(1, abs=1e-6)


def test_vectors_in_bytes_and_bits(client):
    import base64
    texts = EMBED["texts"][:SHORT]
    floats = np.array(vectors(client, input=texts, encoding_format="float")[0],
                      np.float32)
    bits = np.packbits(floats > 0, axis=1)  # as sentence-transformers has it
    scaled = np.rint(floats / np.abs(floats).max(1, keepdims=True)
                     * np.float32(127)).astype(int)
    for name, want in [("int8", scaled), ("uint8", scaled + 128),
                       ("ubinary", bits), ("binary", bits.astype(int) - 128)]:
        got, usage = vectors(client, input=texts, encoding_format=name)
        assert got == want.tolist(), name
        assert usage.prompt_tokens == sum(EMBED["tokens"][:SHORT])
        packed, _ = vectors(client, input=texts, encoding_format="base64",
                            extra_body={"output_dtype": name})
        dtype = np.uint8 if name.startswith("u") else np.int8
        assert [np.frombuffer(base64.b64decode(row), dtype).tolist()
                for row in packed] == got, name
    for row, want in zip(scaled, EMBED["mean"]):
        assert cosine(row, want) > 0.999
    short, _ = vectors(client, input=texts, encoding_format="ubinary",
                       dimensions=12)
    assert short == np.packbits(floats[:, :12] > 0, axis=1).tolist()


def test_metadata_tell_the_size_of_a_row(server):
    sizes = {"bert_embed": [-1, -1, len(EMBED["mean"][0])],
             "bert_rerank": [-1, 1],
             "bert_classify": [-1, len(CLASSIFY["logits"][0])]}
    for model, shape in sizes.items():
        told = json.loads(server.get(f"/v2/models/{model}"))
        assert told["outputs"][0]["shape"] == shape, model


def test_a_text_has_the_same_bits_alone_and_beside_others(client):
    texts = EMBED["texts"][:SHORT]
    together, _ = vectors(client, input=texts)
    for text, row in zip(texts, together):
        assert vectors(client, input=text)[0] == [row]
    assert vectors(client, input=texts[::-1] * 20)[0] == together[::-1] * 20


def test_token_ids_stand_as_they_are(server, client):
    config = json.loads((DATA / "bert_embed" / "tokenizer.json").read_text())
    vocab = config["model"]["vocab"]
    ids = [vocab["[CLS]"], vocab["mill"], vocab["[SEP]"]]
    got, usage = vectors(client, input=ids)
    assert usage.prompt_tokens == 3
    assert cosine(got[0], EMBED["mean"][1]) > 0.99999
    both, _ = vectors(client, input=[ids, ids])
    assert both == got * 2
    code, message = refused(server, "/v1/embeddings", {
        "model": "bert_embed", "input": [[99999999]]})
    assert code == 400 and "99999999" in message


def test_dimensions_cut_and_bring_back_to_length_one(server, client):
    got, _ = vectors(client, input="mill", dimensions=8)
    want = EMBED["mean"][1][:8]
    assert len(got[0]) == 8
    assert cosine(got[0], want) > 0.99999
    assert np.linalg.norm(got[0]) == pytest.approx(1, abs=1e-6)
    code, message = refused(server, "/v1/embeddings", {
        "model": "bert_embed", "input": "mill", "dimensions": 33})
    assert code == 400 and "have 32" in message


def test_texts_that_are_too_long_are_refused_or_cut(server, client):
    long = EMBED["texts"][SHORT]
    code, message = refused(server, "/v1/embeddings", {
        "model": "bert_embed", "input": long})
    assert code == 400 and "takes 48" in message
    got, usage = vectors(client, input=long,
                         extra_body={"truncate_prompt_tokens": -1})
    assert usage.prompt_tokens == 48 == EMBED["tokens"][SHORT]
    assert cosine(got[0], EMBED["mean"][SHORT]) > 0.99999
    _, usage = vectors(client, input=long,
                       extra_body={"truncate_prompt_tokens": 10})
    assert usage.prompt_tokens == 10


def test_ollama_embeds(server):
    client = ollama.Client(server.url)
    texts = EMBED["texts"]  # cut without being asked
    answer = client.embed("bert_embed", texts)
    for row, want in zip(answer.embeddings, EMBED["mean"]):
        assert cosine(row, want) > 0.99999
    assert answer.prompt_eval_count == sum(EMBED["tokens"])
    one = client.embeddings("bert_embed", texts[2])
    assert cosine(one.embedding, EMBED["mean"][2]) > 0.99999


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_rerank_orders_as_transformers_scores(server):
    texts = RERANK["texts"]
    scores = [row[0] for row in RERANK["logits"]]
    order = sorted(range(len(texts)), key=lambda i: -scores[i])
    body = {"model": "bert_rerank", "query": RERANK["query"],
            "documents": texts, "truncate_prompt_tokens": -1}
    for path in ("/v1/rerank", "/v2/rerank", "/rerank"):
        answer = post(server, path, body)
        assert [r["index"] for r in answer["results"]] == order
        for result in answer["results"]:
            i = result["index"]
            assert result["document"]["text"] == texts[i]
            assert result["relevance_score"] == pytest.approx(
                sigmoid(scores[i]), abs=1e-5)
    answer = post(server, "/v1/rerank", {
        **body, "top_n": 2, "return_documents": False,
        "documents": [{"text": t} for t in texts]})
    assert [r["index"] for r in answer["results"]] == order[:2]
    assert "document" not in answer["results"][0]
    # text-embeddings-inference's shape.
    answer = post(server, "/rerank", {
        "model": "bert_rerank", "query": RERANK["query"], "texts": texts,
        "truncate": True, "raw_scores": True, "return_text": True})
    assert [r["index"] for r in answer] == order
    assert answer[0]["score"] == pytest.approx(scores[order[0]], abs=1e-4)
    assert answer[0]["text"] == texts[order[0]]


def test_score_takes_one_or_as_many_first_texts(server):
    texts = RERANK["texts"][:3]
    scores = [sigmoid(row[0]) for row in RERANK["logits"][:3]]
    for first in (RERANK["query"], [RERANK["query"]] * 3):
        answer = post(server, "/v1/score", {
            "model": "bert_rerank", "text_1": first, "text_2": texts})
        assert [d["score"] for d in answer["data"]] == pytest.approx(
            scores, abs=1e-5)
    code, message = refused(server, "/score", {
        "model": "bert_rerank", "text_1": ["a", "b"], "text_2": texts})
    assert code == 400 and "text_1 has 2" in message


def test_a_model_that_embeds_scores_by_cosine(server):
    first, *others = EMBED["texts"][1:SHORT]
    want = [cosine(EMBED["mean"][1], row) for row in EMBED["mean"][2:SHORT]]
    answer = post(server, "/v1/score", {
        "model": "bert_embed", "text_1": first, "text_2": others})
    assert [d["score"] for d in answer["data"]] == pytest.approx(want, abs=1e-5)
    answer = post(server, "/v1/rerank", {
        "model": "bert_embed", "query": first, "documents": others})
    assert answer["results"][0]["index"] == int(np.argmax(want))


def test_classes_have_the_names_of_the_config(server):
    labels = ["calm", "glad", "sad"]
    texts = CLASSIFY["texts"][:SHORT]
    answer = post(server, "/classify", {"model": "bert_classify",
                                        "input": texts})
    for item, logits in zip(answer["data"], CLASSIFY["logits"]):
        odds = np.exp(np.array(logits) - max(logits))
        assert item["probs"] == pytest.approx(list(odds / odds.sum()), abs=1e-5)
        assert item["label"] == labels[int(np.argmax(logits))]
        assert item["num_classes"] == 3


def of_config(folder, source, **more):
    """A folder like that of `source`, whose config.json says more."""
    shutil.copytree(DATA / source, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **more}))
    return folder


# What transformers' TextClassificationPipeline and CrossEncoder of
# sentence-transformers make of the logits; vLLM reads problem_type first.
IDENTITY = "torch.nn.modules.linear.Identity"
SIGMOID = "torch.nn.modules.activation.Sigmoid"
ACTIVATIONS = {
    "regression": ({"problem_type": "regression"}, "none"),
    "multi": ({"problem_type": "multi_label_classification"}, "sigmoid"),
    "single": ({"problem_type": "single_label_classification",
                "sbert_ce_default_activation_function": IDENTITY}, "default"),
    "identity": ({"sentence_transformers": {"activation_fn": IDENTITY},
                  "sbert_ce_default_activation_function": SIGMOID}, "none"),
    "older": ({"problem_type": None,
               "sbert_ce_default_activation_function": IDENTITY}, "none"),
    "sigmoid": ({"sentence_transformers": {"activation_fn": SIGMOID}},
                "sigmoid"),
    "no function": ({"sentence_transformers": {"version": "5.0"}}, "default"),
}


def activated(logits, name):
    logits = np.array(logits)
    if name == "none":
        return logits
    if name == "sigmoid" or len(logits) == 1:
        return 1 / (1 + np.exp(-logits))
    odds = np.exp(logits - logits.max())
    return odds / odds.sum()


def check_classes(server, model, activation):
    answer = post(server, "/classify", {
        "model": model, "input": CLASSIFY["texts"][:SHORT]})
    for item, logits in zip(answer["data"], CLASSIFY["logits"]):
        assert item["probs"] == pytest.approx(activated(logits, activation),
                                              abs=1e-4), model


def test_scores_are_activated_as_the_config_says(tmp_path):
    texts = CLASSIFY["texts"][:SHORT]
    folders = [of_config(tmp_path / f"{source} {name}".replace(" ", "_"), source,
                         **more)
               for name, (more, _) in ACTIVATIONS.items()
               for source in ("bert_classify", "bert_rerank")]
    with start(*folders) as server:
        for name, (_, activation) in ACTIVATIONS.items():
            check_classes(server, f"bert_classify_{name}".replace(" ", "_"),
                          activation)
            answer = post(server, "/v1/score", {
                "model": f"bert_rerank_{name}".replace(" ", "_"),
                "text_1": RERANK["query"], "text_2": texts})
            for got, logits in zip(answer["data"], RERANK["logits"]):
                assert got["score"] == pytest.approx(
                    activated(logits, activation)[0], abs=1e-4), name


@pytest.mark.parametrize("setting, activation", [
    ("", "sigmoid"), (", activation: softmax", "softmax"),
    (", activation: none", "none")])
def test_the_activation_of_config_yaml_wins(tmp_path, setting, activation):
    put_onnx(tmp_path, "bert_classify", "classify_text")
    folder = tmp_path / "bert_classify"
    config = json.loads((folder / "config.json").read_text())
    config["problem_type"] = "multi_label_classification"
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "config.yaml").write_text(
        f"task: classify_text\ntask_options: {{max_length: 48{setting}}}\n")
    with start("--model-repository", tmp_path) as server:
        check_classes(server, "bert_classify", activation)


def test_a_model_of_one_class_scores_single_texts(tmp_path):
    folder = of_config(tmp_path / "grade", "bert_rerank",
                       problem_type="regression", id2label={"0": "quality"})
    with start(folder, DATA / "bert_rerank") as server:
        texts = RERANK["texts"][1:SHORT]
        of = {}
        for model in ("grade", "bert_rerank"):
            answer = post(server, "/classify", {"model": model, "input": texts})
            assert [item["num_classes"] for item in answer["data"]] == \
                [1] * len(texts)
            of[model] = [item["probs"][0] for item in answer["data"]]
        assert {item["label"] for item in post(server, "/classify", {
            "model": "grade", "input": texts})["data"]} == {"quality"}
        assert of["grade"] == pytest.approx(RERANK["alone"][1:SHORT], abs=1e-4)
        assert of["bert_rerank"] == pytest.approx(
            [sigmoid(x) for x in of["grade"]], abs=1e-5)


@pytest.mark.parametrize("path,body,says", [
    ("/v1/embeddings", {"model": "bert_embed"}, "input is missing"),
    ("/v1/embeddings", {"model": "bert_embed", "input": []}, "1 to 2048"),
    ("/v1/embeddings", {"model": "bert_embed", "input": ["a"] * 2049},
     "1 to 2048"),
    ("/v1/embeddings", {"model": "bert_embed", "input": {"a": 1}},
     "input must be"),
    ("/v1/embeddings", {"model": "bert_embed", "input": [1, "a"]}, "input[1]"),
    ("/v1/embeddings", {"model": "bert_embed", "input": "a",
                        "encoding_format": "int4"}, "binary or ubinary"),
    ("/v1/embeddings", {"model": "bert_embed", "input": "a",
                        "encoding_format": "int8", "output_dtype": "binary"},
     "leave one of them out"),
    ("/v1/embeddings", {"model": "bert_rerank", "input": "a"},
     "has the task rerank"),
    ("/v1/embeddings", {"input": "a"}, "model is missing"),
    ("/v1/rerank", {"model": "bert_rerank", "documents": ["a"]},
     "query is missing"),
    ("/v1/rerank", {"model": "bert_classify", "query": "a",
                    "documents": ["a"]}, "has the task classify_text"),
    ("/v1/rerank", {"model": "bert_rerank", "query": "a",
                    "documents": [{"title": "a"}]}, "documents[0]"),
    ("/classify", {"model": "bert_embed", "input": "a"}, "has the task embed"),
])
def test_what_is_wrong_is_named(server, path, body, says):
    code, message = refused(server, path, body)
    assert code == 400 and says in message, message


def test_unknown_models_are_404(client):
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="none", input="a")


def test_the_description_has_the_routes(server):
    paths = json.loads(server.get("/openapi.json"))["paths"]
    assert {"/v1/embeddings", "/v1/rerank", "/v1/score", "/classify"} <= set(paths)
