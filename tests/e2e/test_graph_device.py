"""Graphs with --device cuda:0 on the emulated module: answers are the CPU's,
over both protocols, in any batch; what cannot be is told in one sentence."""
import concurrent.futures
import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import BINARY, REPO, start

DATA = REPO / "tests" / "data" / "graph"
QUANTIZED = REPO / "tests" / "data" / "graph_quantized"
MODULE = BINARY.parent / "libmillrace_cuda_emulated.so"
EMULATED = {"MILLRACE_CUDA_MODULE": str(MODULE)}
NO_MODULE = {"MILLRACE_CUDA_MODULE": "/nonexistent/module.so"}

pytestmark = pytest.mark.skipif(not MODULE.exists(),
                                reason="built without the emulated module")


def metadata(server, model):
    return json.loads(server.get(f"/v2/models/{model}"))


def infer(server, model, arrays, library=triton_http):
    port = server.http_port if library is triton_http else server.grpc_port
    described = metadata(server, model)
    inputs = []
    for port_of, array in zip(described["inputs"], arrays):
        made = library.InferInput(port_of["name"], list(array.shape),
                                  port_of["datatype"])
        made.set_data_from_numpy(array)
        inputs.append(made)
    with library.InferenceServerClient(f"127.0.0.1:{port}") as client:
        answer = client.infer(model, inputs)
        return [answer.as_numpy(out["name"]) for out in described["outputs"]]


def inputs_of(model, tag):
    with np.load(DATA / f"{model}.{tag}.npz") as arrays:
        return [arrays[k] for k in arrays.files if k.startswith("in")]


# A convnet, an encoder whose mask is made by operators without a kernel, a
# network that resizes on the CPU in the middle, a recurrent one.
@pytest.mark.parametrize("model", ["resnet50", "minilm", "unet",
                                   "lstm_tagger"])
def test_answers_are_the_cpus(model):
    path = DATA / f"{model}.onnx"
    with start(path) as cpu, start(path, "--device", "cuda:0",
                                   "--precision", "f32",
                                   env=EMULATED) as gpu:
        assert "device" not in metadata(cpu, model).get("parameters", {})
        assert (metadata(gpu, model)["parameters"]
                == {"device": "cuda:0", "precision": "f32"})
        for tag in ["b1", "b2", "b3"]:
            arrays = inputs_of(model, tag)
            want = infer(cpu, model, arrays)
            got = infer(gpu, model, arrays)
            for mine, theirs in zip(got, want):
                assert mine.shape == theirs.shape
                assert (np.abs(mine - theirs).max()
                        <= 1e-4 * np.abs(theirs).max())
            over_grpc = infer(gpu, model, arrays, triton_grpc)
            for mine, same in zip(got, over_grpc):
                assert np.array_equal(mine, same)
            # Sums in another order; an LSTM's few steps leave few of them.
            if model != "lstm_tagger":
                assert any(not np.array_equal(mine, theirs) for mine, theirs
                           in zip(got, want)), "the CPU answered"


# Shares of the greatest value: a product of factors in tf32 or f16 is off by
# 2^-10 of itself, in bf16 by 2^-7.
@pytest.mark.parametrize("asked, told, most", [
    ("auto", "tf32", 2**-8), ("tf32", "tf32", 2**-8), ("f16", "f16", 2**-8),
    ("bf16", "bf16", 2**-5)])
def test_precisions(asked, told, most):
    model = "resnet50"
    arrays = inputs_of(model, "b2")
    with start(DATA / f"{model}.onnx") as cpu:
        want = infer(cpu, model, arrays)[0]
    with start(DATA / f"{model}.onnx", "--device", "cuda:0", "--precision",
               asked, env=EMULATED) as gpu:
        parameters = metadata(gpu, model)["parameters"]
        assert parameters["precision"] == told
        # auto and tf32 are what others do unasked; the rest is held against f32.
        assert ("precision_error" in parameters) == (told in ("f16", "bf16"))
        got = infer(gpu, model, arrays)[0]
    error = np.abs(got - want).max() / np.abs(want).max()
    assert 1e-6 < error <= most


def test_a_precision_that_costs_too_much_is_not_served():
    with start(DATA / "resnet50.onnx", "--device", "cuda:0", "--precision",
               "bf16", "--max-precision-error", "0.00001",
               env=EMULATED) as gpu:
        parameters = metadata(gpu, "resnet50")["parameters"]
        assert parameters["precision"] == "tf32"
        assert parameters["precision_asked"] == "bf16"


# Layers of quantised graphs are exact integers on both.
@pytest.mark.parametrize("kind, on_cpu", [("qdq", 0), ("qlinear", 1)])
def test_quantised_graphs_give_the_cpus_bytes(kind, on_cpu):
    model = f"resnet50.{kind}"
    path = QUANTIZED / f"{model}.onnx"
    with start(path) as cpu, start(path, "--device", "cuda:0",
                                   env=EMULATED) as gpu:
        for tag in ["b1", "b2", "b3"]:
            with np.load(QUANTIZED / f"{model}.{tag}.npz") as arrays:
                inputs = [arrays["in0"]]
                theirs = arrays["out0"]
            want = infer(cpu, model, inputs)[0]
            got = infer(gpu, model, inputs)[0]
            assert np.array_equal(got, want)
            assert (np.abs(got - theirs).max()
                    <= 4 / 127 * np.abs(theirs).max())
    done = inspect(path, "--device", "cuda:0")
    assert done.returncode == 0, done.stderr
    assert "  cuda:0  Int8 Conv 1 x " in done.stdout
    assert f", {on_cpu} on the CPU" in done.stdout


def test_int8_quantises_a_graph_at_load_as_on_the_cpu(tmp_path):
    model = tmp_path / "resnet50.onnx"
    shutil.copy(DATA / "resnet50.onnx", model)
    np.savez(tmp_path / "samples.npz", x=inputs_of("resnet50", "b3")[0])
    subprocess.run([BINARY, "quantize", model, "--calibration",
                    tmp_path / "samples.npz"], check=True,
                   stdout=subprocess.DEVNULL)
    flags = ["--precision", "int8", "--precision-samples",
             tmp_path / "samples.npz"]
    arrays = inputs_of("resnet50", "b2")
    with start(model) as f32:
        exact = infer(f32, "resnet50", arrays)[0]
    for most, all_in_bytes in [("100%", True), ("0", False)]:
        more = [*flags, "--max-precision-error", most]
        with start(model, *more) as cpu, start(
                model, *more, "--device", "cuda:0", env=EMULATED) as gpu:
            told = metadata(gpu, "resnet50")["parameters"]
            assert told["device"] == "cuda:0"
            assert told["precision"] == "int8"
            on_cpu = metadata(cpu, "resnet50")["parameters"]
            assert told["precision_layers"] == on_cpu["precision_layers"]
            assert (told["precision_f32_layers"] == "") == all_in_bytes
            got = infer(gpu, "resnet50", arrays)[0]
            want = infer(cpu, "resnet50", arrays)[0]
        size = np.abs(exact).max()
        # Layers on bytes give the same bytes; what is not in bytes is tf32.
        assert np.abs(got - want).max() <= 2**-8 * size
        assert (np.abs(got - exact).max() > 2**-8 * size) == all_in_bytes
    listed = inspect(model, "--device", "cuda:0", "--precision", "int8")
    assert "  cuda:0  Int8 Conv 1 x " in listed.stdout
    assert "precision      int8" in listed.stdout


def test_a_cpu_computes_what_gpus_have_in_f32():
    with start(DATA / "resnet50.onnx", "--precision", "f16") as cpu:
        assert metadata(cpu, "resnet50")["parameters"]["precision"] == "f32"


def test_rows_do_not_depend_on_their_batch():
    """Requests of one to three rows at once, joined to batches, on two
    instances: each answer has the bits of the request alone."""
    model = "resnet50"
    rows = inputs_of(model, "b3")[0]
    with start(DATA / f"{model}.onnx", "--device", "cuda:0",
               "--instance-count", "2", "--max-queue-delay", "20ms",
               env=EMULATED) as server:
        alone = [infer(server, model, [rows[i:i + 1]])[0] for i in range(3)]

        def ask(i):
            count = i % 3 + 1
            return infer(server, model, [rows[:count]])[0]

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            for i, got in enumerate(pool.map(ask, range(24))):
                assert np.array_equal(got, np.concatenate(alone[:i % 3 + 1]))


def test_a_bad_index_is_the_requests_error():
    model = "minilm"
    arrays = inputs_of(model, "b1")
    with start(DATA / f"{model}.onnx", "--device", "cuda:0",
               env=EMULATED) as server:
        want = infer(server, model, arrays)
        bad = [array.copy() for array in arrays]
        ids = next(i for i, port in enumerate(metadata(server, model)["inputs"])
                   if "ids" in port["name"])
        bad[ids].flat[0] = 10**6
        with pytest.raises(InferenceServerException,
                           match="the index 1000000 is outside") as raised:
            infer(server, model, bad)
        assert raised.value.status() == "400"
        assert np.array_equal(infer(server, model, arrays)[0], want[0])


def inspect(model, *flags, env=EMULATED):
    return subprocess.run(
        [BINARY, "inspect", DATA / model, *flags], capture_output=True,
        text=True, timeout=120, env={**os.environ, **env})


def test_inspect_says_what_runs_where():
    done = inspect("unet.onnx", "--device", "cuda:0")
    assert done.returncode == 0, done.stderr
    assert "  cuda:0  Conv 1 x " in done.stdout
    assert "  cpu     Resize" in done.stdout
    assert "  copy    " in done.stdout
    assert ("33 operators on cuda:0, 2 on the CPU; 6 copies, 11264 bytes a run"
            in done.stdout)
    assert "precision      tf32" in done.stdout
    assert "--device cuda:0" in done.stdout.splitlines()[-1]
    halves = inspect("unet.onnx", "--device", "cuda:0", "--precision", "f16")
    assert "kernel 3x3 +bias relu f16 -> f16" in halves.stdout
    assert re.search(r"values  \d+ bytes made on cuda:0, \d+ bytes of them in "
                     r"f16", halves.stdout)
    assert ("precision      f16: factors of products and convolutions, values "
            "between them" in halves.stdout)
    without = inspect("unet.onnx", "--device", "cuda:0", env=NO_MODULE)
    assert without.returncode == 1
    assert "there is no CUDA module" in without.stdout
    data = inspect("dlrm.onnx", "--device", "cuda:0")
    assert "interpreted on the CPU" in data.stdout


def test_run_and_profile_take_a_device():
    for verb, said in [("run", "cuda:0  Conv"), ("profile", "Conv")]:
        flags = ["--plan"] if verb == "run" else []
        done = subprocess.run(
            [BINARY, verb, DATA / "resnet50.onnx", "--device", "cuda:0", *flags],
            capture_output=True, text=True, timeout=120,
            env={**os.environ, **EMULATED})
        assert done.returncode == 0, done.stderr
        assert said in done.stdout


CUBLASLT = BINARY.parent / "libmillrace_fake_cublaslt.so"


@pytest.mark.skipif(not CUBLASLT.exists(), reason="built without the fake cuBLASLt")
@pytest.mark.parametrize("precision, most", [("tf32", 2**-7), ("f16", 2**-8)])
def test_cublaslt_multiplies_in_graphs_the_same_in_any_batch(precision, most):
    model = "minilm"
    flags = ["--device", "cuda:0", "--precision", precision]
    arrays = inputs_of(model, "b3")
    with start(DATA / f"{model}.onnx") as cpu:
        want = infer(cpu, model, arrays)
    with start(DATA / f"{model}.onnx", *flags, env=EMULATED) as gpu:
        native = infer(gpu, model, arrays)
        assert "gemm_backend" not in metadata(gpu, model)["parameters"]
    with start(DATA / f"{model}.onnx", *flags, "--gemm-backend", "cublaslt",
               env={**EMULATED, "MILLRACE_CUBLASLT": str(CUBLASLT)}) as gpu:
        assert metadata(gpu, model)["parameters"]["gemm_backend"] == "cublaslt"
        got = infer(gpu, model, arrays)
        alone = [infer(gpu, model, [a[i:i + 1] for a in arrays]) for i in range(3)]
    for k, theirs in enumerate(want):
        assert np.abs(got[k] - theirs).max() <= most * np.abs(theirs).max()
        for i in range(3):
            assert np.array_equal(alone[i][k][0], got[k][i])
    if precision == "tf32":  # values in 16 bits hide the order of sums
        assert any(not np.array_equal(a, b) for a, b in zip(got, native))


def test_native_kernels_multiply_in_graphs_without_cublaslt():
    model = "minilm"
    with start(DATA / f"{model}.onnx", "--device", "cuda:0",
               "--gemm-backend", "cublaslt",
               env={**EMULATED, "MILLRACE_CUBLASLT": "/nonexistent.so"}) as gpu:
        gpu.line("native kernels multiply in graphs",
                 "cuBLASLt cannot be opened (/nonexistent.so")
        assert "gemm_backend" not in metadata(gpu, model)["parameters"]
        infer(gpu, model, inputs_of(model, "b1"))


def test_inspect_says_what_cublaslt_multiplies():
    done = inspect("minilm.onnx", "--device", "cuda:0", "--gemm-backend",
                   "cublaslt",
                   env={**EMULATED, "MILLRACE_CUBLASLT": str(CUBLASLT)})
    assert done.returncode == 0, done.stderr
    assert re.search(r"cuda:0  Linear .* by cuBLASLt\n", done.stdout)
    unknown = inspect("minilm.onnx", "--device", "cuda:0", "--gemm-backend", "mkl")
    assert unknown.returncode != 0
    assert "native and cublaslt exist" in unknown.stdout + unknown.stderr


def test_cublaslt_is_told_only_where_it_multiplies():
    # All linear layers of this one have a number of outputs that it does not take.
    model = "resnet50"
    with start(DATA / f"{model}.onnx", "--device", "cuda:0", "--gemm-backend",
               "cublaslt",
               env={**EMULATED, "MILLRACE_CUBLASLT": str(CUBLASLT)}) as gpu:
        gpu.line("layers that NVIDIA's libraries compute", '"cublaslt":0')
        assert "gemm_backend" not in metadata(gpu, model)["parameters"]


CUDNN = BINARY.parent / "libmillrace_fake_cudnn.so"


@pytest.mark.skipif(not CUDNN.exists(), reason="built without the fake cuDNN")
def test_cudnn_is_named_by_a_flag_of_tools():
    flags = ["--device", "cuda:0", "--conv-backend"]
    env = {**EMULATED, "MILLRACE_CUDNN": str(CUDNN)}
    done = inspect("resnet50.onnx", *flags, "cudnn", env=env)
    assert done.returncode == 0, done.stderr
    assert re.search(r"cuda:0  Conv .* by cuDNN\n", done.stdout)
    native = inspect("resnet50.onnx", *flags, "native", env=env)
    assert "by cuDNN" not in native.stdout
    unknown = inspect("resnet50.onnx", *flags, "miopen", env=env)
    assert unknown.returncode != 0
    assert "native and cudnn exist" in unknown.stdout + unknown.stderr


@pytest.mark.skipif(not CUDNN.exists(), reason="built without the fake cuDNN")
@pytest.mark.parametrize("precision, most", [("tf32", 2**-7), ("f16", 2**-8)])
def test_cudnn_convolves_in_graphs_the_same_in_any_batch(precision, most):
    model = "resnet50"
    flags = ["--device", "cuda:0", "--precision", precision, "--conv-backend",
             "cudnn"]
    arrays = inputs_of(model, "b3")
    with start(DATA / f"{model}.onnx") as cpu:
        want = infer(cpu, model, arrays)
    with start(DATA / f"{model}.onnx", *flags,
               env={**EMULATED, "MILLRACE_CUDNN": str(CUDNN)}) as gpu:
        assert metadata(gpu, model)["parameters"]["conv_backend"] == "cudnn"
        got = infer(gpu, model, arrays)
        alone = [infer(gpu, model, [a[i:i + 1] for a in arrays]) for i in range(3)]
    for k, theirs in enumerate(want):
        assert np.abs(got[k] - theirs).max() <= most * np.abs(theirs).max()
        for i in range(3):
            assert np.array_equal(alone[i][k][0], got[k][i])
    with start(DATA / f"{model}.onnx", *flags,
               env={**EMULATED, "MILLRACE_CUDNN": "/nonexistent.so"}) as gpu:
        gpu.line("native kernels convolve in graphs",
                 "cuDNN cannot be opened (/nonexistent.so")
        assert "conv_backend" not in metadata(gpu, model)["parameters"]
        infer(gpu, model, arrays)


@pytest.mark.parametrize("flags, said", [
    ([], "there is no CUDA module, looked for '/nonexistent/module.so'"),
    (["--precision", "int8"], "resnet50.onnx.quant.json"),
    (["--graph-backend", "onednn"], "computes on CPUs alone"),
])
def test_what_cannot_be_is_told_in_a_sentence(flags, said):
    done = subprocess.run(
        [BINARY, "serve", DATA / "resnet50.onnx", "--device", "cuda:0",
         "--http-port", "0", "--grpc-port", "0", *flags],
        capture_output=True, text=True, timeout=120,
        env={**os.environ, **(EMULATED if flags else NO_MODULE)})
    assert done.returncode != 0
    assert said in done.stderr


def test_weights_that_do_not_fit_are_told_at_load():
    done = subprocess.run(
        [BINARY, "serve", DATA / "resnet50.onnx", "--device", "cuda:0",
         "--http-port", "0", "--grpc-port", "0"],
        capture_output=True, text=True, timeout=120,
        env={**os.environ, **EMULATED, "MILLRACE_EMULATED_BYTES": "10000"})
    assert done.returncode != 0
    assert "cuda:0 has 10000 bytes of memory left" in done.stderr


def test_auto_falls_back_to_the_cpu_and_says_why():
    with start(DATA / "resnet50.onnx", "--device", "auto",
               env=NO_MODULE) as server:
        line = next(line for line in server.lines
                    if "graphs run on the CPU" in line)
        assert "there is no CUDA module" in line
        assert "device" not in metadata(server, "resnet50").get("parameters",
                                                                {})
        infer(server, "resnet50", inputs_of("resnet50", "b2"))


def test_auto_takes_the_gpu_where_it_can_serve_what_is_asked():
    path = DATA / "resnet50.onnx"
    with start(path, "--device", "auto", env=EMULATED) as server:
        assert metadata(server, "resnet50")["parameters"]["device"] == "cuda:0"
    # Then the CPU is asked, which wants the table that is not there.
    done = subprocess.run(
        [BINARY, "serve", path, "--device", "auto", "--graph-backend",
         "onednn", "--precision", "int8", "--http-port", "0", "--grpc-port",
         "0"], capture_output=True, text=True, timeout=120,
        env={**os.environ, **EMULATED})
    assert "graphs run on the CPU" in done.stderr
    assert "computes on CPUs alone" in done.stderr
    assert "resnet50.onnx.quant.json" in done.stderr


def test_instances_stand_on_several_devices(tmp_path):
    folder = tmp_path / "resnet50"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.onnx").symlink_to(DATA / "resnet50.onnx")
    (folder / "config.pbtxt").write_text(
        "instance_group [ { count: 2 kind: KIND_GPU gpus: [ 1, 0 ] } ]")
    two = EMULATED | {"MILLRACE_EMULATED_DEVICES": "2"}
    arrays = inputs_of("resnet50", "b1")
    with start(DATA / "resnet50.onnx", "--device", "cuda:0", env=EMULATED) as one:
        want = infer(one, "resnet50", arrays)
    with start("--model-repository", tmp_path, env=two) as server:
        assert metadata(server, "resnet50")["parameters"]["device"] == "cuda:1,cuda:0"
        config = json.loads(server.get("/v2/models/resnet50/config"))
        group = config["instance_group"][0]
        assert (group["kind"], group["gpus"], group["count"]) == ("KIND_GPU", [1, 0], 2)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for got in pool.map(lambda _: infer(server, "resnet50", arrays), range(8)):
                for a, b in zip(got, want):
                    assert a.tobytes() == b.tobytes()
    # As many as there are.
    (folder / "config.pbtxt").write_text("instance_group [ { kind: KIND_GPU } ]")
    with start("--model-repository", tmp_path, env=two) as server:
        assert metadata(server, "resnet50")["parameters"]["device"] == "cuda:0,cuda:1"
