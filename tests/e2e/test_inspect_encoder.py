"""millrace inspect of encoders of texts, and what other verbs say of them."""
import json
import shutil

import pytest

from conftest import REPO
from test_first_hour_tools import millrace

ENCODERS = REPO / "tests" / "data" / "encoders"


@pytest.mark.parametrize("model, task, route", [
    ("bert_embed", "embed", "/v1/embeddings"),
    ("bert_embed/model.gguf", "embed", "/v1/embeddings"),
    ("nomic_embed", "embed", "/v1/embeddings"),
    ("bert_classify", "classify_text", "/classify"),
    ("modernbert_rerank", "rerank", "/v1/rerank")])
def test_inspect_knows_encoders(model, task, route):
    path = ENCODERS / model
    told = millrace("inspect", path).stdout
    assert f"task           {task}, " in told and f"POST {route}\n" in told
    assert f"servable       yes: millrace serve {path}\n" in told
    assert "chat template" not in told and "KV cache" not in told
    assert ("activation     softmax\n" in told) == (task != "embed")


def test_an_encoder_that_cannot_be_served_is_told_why(tmp_path):
    broken = tmp_path / "encoder"
    shutil.copytree(ENCODERS / "bert_embed", broken)
    (broken / "tokenizer.json").unlink()
    done = millrace("inspect", broken, code=1)
    assert "servable       no: tokenizer is 'tokenizer.json'" in done.stdout
    shutil.copy(ENCODERS / "bert_embed" / "tokenizer.json", broken)
    config = json.loads((broken / "config.json").read_text())
    config["num_hidden_layers"] += 1
    (broken / "config.json").write_text(json.dumps(config))
    done = millrace("inspect", broken, code=1)
    assert "servable       no: " in done.stdout
    assert f"encoder.layer.{config['num_hidden_layers'] - 1}." in done.stdout


def test_an_activation_that_is_not_known_is_told(tmp_path):
    folder = tmp_path / "encoder"
    shutil.copytree(ENCODERS / "bert_rerank", folder)
    config = json.loads((folder / "config.json").read_text())
    config["sentence_transformers"] = {
        "activation_fn": "torch.nn.modules.activation.Tanh"}
    (folder / "config.json").write_text(json.dumps(config))
    why = ("sentence_transformers.activation_fn is "
           "'torch.nn.modules.activation.Tanh'; Identity, Sigmoid and Softmax")
    told = " ".join(millrace("inspect", folder, code=1).stdout.split())
    assert "servable no: " in told and why in told
    told = millrace("serve", "--http-port", "0", "--grpc-port", "0", folder,
                    code=1).stderr
    assert why in " ".join(told.split())


@pytest.mark.parametrize("architecture", [
    "DebertaV2Model", "T5EncoderModel", "DistilBertForMaskedLM",
    "BertForTokenClassification", "MPNetForSequenceClassification"])
def test_an_encoder_of_another_family_is_no_language_model(tmp_path,
                                                           architecture):
    folder = tmp_path / "encoder"
    shutil.copytree(ENCODERS / "bert_embed", folder)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = [architecture]
    (folder / "config.json").write_text(json.dumps(config))
    told = " ".join(millrace("inspect", folder, code=1).stdout.split())
    why = (f"the encoder '{architecture}' is not served; these are: BertModel, "
           "BertForMaskedLM, ")
    assert "servable no: " in told and why in told
    assert told.endswith("others as an export to ONNX or .pt2")
    told = millrace("serve", "--http-port", "0", "--grpc-port", "0", folder,
                    code=1).stderr
    assert why in " ".join(told.split())


def test_of_a_family_that_is_not_known_the_name_is_told(tmp_path):
    """Not what else a decoder that is served would need."""
    folder = tmp_path / "clip"
    shutil.copytree(ENCODERS / "bert_embed", folder)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["CLIPModel"]
    assert config["hidden_act"] == "gelu"
    (folder / "config.json").write_text(json.dumps(config))
    told = millrace("inspect", folder, code=1).stderr
    assert ("belongs to no family that is served; the folder says it is "
            "'CLIPModel'") in told


@pytest.mark.parametrize("model, what, flags", [
    ("encoders/bert_embed", "an encoder of texts",
     {"--ctx 10": "language models", "--template": "language models",
      "--tensor-parallel-size 2": "language models",
      "--base x": "LoRA adapters", "--device cuda:0": "graphs",
      "--threads 1": "graphs"}),
    ("hf_llama", "a language model",
     {"--base x": "LoRA adapters", "--precision int8": "graphs",
      "--isa avx2": "graphs"}),
    ("graph/mlp.onnx", "a graph",
     {"--ctx 10": "language models", "--speculative-model x":
      "language models", "--base x": "LoRA adapters"})])
def test_flags_that_tell_nothing_of_it_are_refused(model, what, flags):
    path = REPO / "tests" / "data" / model
    for flag, kinds in flags.items():
        told = millrace("inspect", path, *flag.split(), code=2).stderr
        assert f"{flag.split()[0]} is for {kinds}" in told
        assert f"and '{path}' is {what}" in told


@pytest.mark.parametrize("verb", ["run", "profile", "bench", "logits"])
def test_other_verbs_say_what_it_is(verb):
    done = millrace(verb, ENCODERS / "bert_embed", code=1)
    assert f"is an encoder of texts, but millrace {verb} takes" in done.stderr
