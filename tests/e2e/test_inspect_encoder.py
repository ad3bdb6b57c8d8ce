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


@pytest.mark.parametrize("verb", ["run", "profile", "bench", "logits"])
def test_other_verbs_say_what_it_is(verb):
    done = millrace(verb, ENCODERS / "bert_embed", code=1)
    assert f"is an encoder of texts, but millrace {verb} takes" in done.stderr
