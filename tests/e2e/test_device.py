"""--device: a GPU that cannot serve says why in one sentence and the server
ends; with auto the CPU serves and the sentence is a line in the log. On the
emulated module a language model answers, the same in any batch."""
import concurrent.futures
import ctypes
import json
import os
import subprocess
import time

import numpy as np
import openai
import pytest
import requests

from conftest import BINARY, MODEL, REPO, start

NO_MODULE = {"MILLRACE_CUDA_MODULE": "/nonexistent/module.so"}
MODULE = BINARY.parent / "libmillrace_cuda_emulated.so"
EMULATED = {"MILLRACE_CUDA_MODULE": str(MODULE)}


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


# Each later call of CUDA would fail: another process can serve.
@pytest.mark.parametrize("model", ["hf_llama", "graph/residual.onnx"])
def test_a_gpu_that_is_lost_ends_the_server(tmp_path, model):
    if not MODULE.exists():
        pytest.skip("built without the emulated module")
    lost = tmp_path / "lost"
    with start(f"tiny={REPO}/tests/data/{model}", "--device", "cuda:0",
               env={**EMULATED, "MILLRACE_EMULATED_LOST": str(lost)}) as server:
        if model == "hf_llama":
            path, body = "/v1/completions", {"model": "tiny", "prompt": [7],
                                             "max_tokens": 2}
        else:
            path = "/v2/models/tiny/infer"
            with np.load(REPO / "tests/data/graph/residual.b2.npz") as arrays:
                image = arrays["in0"]
            described = requests.get(server.url + "/v2/models/tiny", timeout=30)
            body = {"inputs": [{**described.json()["inputs"][0],
                                "shape": image.shape,
                                "data": image.ravel().tolist()}]}
        answer = requests.post(server.url + path, json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        lost.touch()
        answer = requests.post(server.url + path, json=body, timeout=60)
        assert answer.status_code == 500, answer.text
        assert server.process.wait(20) != 0
        line = server.line("the server ends, for another one can serve")
        assert "cuda:0 is lost to this process" in line


# Tiny models in BF16 or F16, two of them mixtures of experts, one with attention in
# chunks; rounded to Q8_0 where their rows are whole blocks.
@pytest.fixture(params=[("llama", "auto", "none", "f16"),
                        ("llama", "auto", "q8_0", "f16"),
                        ("llama", "auto", "q8_0", "int8"),
                        ("llama", "f32", "none", "f32"),
                        ("mixtral", "auto", "q8_0", "f16"),
                        ("mixtral", "int8", "q8_0", "f16"),
                        ("llama4", "auto", "none", "f16")], ids="-".join)
def emulated(request):
    if not MODULE.exists():
        pytest.skip("built without the emulated module")
    model, compute, quantize, kv = request.param
    with start(f"tiny={REPO}/tests/data/hf_{model}", "--device", "cuda:0",
               "--compute-dtype", compute, "--quantize", quantize,
               "--kv-cache-dtype", kv, env=EMULATED) as server:
        yield server


def complete(server, tokens):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none",
                       max_retries=0, timeout=120) as client:
        answer = client.completions.create(
            model="tiny", prompt=tokens, max_tokens=4, temperature=0,
            logprobs=1, extra_body={"ignore_eos": True})
    logprobs = answer.choices[0].logprobs
    assert len(logprobs.tokens) == 4
    return logprobs.tokens, logprobs.token_logprobs


def test_completions_on_a_gpu_do_not_depend_on_the_batch(emulated):
    prompts = [[7], [9, 20, 31, 42], list(range(40, 75))]
    alone = [complete(emulated, prompt) for prompt in prompts]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda p: complete(emulated, p), prompts))
    assert together == alone


def test_adapters_on_a_gpu_are_chosen_by_model_and_come_and_go():
    if not MODULE.exists():
        pytest.skip("built without the emulated module")
    base = REPO / "tests" / "data" / "hf_llama_yarn" / "model.gguf"
    adapter = REPO / "tests" / "data" / "lora_llama"
    tokens = list(range(5, 45))

    def ask(server, model):
        answer = requests.post(server.url + "/v1/completions", timeout=120,
                               json={"model": model, "prompt": tokens,
                                     "temperature": 0, "max_tokens": 8,
                                     "logprobs": 2, "ignore_eos": True})
        assert answer.status_code == 200, answer.text
        choice = answer.json()["choices"][0]
        return choice["text"], choice["logprobs"]["token_logprobs"]

    def post(server, path, **body):
        return requests.post(server.url + path, json=body, timeout=120)

    flags = ["--max-model-len", "128", "--compute-dtype", "f32",
             "--kv-cache-dtype", "f32", "--lora-modules", f"sql={adapter}"]
    with start(f"base={base}", *flags) as server:
        on_cores = {model: ask(server, model) for model in ("base", "sql")}
    assert on_cores["base"] != on_cores["sql"]
    with start(f"base={base}", *flags, "--allow-runtime-lora-updating",
               "--device", "cuda:0", env=EMULATED) as server:
        alone = {model: ask(server, model) for model in ("base", "sql")}
        for model, (text, logprobs) in alone.items():
            assert text == on_cores[model][0]
            assert logprobs == pytest.approx(on_cores[model][1], abs=1e-3)
        loaded = post(server, "/v1/load_lora_adapter", lora_name="again",
                      lora_path=str(adapter / "adapter.gguf"))
        assert loaded.status_code == 200, loaded.text
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            crowd = list(pool.map(lambda model: (model, ask(server, model)),
                                  ["base", "sql", "again"] * 3))
        for model, answer in crowd:
            assert answer == alone["base" if model == "base" else "sql"], model
        gone = post(server, "/v1/unload_lora_adapter", lora_name="again")
        assert gone.status_code == 200
        # 503 (being unloaded) as long as its last request is put away.
        end = time.monotonic() + 10
        while (status := post(server, "/v1/completions", model="again",
                              prompt=tokens).status_code) == 503:
            assert time.monotonic() < end
        assert status == 404
        assert ask(server, "sql") == alone["sql"]


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_seconds_by_phase_name_the_device(device):
    if device != "cpu" and not MODULE.exists():
        pytest.skip("built without the emulated module")
    with start(f"tiny={REPO}/tests/data/hf_llama", "--device", device,
               env=EMULATED) as server:
        begun = time.monotonic()
        complete(server, [9, 20, 31, 42])
        passed = time.monotonic() - begun
        seconds = server.metric("millrace_step_phase_seconds_total")
    assert all(f'device="{device}"' in labels for labels in seconds)
    by_phase = {labels.split('phase="')[1].split('"')[0]: value
                for labels, value in seconds.items()}
    for phase in ("embed", "qkv", "attention", "attention_output", "gate_up",
                  "down", "head", "sample"):
        assert by_phase[phase] > 0, phase
    assert by_phase["all_reduce"] == 0
    assert sum(by_phase.values()) < passed


CUBLASLT = BINARY.parent / "libmillrace_fake_cublaslt.so"
PROMPTS = [[7], [9, 20, 31, 42], list(range(40, 75)), list(range(3, 135))]


def gemm(backend="cublaslt", library=CUBLASLT, **env):
    if not MODULE.exists():
        pytest.skip("built without the emulated module")
    return start(f"tiny={REPO}/tests/data/hf_llama", "--device", "cuda:0",
                 "--gemm-backend", backend,
                 env={**EMULATED, "MILLRACE_CUBLASLT": str(library), **env})


@pytest.fixture(scope="module")
def native():
    """Answers of native kernels."""
    with gemm("native") as server:
        assert not any("cuBLASLt" in line for line in server.lines)
        return [complete(server, prompt) for prompt in PROMPTS]


def near(answers, others):
    # Rows are rounded to f16 or bf16 with both; sums have another order.
    return all(a == pytest.approx(b, abs=2e-2)
               for (_, a), (_, b) in zip(answers, others))


def test_cublaslt_multiplies_prompts_the_same_in_any_batch(native):
    with gemm() as server:
        said = json.loads(server.line("cuBLASLt multiplies prompts"))
        assert said["version"] == "13.1.0"
        assert said["matrices"] > 0 and said["refused"] == 0
        alone = [complete(server, prompt) for prompt in PROMPTS]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda p: complete(server, p), PROMPTS))
        assert together == alone
    assert near(alone, native)
    assert alone != native


# No such file; another library; one that cannot start; one whose every algorithm
# gives a row other bits in other places.
@pytest.mark.parametrize("library, env, said", [
    ("/nonexistent.so", {}, "cuBLASLt cannot be opened (/nonexistent.so"),
    (MODULE, {}, "is no cuBLASLt"),
    (CUBLASLT, {"MILLRACE_FAKE_CUBLASLT": "create"},
     "cannot serve cuda:0: the library was not initialized"),
    (CUBLASLT, {"MILLRACE_FAKE_CUBLASLT": "all_uneven"},
     "native kernels multiply prompts by all weights"),
], ids=["missing", "another", "create", "uneven"])
def test_native_kernels_multiply_where_cublaslt_cannot(library, env, said, native):
    with gemm(library=library, **env) as server:
        server.line("cuBLASLt", said)
        assert [complete(server, prompt) for prompt in PROMPTS] == native


def test_the_real_cublaslt_says_what_it_lacks():
    """It opens; without a driver it says so, and native kernels serve."""
    try:
        ctypes.CDLL("libcublasLt.so.13")
    except OSError:
        pytest.skip("there is no libcublasLt.so.13")
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("there is a driver: it would read the emulated memory")
    with gemm(library="libcublasLt.so.13") as server:
        server.line("native kernels multiply prompts", "cannot serve cuda:0: ")
        complete(server, [7])


def test_an_unknown_gemm_backend():
    done = subprocess.run(
        [BINARY, "serve", MODEL, "--gemm-backend", "mkl", "--http-port", "0"],
        capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "native" in done.stderr and "cublaslt" in done.stderr


NVML = BINARY.parent / "libmillrace_fake_nvml.so"


@pytest.mark.skipif(not NVML.exists(), reason="built without the fake NVML")
def test_gpus_are_measured():
    model = f"tiny={REPO}/tests/data/hf_llama"
    with start(model, "--metrics-compat", "triton,torchserve",
               env={"MILLRACE_NVML": str(NVML)}) as server:
        one, two = '{gpu="0",gpu_uuid="GPU-1"', '{gpu="1",gpu_uuid="GPU-2"'
        assert server.metric("millrace_gpu_utilization_ratio") == {
            one + "}": 0.75, two + "}": 0}
        assert server.metric("millrace_gpu_memory_bytes") == {
            one + ',state="total"}': 80e9, one + ',state="used"}': 20e9,
            two + ',state="total"}': 160e9, two + ',state="used"}': 100e9}
        assert server.metric("millrace_gpu_memory_utilization_ratio") == {
            one + "}": 0.25, two + "}": 0.625}
        # The second one does not tell.
        assert server.metric("millrace_gpu_power_watts") == {one + "}": 123.5}
        assert server.metric("millrace_gpu_power_limit_watts") == {
            one + "}": 700}
        energy = "millrace_gpu_energy_joules_total"
        before = server.metric(energy)[one + "}"]
        assert server.metric(energy) == {one + "}": before + 2.5}
        # Triton's names and its label.
        assert server.metric("nv_gpu_utilization") == {
            '{gpu_uuid="GPU-1"}': 0.75, '{gpu_uuid="GPU-2"}': 0}
        assert server.metric("nv_gpu_memory_total_bytes") == {
            '{gpu_uuid="GPU-1"}': 80e9, '{gpu_uuid="GPU-2"}': 160e9}
        assert server.metric("nv_gpu_memory_used_bytes") == {
            '{gpu_uuid="GPU-1"}': 20e9, '{gpu_uuid="GPU-2"}': 100e9}
        assert server.metric("nv_gpu_power_usage") == {
            '{gpu_uuid="GPU-1"}': 123.5}
        assert server.metric("nv_gpu_power_limit") == {
            '{gpu_uuid="GPU-1"}': 700}
        assert server.metric("nv_energy_consumption")[
            '{gpu_uuid="GPU-1"}'] > before
        # TorchServe's: by number, in percent and megabytes.
        for name, values in {"GPUUtilization": (75, 0),
                             "GPUMemoryUtilization": (25, 62.5),
                             "GPUMemoryUsed": (20e9 / 2**20, 100e9 / 2**20)
                             }.items():
            found = server.metric(name)
            for number, value in enumerate(values):
                (labels, told), = [each for each in found.items()
                                   if f'DeviceId="{number}"' in each[0]]
                assert told == pytest.approx(value), name
                assert 'Level="Host"' in labels and "Hostname=" in labels


# No such file; a library without these functions.
@pytest.mark.parametrize("library", ["/nonexistent.so", str(MODULE)])
def test_without_nvml_there_are_no_such_metrics(library):
    model = f"tiny={REPO}/tests/data/hf_llama"
    with start(model, "--metrics-compat", "triton",
               env={"MILLRACE_NVML": library}) as server:
        assert "_gpu_" not in server.get("/metrics").decode()


# A decoder and an encoder that make vectors; an encoder is a graph.
@pytest.mark.parametrize("name", ["qwen3_embed", "bert_embed"])
def test_vectors_on_the_emulated_gpu(name):
    if not MODULE.exists():
        pytest.skip("built without the emulated module")
    path = REPO / "tests" / "data" / "encoders" / name / "model.gguf"
    texts = ["a cat", "two dogs and a cat", "a"]
    flags = ["--compute-dtype", "f32", "--kv-cache-dtype", "f32", "--precision", "f32"]

    def vectors(*more, env=None):
        with start(f"m={path}", *flags, *more, env=env or {}) as server:
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="none",
                                   max_retries=0, timeout=120)
            together = client.embeddings.create(model="m", input=texts).data
            alone = client.embeddings.create(model="m", input=texts[1]).data
            assert alone[0].embedding == together[1].embedding
            return [d.embedding for d in together]

    for a, b in zip(vectors("--device", "cuda:0", env=EMULATED), vectors()):
        assert max(abs(x - y) for x, y in zip(a, b)) < 1e-4
