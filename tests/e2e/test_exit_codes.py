"""How verbs end: 0, 1 for what failed, whatever is wrong with a model, and 2
for the command line and its settings."""
import json
import subprocess

import pytest

from conftest import BINARY, MODEL, REPO

WRONG = {"empty.gguf": b"", "other.gguf": b"GGUF but nothing behind it",
         "cut.gguf": None, "text.onnx": b"hello", "text.pt2": b"PK\3\4 no more",
         "model.pt": b"a pickle"}
FLAGS = {"serve": ["--http-port", "0", "--grpc-port", "0"], "inspect": [],
         "bench": [], "logits": ["--tokens", "tokens.json"], "run": [],
         "profile": [], "convert": ["to.packed"],
         "quantize": ["--calibration", "none.npz"]}


def ended(folder, *words):
    return subprocess.run([BINARY, *map(str, words)], capture_output=True,
                          text=True, timeout=60, cwd=folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("wrong")
    with open(MODEL, "rb") as model:
        beginning = model.read(5000)
    for name, data in WRONG.items():
        (root / name).write_bytes(beginning if data is None else data)
    (root / "no-model").mkdir()
    (root / "tokens.json").write_text("[[1]]")
    return root


@pytest.mark.parametrize("verb", FLAGS)
@pytest.mark.parametrize("name", [*WRONG, "no-model", "missing.gguf"])
def test_a_wrong_model_is_1_with_every_verb(folder, verb, name):
    done = ended(folder, verb, name, *FLAGS[verb])
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"millrace {verb}: ")


@pytest.mark.parametrize("config", [
    "max_batchsize: 3", 'input [ { name: "nobody" } ]',
    "version_policy { specific { versions: [ 7 ] } }"])
def test_a_wrong_configuration_of_a_model_is_1(tmp_path, config):
    folder = tmp_path / "mlp" / "1"
    folder.mkdir(parents=True)
    (folder / "model.onnx").symlink_to(
        REPO / "tests" / "data" / "graph" / "mlp.onnx")
    (folder.parent / "config.pbtxt").write_text(config)
    done = ended(tmp_path, "serve", "--model-repository", tmp_path,
                 *FLAGS["serve"])
    assert done.returncode == 1, done.stderr


@pytest.mark.parametrize("verb", FLAGS)
def test_an_unknown_flag_is_2(folder, verb):
    done = ended(folder, verb, MODEL, "--no-such-flag", *FLAGS[verb])
    assert done.returncode == 2, done.stderr


@pytest.mark.parametrize("flags", [
    ["--config", "missing.yaml"], ["--config", "wrong.yaml"],
    ["--http-port", "x"], ["chat="]])
def test_wrong_settings_are_2(folder, flags):
    (folder / "wrong.yaml").write_text(json.dumps({"http_prot": 1}))
    done = ended(folder, "serve", *flags)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
