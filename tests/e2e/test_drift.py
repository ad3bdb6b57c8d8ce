"""drift in config.yaml: histograms of a classifier's predictions, saved by curl,
and the population stability index against them, computed again by numpy."""
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc

from conftest import REPO, start
from test_observability import Prometheus, impatient
from test_texts import CLASSIFY, put_onnx
from texts import post

DATA = REPO / "tests" / "data" / "image"
TASK = """
version_policy: all
task: classify
task_options:
  resize: 10
  center_crop: 8
  mean: [0.485, 0.456, 0.406]
  std: [0.229, 0.224, 0.225]
  top_k: 0
"""


def put(root, name, config, versions=(1,)):
    for version in versions:
        (root / name / str(version)).mkdir(parents=True)
        shutil.copy(DATA / "classifier.onnx",
                    root / name / str(version) / "model.onnx")
    (root / name / "config.yaml").write_text(TASK + config)


def classify(server, model, name, version=None):
    path = f"/v2/models/{model}" + (f"/versions/{version}" if version else "")
    request = urllib.request.Request(
        server.url + path + "/infer", (DATA / name).read_bytes(),
        {"Content-Type": "image/jpeg"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        told = json.load(answer)
    return json.loads(told["outputs"][0]["data"][0])


def psi(expected, actual):
    """As the literature has it, with 1e-4 for a share of nothing."""
    e, a = (np.maximum(np.asarray(counts, float) / np.sum(counts), 1e-4)
            for counts in (expected, actual))
    return float(np.sum((a - e) * np.log(a / e)))


def histograms(answers, max_classes):
    """Of classes, the last for all beyond, and of confidence."""
    best = [next(iter(answer.items())) for answer in answers]
    classes = np.bincount([min(int(label), max_classes) for label, _ in best],
                          minlength=max_classes + 1)
    confidence, _ = np.histogram([score for _, score in best], 20, (0, 1))
    return classes, confidence


def gauges(server, model):
    return {labels.split('of="')[1].split('"')[0]: value
            for labels, value in server.metric("millrace_drift_psi").items()
            if f'model="{model}"' in labels}


def test_from_no_baseline_to_a_gauge(tmp_path):
    put(tmp_path, "net", "drift: {window: 6, max_classes: 4}")
    pictures = ["photo.jpg", "turned.png"]
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit", "--load-model", "net") as server:
        before = [classify(server, "net", pictures[i % 2]) for i in range(4)]
        told = json.loads(server.get("/v2/models/net/drift"))
        assert told["predictions"] == 4 and "class_psi" not in told
        assert gauges(server, "net") == {}
        classes, confidence = histograms(before, 4)
        assert told["classes"] == {str(i): int(count) for i, count
                                   in enumerate(classes[:4]) if count > 0} | (
            {"other": int(classes[4])} if classes[4] else {})
        assert told["confidence"] == confidence.tolist()
        counts = server.metric("millrace_predictions_total")
        assert sum(counts.values()) == 4
        assert server.metric("millrace_prediction_confidence_count") == {
            '{model="net",version="1"}': 4}

        # The answer is the baseline, which curl saves.
        subprocess.run(["curl", "-sf", "-o", tmp_path / "net" / "drift.json",
                        server.url + "/v2/models/net/drift"], check=True)
        (tmp_path / "net" / "config.yaml").write_text(
            TASK + "drift: {window: 6, max_classes: 4, baseline: drift.json, "
            "min_predictions: 3}")
        urllib.request.urlopen(urllib.request.Request(
            f"{server.url}/v2/repository/models/net/load", b"{}"), timeout=60)

        # Too few to tell anything.
        for _ in range(2):
            classify(server, "net", pictures[0])
            assert gauges(server, "net") == {}
        told = json.loads(server.get("/v2/models/net/drift"))
        assert told["predictions"] == 2 and told["min_predictions"] == 3
        assert "class_psi" not in told
        classify(server, "net", pictures[0])
        assert sorted(gauges(server, "net")) == ["class", "confidence"]

        # What fell out of the window does not count.
        after = [classify(server, "net", pictures[i < 9]) for i in range(13)]
        now_classes, now_confidence = histograms(after[-6:], 4)
        wanted = {"class": psi(classes, now_classes),
                  "confidence": psi(confidence, now_confidence)}
        assert wanted["class"] + wanted["confidence"] > 0.01
        found = gauges(server, "net")
        told = json.loads(server.get("/v2/models/net/versions/1/drift"))
        for of, value in wanted.items():
            assert found[of] == pytest.approx(value, rel=1e-9)
            assert told[of + "_psi"] == pytest.approx(value, rel=1e-9)


def test_a_restart_compares_with_what_was_saved(tmp_path):
    """As the README says, with nothing but the default control mode."""
    put(tmp_path, "net", "drift: {min_predictions: 4, max_classes: 2}")
    put(tmp_path, "else", "drift: {baseline: drift.json}")
    drift = tmp_path / "net" / "drift.json"
    (tmp_path / "else" / "drift.json").write_text(json.dumps(
        {"classes": {"0": 1}, "confidence": [0] * 19 + [1]}))
    with start("--model-repository", tmp_path) as server:
        for _ in range(4):
            classify(server, "net", "photo.jpg")
        subprocess.run(["curl", "-sf", "-o", drift,
                        server.url + "/v2/models/net/drift"], check=True)
        assert json.loads(drift.read_text())["max_classes"] == 2
        # No file is made of an error.
        failed = subprocess.run(["curl", "-sf", "-o", tmp_path / "none",
                                 server.url + "/v2/models/nets/drift"])
        assert failed.returncode and not (tmp_path / "none").exists()
    shutil.copy(drift, tmp_path / "else" / "drift.json")
    for name in "net", "else":
        (tmp_path / name / "config.yaml").write_text(
            TASK + "drift: {baseline: drift.json, min_predictions: 4, "
            "max_classes: 2}")
    with start("--model-repository", tmp_path) as server:
        for _ in range(4):
            classify(server, "net", "photo.jpg")
        assert gauges(server, "net") == {"class": 0, "confidence": 0}
        told = json.loads(server.line("the drift baseline is of another model"))
        assert told["model"] == "else" and told["baseline_of"] == "net"
        assert sum("is of another model" in line
                   for line in server.lines) == 1
        assert not any("few predictions" in line for line in server.lines)
    # Fewer than are asked for; and classes that were counted as one.
    (tmp_path / "net" / "config.yaml").write_text(
        TASK + "drift: {baseline: drift.json, max_classes: 2}")
    (tmp_path / "else" / "config.yaml").write_text(TASK)
    with start("--model-repository", tmp_path) as server:
        told = json.loads(server.line("the drift baseline counts few predictions"))
        assert (told["model"], told["predictions"]) == ("net", 4)
    saved = json.loads(drift.read_text())
    drift.write_text(json.dumps({**saved, "classes": {"0": 1, "other": 3}}))
    (tmp_path / "net" / "config.yaml").write_text(
        TASK + "drift: {baseline: drift.json}")
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit") as server:
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(urllib.request.Request(
                f"{server.url}/v2/repository/models/net/load", b"{}"),
                timeout=60)
        assert ("counts classes beyond 2 as one, but max_classes is 100"
                in caught.value.read().decode())


@pytest.mark.parametrize("mode", ["explicit", "poll"])
def test_another_baseline_in_its_file_is_a_change(tmp_path, mode):
    put(tmp_path, "net", "drift: {window: 4, min_predictions: 4, "
        "baseline: drift.json}")
    drift = tmp_path / "net" / "drift.json"

    def save(class_idx):
        drift.write_text(json.dumps({"classes": {str(class_idx): 1000},
                                     "confidence": [0] * 19 + [1000]}))

    save(0)
    flags = {"explicit": ["--load-model", "net"],
             "poll": ["--repository-poll-interval", "100ms"]}[mode]
    with start("--model-repository", tmp_path, "--model-control-mode", mode,
               *flags) as server:
        def load():
            if mode == "explicit":
                urllib.request.urlopen(urllib.request.Request(
                    f"{server.url}/v2/repository/models/net/load", b"{}"),
                    timeout=60)

        def psi_of_class():
            for _ in range(4):
                best = classify(server, "net", "photo.jpg")
            told = json.loads(server.get("/v2/models/net/drift"))
            # None where a version came between them.
            return int(next(iter(best))), told.get("class_psi", 9)

        best, before = psi_of_class()
        assert best != 0 and before > 1
        save(best)
        load()
        end = time.monotonic() + 30
        while psi_of_class()[1] > 1e-6:
            assert mode == "poll" and time.monotonic() < end
            time.sleep(0.1)
        # What is no baseline is told, and the one before stays.
        drift.write_text("{")
        if mode == "explicit":
            with pytest.raises(urllib.error.HTTPError) as caught:
                load()
            assert "is no JSON" in caught.value.read().decode()
        else:
            assert server.line("drift.json", "is no JSON", timeout=30)
        assert psi_of_class()[1] <= 1e-6


def test_classes_of_texts_are_watched(tmp_path):
    put_onnx(tmp_path, "bert_classify", "classify_text")
    with open(tmp_path / "bert_classify" / "config.yaml", "a") as config:
        config.write("drift: {window: 100}\n")
    texts = CLASSIFY["texts"][:4]
    with start("--model-repository", tmp_path) as server:
        probs = np.array([each["probs"] for each in post(server, "/classify", {
            "model": "bert_classify", "input": texts})["data"]])
        told = json.loads(server.get("/v2/models/bert_classify/drift"))
    assert told["predictions"] == len(texts)
    best = np.bincount(probs.argmax(1), minlength=probs.shape[1])
    assert told["classes"] == {
        str(i): int(count) for i, count in enumerate(best) if count > 0}
    assert told["confidence"] == np.histogram(
        probs.max(1), 20, (0, 1))[0].tolist()


def test_versions_and_wires_are_told_apart(tmp_path):
    put(tmp_path, "net", "drift: {}\nmicro_batching: {micro_batch_size: 2}",
        (1, 2))
    put(tmp_path, "plain", "")
    with start("--model-repository", tmp_path) as server:
        for version, count in ((1, 3), (2, 5)):
            for _ in range(count):
                classify(server, "net", "photo.jpg", version)
        client = triton_grpc.InferenceServerClient(
            f"127.0.0.1:{server.grpc_port}")
        image = triton_grpc.InferInput("image", [4], "BYTES")
        image.set_data_from_numpy(np.array(
            [(DATA / "photo.jpg").read_bytes()] * 4, np.object_))
        client.infer("net", [image], model_version="1")
        for version, count in ((1, 7), (2, 5)):
            told = json.loads(server.get(
                f"/v2/models/net/versions/{version}/drift"))
            assert told["predictions"] == count
            assert sum(told["classes"].values()) == count
            assert sum(told["confidence"]) == count
        config = client.get_model_config("net", as_json=True)["config"]
        assert config["parameters"]["drift"]["string_value"] == (
            "window 1000, max_classes 100, min_predictions 100, no baseline")
        with pytest.raises(urllib.error.HTTPError) as caught:
            server.get("/v2/models/plain/drift")
        assert caught.value.code == 404
        assert "'drift: {}'" in caught.value.read().decode()


@pytest.mark.parametrize("config,why", [
    ("drift: {baseline: none.json}", "none.json"),
    ("drift: {baseline: ../x}", "name of a file"),
    ("drift: {baseline: bad.json}", "is no JSON"),
    ("drift: {baseline: empty.json}", "counts no predictions"),
    ("drift: {window: 0}", "window is '0'"),
    ("drift: {max_classes: 1001}", "max_classes is '1001'"),
    ("drift: {window: 9, min_predictions: 10}", "min_predictions is 10 but"),
    ("drift: {size: 3}", "unknown key 'size'"),
    ("drift: 3", "needs lines such as"),
])
def test_what_is_wrong_is_told_at_load(tmp_path, config, why):
    put(tmp_path, "net", config)
    (tmp_path / "net" / "bad.json").write_text("{")
    (tmp_path / "net" / "empty.json").write_text(
        json.dumps({"classes": {}, "confidence": [0] * 20}))
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit") as server:
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(urllib.request.Request(
                f"{server.url}/v2/repository/models/net/load", b"{}"),
                timeout=60)
        text = caught.value.read().decode()
        assert caught.value.code in (400, 404) and why in text, text


@pytest.mark.skipif(not shutil.which("prometheus"),
                    reason="prometheus is not installed")
def test_the_alert_fires_where_predictions_move(tmp_path):
    """The baseline has one picture alone, then another one comes."""
    put(tmp_path / "models", "net", "drift: {window: 4, min_predictions: 4}")
    with start("--model-repository", tmp_path / "models",
               "--model-control-mode", "explicit", "--load-model",
               "net") as server, \
            Prometheus(tmp_path, f"127.0.0.1:{server.http_port}",
                       change_rules=impatient) as prometheus:
        def fill(picture):
            for _ in range(4):
                classify(server, "net", picture)

        def found(expression):
            try:
                return prometheus.query(expression)
            except OSError:  # it is still starting
                return []

        def until(expression):
            end = time.monotonic() + 60
            while not found(expression):
                assert time.monotonic() < end, expression
                time.sleep(0.2)

        fill("photo.jpg")
        (tmp_path / "models" / "net" / "drift.json").write_bytes(
            server.get("/v2/models/net/drift"))
        (tmp_path / "models" / "net" / "config.yaml").write_text(
            TASK + "drift: {window: 4, min_predictions: 4, "
            "baseline: drift.json}")
        urllib.request.urlopen(urllib.request.Request(
            f"{server.url}/v2/repository/models/net/load", b"{}"), timeout=60)
        fill("photo.jpg")
        until("count(millrace_drift_psi == 0) == 2")
        fires = 'ALERTS{alertname="MillraceDrift", alertstate="firing"}'
        assert not found(fires)
        fill("turned.png")
        until(fires)
