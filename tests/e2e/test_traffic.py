"""traffic and shadow in config.yaml: canary weights, users that are pinned, A/B by
a header, and requests that a second version computes for comparison alone."""
import collections
import concurrent.futures
import json
import shutil
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc

from conftest import REPO, start
from onnx_bytes import affine
from test_external import external, python  # noqa: F401

# y = x * version, so that an answer tells who computed it.
SPLIT = """
version_policy: all
version_labels: {stable: 1, next: 2}
traffic:
  weights: {stable: 90, next: 10}
  pin_by: X-User-Id
  seed: 7
  variant_header: X-Variant
  variants: {a: stable, b: next}
"""


DATA = REPO / "tests" / "data"


def put_text(root, name, folders, config):
    """Tiny random language models of tests/data as versions of one."""
    for version, folder in enumerate(folders, 1):
        (root / name / str(version)).mkdir(parents=True)
        shutil.copy(DATA / folder / "model.gguf",
                    root / name / str(version) / "model.gguf")
    (root / name / "config.yaml").write_text(config + "max_model_len: 128\n")


def complete(server, model, headers=None, **fields):
    """The texts of a completion."""
    body = {"model": model, "prompt": [5, 6, 7], "max_tokens": 6,
            "temperature": 0, "ignore_eos": True, **fields}
    request = urllib.request.Request(
        server.url + "/v1/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json", **(headers or {})})
    with urllib.request.urlopen(request, timeout=60) as answer:
        if body.get("stream"):
            return [answer.read().decode()]
        return [each["text"] for each in json.load(answer)["choices"]]


def put(root, name, versions, config=None):
    for version, model in versions.items():
        (root / name / str(version)).mkdir(parents=True)
        (root / name / str(version) / "model.onnx").write_bytes(model)
    if config is not None:
        (root / name / "config.yaml").write_text(config)


def infer(server, model, headers=None, version=None, x=(1, 1, 1)):
    """The first number of the answer, and the version that it names."""
    path = f"/v2/models/{model}" + (f"/versions/{version}" if version else "")
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32",
                                   "shape": [1, 3], "data": list(x)}]})
    request = urllib.request.Request(
        server.url + path + "/infer", body.encode(), headers or {})
    with urllib.request.urlopen(request, timeout=60) as answer:
        told = json.load(answer)
    return told["outputs"][0]["data"][0], told["model_version"]


def infer_grpc(client, model, metadata=None):
    x = triton_grpc.InferInput("x", [1, 3], "FP32")
    x.set_data_from_numpy(np.ones((1, 3), np.float32))
    answer = client.infer(model, [x], headers=metadata)
    return answer.as_numpy("y")[0, 0], answer.get_response().model_version


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    put(root, "split", {1: affine(1), 2: affine(2)}, SPLIT)
    put(root, "short", {1: affine(1), 2: affine(2), 3: affine(3)},
        "version_policy: all\ntraffic: {1: 1, 2: 1}\n")
    put(root, "plain", {1: affine(1), 2: affine(2)}, "version_policy: all")
    put(root, "same", {1: affine(1), 2: affine(1)},
        "version_policy: all\ntraffic: {1: 1}\nshadow: {version: 2}")
    put(root, "mirrored", {1: affine(1), 2: affine(2)},
        "version_policy: all\ntraffic: {1: 1}\n"
        "shadow:\n"
        "  - {version: 2, percent: 25}\n"
        "  - {model: other, tolerance: 0.6}\n"
        "  - {model: missing, percent: 10}\n")
    # They mirror each other: no circle.
    put(root, "other", {1: affine(1, offset=0.5)}, "shadow: {model: mirrored}")
    put(root, "wider", {1: affine(1), 2: affine(1, size=4)},
        "version_policy: all\ntraffic: {1: 1}\nshadow: {version: 2}")
    with start("--model-repository", root) as running:
        running.root = root
        yield running


def chosen(server, model):
    out = collections.Counter()
    for labels, value in server.metric(
            "millrace_traffic_requests_total").items():
        if f'model="{model}"' in labels:
            by = labels.split('chosen_by="')[1].split('"')[0]
            version = labels.split('version="')[1].split('"')[0]
            out[by, version] += int(value)
    return out


def answered(server, model):
    """Requests by the version that computed them."""
    return collections.Counter({
        labels.split('version="')[1].split('"')[0]: int(value)
        for labels, value in server.metric(
            "millrace_inference_requests_total").items()
        if f'model="{model}"' in labels and 'outcome="ok"' in labels})


def test_weights_part_requests(server):
    before, answered_before = chosen(server, "split"), answered(server, "split")
    answers = [infer(server, "split") for _ in range(200)]
    assert all(value == float(version) for value, version in answers)
    counts = collections.Counter(version for _, version in answers)
    assert 17 <= counts["2"] <= 23
    after = chosen(server, "split")
    assert (after - before)["weight", "1"] == counts["1"]
    assert (after - before)["weight", "2"] == counts["2"]
    assert answered(server, "split") - answered_before == counts
    counts = collections.Counter(infer(server, "short")[1] for _ in range(100))
    assert 49 <= counts["1"] <= 51 and "3" not in counts


def test_weights_part_grpc_calls(server):
    client = triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    answers = [infer_grpc(client, "split") for _ in range(100)]
    assert all(value == float(version) for value, version in answers)
    assert 7 <= sum(version == "2" for _, version in answers) <= 13


def test_a_header_pins_users_on_both_wires(server):
    client = triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    of_user = {user: infer(server, "split", {"X-User-Id": f"user-{user}"})[1]
               for user in range(300)}
    assert 15 <= sum(version == "2" for version in of_user.values()) <= 45
    for user in range(0, 300, 7):
        for _ in range(3):
            assert infer(server, "split",
                         {"x-user-id": f"user-{user}"})[1] == of_user[user]
        assert infer_grpc(client, "split", {"x-user-id": f"user-{user}"}
                          )[1] == of_user[user]


def test_variants_by_a_header(server):
    client = triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    for variant, version in (("a", "1"), ("b", "2")):
        for _ in range(20):
            assert infer(server, "split", {"X-Variant": variant,
                                           "X-User-Id": "u"})[1] == version
            assert infer_grpc(client, "split", {"x-variant": variant}
                              )[1] == version
    # What is no variant is as if it were not there.
    counts = collections.Counter(
        infer(server, "split", {"X-Variant": "zz"})[1] for _ in range(50))
    assert counts["1"] > counts["2"] > 0


def test_language_models_have_traffic_too(tmp_path):
    put_text(tmp_path, "chat", ("hf_llama_yarn", "hf_olmo2"),
             SPLIT.replace("90", "75").replace("10", "25"))
    with start("--model-repository", tmp_path) as server:
        (first,), (second,) = (complete(server, "chat", {"X-Variant": variant})
                               for variant in "ab")
        assert first != second
        counts = collections.Counter(
            complete(server, "chat")[0] for _ in range(40))
        assert set(counts) == {first, second}
        assert 28 <= counts[first] <= 32
        users = {user: complete(server, "chat", {"X-User-Id": f"user-{user}"})
                 for user in range(20)}
        assert {text for text, in users.values()} == {first, second}
        for user, texts in users.items():
            assert complete(server, "chat",
                            {"X-User-Id": f"user-{user}"}) == texts
        chosen_by = server.metric("millrace_traffic_requests_total")
        assert sum(chosen_by.values()) == 82, chosen_by


def test_language_models_have_shadows(tmp_path):
    """Equal where the same model answers, with any sampling: a seed is drawn for
    both. What another model says is counted and never returned."""
    yaml = "version_policy: all\ntraffic: {1: 1}\nshadow: {version: 2}\n"
    put_text(tmp_path, "same", ("hf_llama_yarn", "hf_llama_yarn"), yaml)
    put_text(tmp_path, "other", ("hf_llama_yarn", "hf_olmo2"), yaml)
    put_text(tmp_path, "short", ("hf_llama_yarn",),
             "shadow: {model: mlp}\n")
    put(tmp_path, "mlp", {1: affine(1)})
    with start("--model-repository", tmp_path) as server:
        plain = complete(server, "same")
        requests = ({}, {"n": 3, "temperature": 1.0}, {"stream": True},
                    {"temperature": 1.0, "top_p": 0.9},
                    {"temperature": 1.0, "seed": 7},
                    {"logprobs": 2, "echo": True})
        for i, fields in enumerate(requests, 2):
            complete(server, "same", **fields)
            counts = settled(server, "same", i)
        assert counts == {"equal": 7, "different": 0, "failed": 0, "dropped": 0}
        for i in range(1, 4):
            assert complete(server, "other") == plain
            counts = settled(server, "other", i)
        assert counts == {"equal": 0, "different": 3, "failed": 0, "dropped": 0}
        # A graph completes nothing.
        assert complete(server, "short") == plain
        assert settled(server, "short", 1, "mlp")["failed"] == 1
        # What failed, and the lowest priority, has none.
        with pytest.raises(urllib.error.HTTPError):
            complete(server, "same", max_tokens=-1)
        with pytest.raises(urllib.error.HTTPError):
            complete(server, "same", prompt=[5] * 500)
        complete(server, "same", priority=2**31 - 1)
        complete(server, "same")
        assert sum(settled(server, "same", 8).values()) == 8
        told = json.loads(server.get("/v2/models/same/config"))
        assert told["parameters"]["shadow"]["string_value"] == (
            "version 2: 100 %")


def test_a_version_that_is_named_is_that_version(server):
    for version, wanted in (("1", "1"), ("2", "2"), ("next", "2")):
        for _ in range(10):
            assert infer(server, "split", {"X-Variant": "a"},
                         version)[1] == wanted
    assert {infer(server, "plain")[1] for _ in range(20)} == {"2"}


def test_the_configuration_tells(server):
    told = json.loads(server.get("/v2/models/split/config"))
    assert told["parameters"]["traffic"]["string_value"] == (
        "1=90,2=10 pin_by=x-user-id seed=7 x-variant:a=1,b=2")
    client = triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    config = client.get_model_config("mirrored", as_json=True)["config"]
    assert config["parameters"]["traffic"]["string_value"] == "1=1"
    assert config["parameters"]["shadow"]["string_value"] == (
        "version 2: 25 %, model other: 100 %, model missing: 10 %")


def shadowed(server, model, shadow_model=None):
    out = collections.Counter()
    for labels, value in server.metric("millrace_shadow_requests_total").items():
        if (f'{{model="{model}"' in labels or f',model="{model}"' in labels) and (
                f'shadow_model="{shadow_model or model}"' in labels):
            out[labels.split('result="')[1].split('"')[0]] += int(value)
    return out


def settled(server, model, count, shadow_model=None):
    """The counts, once so many requests were compared."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        counts = shadowed(server, model, shadow_model)
        if sum(counts.values()) >= count:
            return counts
        time.sleep(0.05)
    raise AssertionError(f"{counts} after 30 s")


def patiently(server, model, count):
    """One after the other, so slowly that no shadow is dropped."""
    for i in range(count):
        assert infer(server, model, x=(i, 1, 1))[1] == "1"
        time.sleep(0.01)


def test_a_shadow_that_computes_the_same_is_equal(server):
    patiently(server, "same", 20)
    counts = settled(server, "same", 20)
    assert counts["equal"] == 20 and counts["different"] == 0


def test_differences_are_counted_and_never_returned(server):
    patiently(server, "mirrored", 40)
    counts = settled(server, "mirrored", 10)
    assert counts["different"] == 10 and counts["equal"] == 0
    # 0.5 beside a tolerance of 0.6 (1 + |a|).
    counts = settled(server, "mirrored", 40, "other")
    assert counts["equal"] == 40
    counts = settled(server, "mirrored", 4, "missing")
    assert counts["failed"] == 4
    largest = server.metric("millrace_shadow_largest_difference")
    assert [value for labels, value in largest.items()
            if 'model="mirrored"' in labels and 'version="1"' in labels
            and 'shadow_model="other"' in labels] == [0.5]


def test_shadows_of_shadows_are_not_asked(server):
    before = shadowed(server, "mirrored", "other")
    assert infer(server, "other")[0] == 1.5
    settled(server, "other", 1, "mirrored")
    time.sleep(0.3)
    assert shadowed(server, "mirrored", "other") == before


def test_a_shadow_of_other_inputs_fails_alone(server):
    patiently(server, "wider", 5)
    assert settled(server, "wider", 5)["failed"] == 5


def test_a_full_queue_drops_shadows_and_no_request(server):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: infer(server, "same"), range(2000)))
    assert set(answers) == {(1.0, "1")}
    counts = settled(server, "same", 2000)
    assert counts["different"] == 0 and counts["failed"] == 0


def test_traffic_changes_while_versions_serve(tmp_path):
    config = "version_policy: all\ntraffic: {1: %d, 2: %d}\n"
    put(tmp_path, "m", {1: affine(1), 2: affine(2)}, config % (1, 0))
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit", "--load-model", "m") as server:
        failures = []
        done = threading.Event()

        def ask():
            while not done.is_set():
                try:
                    infer(server, "m")
                except Exception as error:  # noqa: BLE001
                    failures.append(error)

        def load():
            urllib.request.urlopen(urllib.request.Request(
                f"{server.url}/v2/repository/models/m/load", b"{}"), timeout=60)

        asking = threading.Thread(target=ask)
        asking.start()
        assert {infer(server, "m")[1] for _ in range(20)} == {"1"}
        (tmp_path / "m" / "config.yaml").write_text(config % (0, 1))
        load()
        assert {infer(server, "m")[1] for _ in range(20)} == {"2"}
        told = json.loads(server.get("/v2/models/m/config"))
        assert told["parameters"]["traffic"]["string_value"] == "1=0,2=1"
        (tmp_path / "m" / "config.yaml").write_text("version_policy: [1, 2]")
        load()
        assert {infer(server, "m")[1] for _ in range(20)} == {"2"}
        assert "traffic" not in json.loads(
            server.get("/v2/models/m/config"))["parameters"]
        done.set()
        asking.join()
        assert not failures
        # No version was loaded again.
        loads = [line for line in server.lines if '"model ready"' in line]
        assert len(loads) == 2


@pytest.mark.parametrize("config,why", [
    ("traffic: {1: 1, 2: 1}", "version_policy: all serves every version"),
    ("version_policy: all\ntraffic: {1: 1, 9: 1}", "names '9'"),
    ("version_policy: all\ntraffic: {1: 0}", "all weights are 0"),
    ("version_policy: all\ntraffic: {1: -1}", "is '-1'"),
    ("version_policy: all\ntraffic: {weights: {1: 1}, pin_by: Authorization}",
     "begins with 'X-'"),
    ("version_policy: all\ntraffic: {weights: {1: 1}, pin: X-User}",
     "unknown key 'pin'"),
    ("version_policy: all\ntraffic: {weights: {1: 1}, variant_header: X-V}",
     "belong together"),
    ("version_policy: all\ntraffic: []", "needs 1 to 100 lines"),
    ("shadow: {percent: 3}", "neither a version nor a model"),
    ("shadow: {version: 2, percent: 300}", "percent is '300'"),
    ("shadow: {version: 1, percent: nan}", "percent is 'nan'"),
    ("version_policy: all\nshadow: {version: 9}", "names '9'"),
    ("shadow: [1]", "needs {version: 2"),
    ("shadow: []", "has 0 targets"),
])
def test_bad_configurations_are_refused_with_their_reason(tmp_path, config, why):
    put(tmp_path, "m", {1: affine(1), 2: affine(2)}, config)
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit") as server:
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(urllib.request.Request(
                f"{server.url}/v2/repository/models/m/load", b"{}"), timeout=60)
        text = caught.value.read().decode()
        assert caught.value.code == 400 and why in text, text


CALLS = """
import millrace_handler

class Calls(millrace_handler.Handler):
    inputs = {"x": ("FP32", [1, 3])}
    outputs = {"y": ("FP32", [1, 3])}

    def handle(self, inputs, context):
        return context.call("MODEL", inputs, version="VERSION")

millrace_handler.serve(Calls())
"""


def test_calls_of_processes_follow_weights_and_shadows(tmp_path, python):  # noqa: F811
    """What a process asks of another model is a request of it: weights choose its
    version, its shadow computes it, too; one that names a version gets that."""
    put(tmp_path, "split", {1: affine(1), 2: affine(2)},
        "version_policy: all\ntraffic:\n  weights: {1: 3, 2: 1}\n"
        "  pin_by: X-User-Id\nshadow: {version: 2}\n")
    for name, version in (("free", ""), ("fixed", "1")):
        external(tmp_path, name, CALLS.replace("MODEL", "split").replace(
            "VERSION", version))
    with start("--model-repository", tmp_path, env=python) as server:
        before = chosen(server, "split")
        values = collections.Counter()
        for _ in range(40):
            values[infer(server, "free", {"X-User-Id": "u"})[0]] += 1
            time.sleep(0.01)
        assert set(values) == {1.0, 2.0}
        assert 9 <= values[2.0] <= 11, "no header reaches a call"
        counts = chosen(server, "split") - before
        assert counts == {("weight", "1"): values[1.0],
                          ("weight", "2"): values[2.0]}
        # Version 2 is no shadow of its own.
        assert settled(server, "split", values[1.0])["different"] == values[1.0]
        assert {infer(server, "fixed")[0] for _ in range(5)} == {1.0}
        assert chosen(server, "split") - before == counts
        assert settled(server, "split", values[1.0] + 5)["different"] == (
            values[1.0] + 5)


def test_steps_of_ensembles_follow_the_weights(tmp_path):
    """A step that names no version is a request of its model; one that names a
    version is not."""
    put(tmp_path, "split", {1: affine(1), 2: affine(2)},
        "version_policy: all\ntraffic:\n  weights: {1: 3, 2: 1}\n"
        "  pin_by: X-User-Id\n")
    for name, version in (("free", ""), ("fixed", "version: 1, ")):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.yaml").write_text(
            "ensemble:\n  steps:\n"
            f"    - {{model: split, {version}inputs: {{x: x}}, "
            "outputs: {y: y}}\n")
    with start("--model-repository", tmp_path) as server:
        before = chosen(server, "split")
        values = collections.Counter(
            infer(server, "free", {"X-User-Id": "u"})[0] for _ in range(100))
        assert set(values) == {1.0, 2.0}
        assert 24 <= values[2.0] <= 26, "no header reaches a step"
        counts = chosen(server, "split") - before
        assert counts == {("weight", "1"): values[1.0],
                          ("weight", "2"): values[2.0]}
        assert {infer(server, "fixed")[0] for _ in range(20)} == {1.0}
        assert chosen(server, "split") - before == counts
