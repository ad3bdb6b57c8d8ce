"""--device: a GPU that cannot serve says why in one sentence and the server
ends; with auto the CPU serves and the sentence is a line in the log."""
import os
import subprocess

from conftest import BINARY, MODEL, start

NO_MODULE = {"MILLRACE_CUDA_MODULE": "/nonexistent/module.so"}


def refused(device, **env):
    done = subprocess.run(
        [BINARY, "serve", MODEL, "--device", device, "--http-port", "0",
         "--grpc-port", "0"],
        capture_output=True, text=True, timeout=120,
        env={**os.environ, **env})
    assert done.returncode != 0
    return done.stderr


def test_a_gpu_without_a_module():
    said = refused("cuda:0", **NO_MODULE)
    assert ("there is no CUDA module, looked for '/nonexistent/module.so'"
            in said)


def test_a_module_that_is_none(tmp_path):
    path = tmp_path / "module.so"
    path.write_text("no library")
    said = refused("cuda:0", MILLRACE_CUDA_MODULE=str(path))
    assert "the CUDA module cannot be opened" in said


def test_a_device_that_does_not_exist():
    assert "cuda:0 (or another number) and auto exist" in refused("tpu")


def test_auto_falls_back_to_the_cpu_and_says_why():
    with start(MODEL, "--device", "auto", env=NO_MODULE) as server:
        line = next(line for line in server.lines
                    if "language models run on the CPU" in line)
        assert "there is no CUDA module" in line
