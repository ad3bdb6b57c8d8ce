"""TorchServe's command line: every flag of `torchserve --help` is taken, and
deploy/torchserve.sh starts and stops as `torchserve` does."""
import json
import os
import re
import socket
import subprocess
import urllib.request

import pytest

from conftest import BINARY, REPO
from test_torchserve import archives, ask, torchserve

PORTS = ["--http-port", "0", "--grpc-port", "0", "--grpc-management-port", "0",
         "--management-port", "0", "--metrics-port", "0"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("store")
    archives.write_store(root, "onnx")
    return root


def test_every_flag_is_taken(store):
    with torchserve("--start", "--foreground", "--ncs", "--no-config-snapshots",
                    "--log-config", "x.xml", "--cpp-log-config", "y.yaml",
                    "--plugins-path", "p", "--ppath", "p", "--dt",
                    "--workflow-store", store, "--enable-model-api",
                    "--model-store", store, "--models", "linear.mar",
                    "o=other.mar") as server:
        assert [each["modelName"] for each in ask(
            server, "management", "GET", "/models")[1]["models"]] == [
                "linear", "o"]


def test_a_link_out_of_the_store_is_named(store, tmp_path):
    (tmp_path / "linear.mar").symlink_to(store / "linear.mar")
    done = subprocess.run(
        [BINARY, "serve", "--profile", "torchserve", *PORTS, "--model-store",
         tmp_path, "--models", "linear.mar"],
        capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "a link out of it is not followed" in done.stderr


def test_a_model_that_cannot_be_registered_is_left_out_on_request(store):
    models = ["absent.mar", "linear.mar", "gone=http://127.0.0.1:1/x.mar"]
    with torchserve("--exit-on-error=false", "--model-store", store, "--models",
                    *models) as server:
        assert [each["modelName"] for each in ask(
            server, "management", "GET", "/models")[1]["models"]] == ["linear"]
        for url in ("absent.mar", "http://127.0.0.1:1/x.mar"):
            server.line("model not registered", url)
    done = subprocess.run(
        [BINARY, "serve", "--profile", "torchserve", *PORTS, "--model-store",
         store, "--models", *models],
        capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "absent.mar" in done.stderr


def test_values_of_the_file_may_name_variables(store, tmp_path):
    config = tmp_path / "config.properties"
    config.write_text("model_store=$$STORE$$\nload_models=linear.mar\n"
                      "default_startup_timeout=33\n")
    with torchserve("--ts-config", config,
                    env={"STORE": str(store)}) as server:
        _, [model] = ask(server, "management", "GET", "/models/linear")
        assert model["startupTimeout"] == 33
    done = subprocess.run(
        [BINARY, "serve", "--profile", "torchserve", "--ts-config", config],
        capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "'STORE'" in done.stderr


def script(tmp_path):
    """Runs deploy/torchserve.sh with the words that it is given."""
    def run(*words):
        return subprocess.run(
            [REPO / "deploy" / "torchserve.sh", *words], cwd=tmp_path,
            capture_output=True, text=True, timeout=60, env={
                **os.environ, "MILLRACE": str(BINARY),
                "MILLRACE_PID_FILE": str(tmp_path / "pid")})
    return run


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1"])
def test_the_script_needs_no_line_of_the_log(store, tmp_path, host):
    run, port = script(tmp_path), free_port()
    try:
        done = run("--start", "--ncs", "--disable-token-auth", "--model-store",
                   str(store), "--models", "linear.mar", *PORTS, "--log-level",
                   "warning", "--http-port", str(port), "--host", host)
        assert done.returncode == 0, done.stderr
        at = "[::1]" if host == "::1" else "127.0.0.1"
        with urllib.request.urlopen(f"http://{at}:{port}/ping") as answer:
            assert json.load(answer) == {"status": "Healthy"}
    finally:
        assert run("--stop").returncode == 0


def test_the_script_starts_and_stops(store, tmp_path):
    run = script(tmp_path)
    start = ["--start", "--ncs", "--disable-token-auth", "--model-store",
             str(store), "--models", "linear.mar", *PORTS]
    assert run("--stop").returncode == 0
    done = run(*start)
    assert done.returncode == 0, done.stderr
    try:
        log = (tmp_path / "logs" / "millrace.log").read_text()
        port = re.search(r"http_port\"?[=:](\d+)", log)[1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ping") as answer:
            assert json.load(answer) == {"status": "Healthy"}
        again = run(*start)
        assert again.returncode != 0 and "runs already" in again.stderr
    finally:
        assert run("--stop").returncode == 0
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=5)
    assert not (tmp_path / "pid").exists()
    failed = run("--start", "--model-store", str(store), "--models",
                 "absent.mar", *PORTS)
    assert failed.returncode != 0 and "absent.mar" in failed.stderr
    assert not (tmp_path / "pid").exists()
    assert run("--version").stdout.strip()
