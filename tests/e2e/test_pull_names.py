"""What a pulled model is called and where it lies: names of the models that `millrace
serve` is given by address, the folder of the cache."""
import json
import subprocess

from conftest import BINARY, REPO, start
from test_pull import environment, hf_folder, host, pull, pulled


def test_repositories_whose_names_have_dots(host, tmp_path):
    env = environment(tmp_path, HF_ENDPOINT=host.url)
    repos = ["tiny/llama-3.1-8B", "tiny/llama-3.2-1B"]
    for repo in repos:
        host.add_repo(repo, hf_folder())
    addresses = [f"hf://{repo}" for repo in repos]
    with start("--pull", *addresses, env=env) as server:
        models = json.loads(server.get("/v1/models"))["data"]
    assert [model["id"] for model in models] == [
        "llama-3.1-8B", "llama-3.2-1B"]


def test_an_empty_variable_names_no_cache(host, tmp_path):
    (tmp_path / "work").mkdir()
    done = subprocess.run(
        [BINARY, "pull", host.url + "/m/net.onnx"], capture_output=True,
        text=True, timeout=60, cwd=tmp_path / "work",
        env={**environment(tmp_path), "MILLRACE_CACHE": "",
             "XDG_CACHE_HOME": "", "HOME": str(tmp_path)})
    assert pulled(done).is_relative_to(tmp_path / ".cache" / "millrace")
    assert list((tmp_path / "work").iterdir()) == []


def test_two_repositories_of_files_of_one_name(host, tmp_path):
    """The only GGUF of each: its stem is the name."""
    env = environment(tmp_path, HF_ENDPOINT=host.url)
    file = (REPO / "tests/data/hf_llama/model.gguf").read_bytes()
    addresses = []
    for repo in ("tiny/one", "tiny/two"):
        host.add_repo(repo, {"net.gguf": file})
        addresses.append(f"hf://{repo}")
        pulled(pull(tmp_path, addresses[-1], HF_ENDPOINT=host.url))
    done = subprocess.run([BINARY, "serve", *addresses], capture_output=True,
                          text=True, timeout=60, env=env)
    assert done.returncode == 2
    assert "two models, or two names of one, are 'net'" in done.stderr
    with start(addresses[0], f"two={addresses[1]}", env=env) as server:
        models = json.loads(server.get("/v1/models"))["data"]
    assert [model["id"] for model in models] == ["net", "two"]
