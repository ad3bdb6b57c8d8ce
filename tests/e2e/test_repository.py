"""A model repository: folders of versions, config.pbtxt, control by polling and
by Triton's clients, and what is wrong with either."""
import json
import os
import pathlib
import shutil
import subprocess
import threading
import time

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import BINARY, REPO, start

DATA = REPO / "tests" / "data" / "graph"
CASE = json.loads((DATA / "mlp.json").read_text())[0]


def put(root, version, name="mlp", model="mlp.onnx", file="model.onnx"):
    folder = root / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    # Renamed into place: a poll never sees half a file.
    shutil.copy(DATA / model, folder / "new")
    (folder / "new").rename(folder / file)


def configure(root, text, name="mlp"):
    (root / name / "config.pbtxt").write_text(text)


def http(server):
    return triton_http.InferenceServerClient(f"127.0.0.1:{server.http_port}")


def infer(client, model="mlp", version=""):
    inputs = []
    for name in ("x", "scale"):
        value = np.array(CASE[name], np.float32)
        inputs.append(triton_http.InferInput(name, list(value.shape), "FP32"))
        inputs[-1].set_data_from_numpy(value)
    answer = client.infer(model, inputs, model_version=version)
    np.testing.assert_allclose(answer.as_numpy("logits"), CASE["logits"],
                               rtol=1e-5, atol=1e-6)
    return answer.get_response()["model_version"]


def await_true(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def logged(server, text):
    """How many lines of the log so far have it."""
    return "".join(server.lines).count(text)


def refused(*flags):
    """What a server that cannot start says."""
    ended = subprocess.run(
        [BINARY, "serve", "--http-port", "0", "--grpc-port", "0",
         *map(str, flags)],
        stderr=subprocess.PIPE, text=True, timeout=60)
    assert ended.returncode != 0
    return ended.stderr


def test_versions_are_served_as_the_policy_says(tmp_path):
    put(tmp_path, 1)
    put(tmp_path, 3)
    put(tmp_path, 10)
    configure(tmp_path, """
        name: "mlp"
        platform: "onnxruntime_onnx"
        version_policy { latest { num_versions: 2 } }
        instance_group [ { count: 1 kind: KIND_CPU } ]
        parameters { key: "threads" value { string_value: "1" } }""")
    shutil.copy(DATA / "mlp.onnx", tmp_path / "plain.onnx")
    with start("--model-repository", tmp_path) as server:
        with http(server) as client:
            assert infer(client) == "10"
            assert infer(client, version="3") == "3"
            with pytest.raises(InferenceServerException, match="version '1'"):
                infer(client, version="1")
            assert infer(client, "plain") == "1"
            assert client.get_model_metadata("mlp")["versions"] == ["3", "10"]
            assert client.is_model_ready("mlp", "3")
            assert not client.is_model_ready("mlp", "1")


def test_polling_follows_the_folder(tmp_path):
    put(tmp_path, 1)
    with start("--model-repository", tmp_path, "--model-control-mode", "poll",
               "--repository-poll-interval", "20ms") as server:
        with http(server) as client:
            assert infer(client) == "1"
            put(tmp_path, 2)
            await_true(lambda: infer(client) == "2")
            # A half-written version leaves the one before serving.
            (tmp_path / "mlp" / "3").mkdir()
            (tmp_path / "mlp" / "3" / "model.onnx").write_bytes(
                (DATA / "mlp.onnx").read_bytes()[:100])
            server.wait_event("model not loaded")
            assert infer(client) == "2"
            shutil.rmtree(tmp_path / "mlp")
            await_true(lambda: not client.is_model_ready("mlp"))
            await_true(lambda: 'model="mlp"'
                       not in server.get("/metrics").decode())


@pytest.mark.parametrize("config, said", [
    ("max_batchsize: 3", "config.pbtxt line 1: unknown field 'max_batchsize'"),
    ("ensemble_scheduling { }", "an ensemble has platform 'ensemble'"),
    ("batch_input { }", "'batch_input' is not supported"),
    ('name: "other"', "name is 'other'"),
    ('backend: "python"', "backend is 'python'"),
    ('input [ { name: "x" data_type: TYPE_INT64 } ]',
     "has data_type TYPE_INT64 but the model has TYPE_FP32"),
    ('input [ { name: "nobody" } ]', "input 'nobody'"),
    ("version_policy { specific { versions: [ 7 ] } }", "version 7"),
])
def test_wrong_configurations_are_named_at_start(tmp_path, config, said):
    put(tmp_path, 1)
    configure(tmp_path, config)
    assert said in refused("--model-repository", tmp_path)


@pytest.mark.parametrize("flags", [
    ["--exit-on-error=false"], ["--model-control-mode", "poll"]])
def test_what_cannot_be_loaded_is_told_while_the_rest_serves(tmp_path, flags):
    put(tmp_path, 1)
    put(tmp_path, 1, "wrong")
    configure(tmp_path, "max_batchsize: 3", "wrong")
    why = "wrong/config.pbtxt line 1: unknown field 'max_batchsize'"
    with start("--model-repository", tmp_path, *flags) as server:
        server.line('"ready"', '"models":1', '"models_not_loaded":1')
        server.line('"model not loaded"', '"model":"wrong"', why)
        with http(server) as client:
            assert infer(client) == "1"
            entries = client.get_model_repository_index()
            assert [each["name"] for each in entries] == ["mlp", "wrong"]
            assert entries[1]["state"] == "UNAVAILABLE"
            assert why in entries[1]["reason"]
            with pytest.raises(InferenceServerException, match="max_batchsize"):
                infer(client, "wrong")
        with triton_grpc.InferenceServerClient(
                f"127.0.0.1:{server.grpc_port}") as client:
            entry = client.get_model_repository_index().models[1]
            assert (entry.name, entry.state) == ("wrong", "UNAVAILABLE")
            assert why in entry.reason


def test_an_empty_repository_is_told(tmp_path):
    with start("--model-repository", tmp_path) as server:
        server.line("the model repository has no models", "NAME/VERSION/")


def test_hints_for_other_runtimes_are_told_once(tmp_path):
    put(tmp_path, 1)
    configure(tmp_path, """
        optimization { graph { level: 1 } }
        parameters { key: "intra_op_thread_count" value { string_value: "2" } }
        """)
    with start("--model-repository", tmp_path, "--model-control-mode", "poll",
               "--repository-poll-interval", "20ms") as server:
        with http(server) as client:
            assert infer(client) == "1"
        time.sleep(0.2)  # some polls
        assert logged(server, "optimization, parameters intra_op_thread") == 1


def test_wrong_flags_are_named_at_start(tmp_path):
    assert "is no folder" in refused("--model-repository", tmp_path / "none")
    assert "--exit-on-error is 'no' but must be true or false" in refused(
        "--model-repository", tmp_path, "--exit-on-error", "no")
    put(tmp_path, 1)
    assert "name the folder above it" in refused(
        "--model-repository", tmp_path / "mlp")
    assert f"serve it with --model-repository {tmp_path}" in refused(tmp_path)
    assert "named as a model, too" in refused("--model-repository", tmp_path,
                                              DATA / "mlp.onnx")
    assert "'other' is not in the repository" in refused(
        "--model-repository", tmp_path, "--model-control-mode", "explicit",
        "--load-model", "other")


# ---- control by clients ----

@pytest.fixture(params=[triton_http, triton_grpc], ids=["http", "grpc"])
def control(request, tmp_path):
    put(tmp_path, 1)
    put(tmp_path, 1, name="other")
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit", "--load-model", "other") as server:
        port = (server.http_port if request.param is triton_http
                else server.grpc_port)
        with request.param.InferenceServerClient(
                f"127.0.0.1:{port}") as client:
            yield server, client, tmp_path


def index(client):
    """(name, version, state, reason) of each entry."""
    told = client.get_model_repository_index()
    entries = ([(e["name"], e.get("version", ""), e.get("state", ""),
                 e.get("reason", "")) for e in told]
               if isinstance(told, list) else
               [(e.name, e.version, e.state, e.reason) for e in told.models])
    return sorted(entries)


def as_json(client, answer):
    if isinstance(answer, dict):
        return answer
    from google.protobuf import json_format
    return json_format.MessageToDict(answer, preserving_proto_field_name=True)


OTHER = ("other", "1", "READY", "")


def test_clients_load_and_unload(control):
    server, client, root = control
    assert index(client) == [("mlp", "", "", ""), OTHER]
    assert not client.is_model_ready("mlp")
    client.load_model("mlp")
    assert index(client) == [("mlp", "1", "READY", ""), OTHER]
    assert client.is_model_ready("mlp")
    with http(server) as asking:
        assert infer(asking) == "1"
        assert 'model="mlp"' in server.get("/metrics").decode()
        client.unload_model("mlp")
        assert not client.is_model_ready("mlp")
        await_true(lambda: index(client) == [
            ("mlp", "1", "UNAVAILABLE", "unloaded"), OTHER])
        assert 'model="mlp"' not in server.get("/metrics").decode()
        with pytest.raises(InferenceServerException, match="not loaded"):
            infer(asking)
        client.load_model("mlp")
        assert infer(asking) == "1"


def test_a_failing_version_leaves_the_one_before_serving(control):
    server, client, root = control
    client.load_model("mlp")
    folder = root / "mlp" / "2"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"nonsense")
    with pytest.raises(InferenceServerException, match="cannot serve"):
        client.load_model("mlp")
    entries = index(client)
    assert entries[0] == ("mlp", "1", "READY", "")
    assert entries[1][:3] == ("mlp", "2", "UNAVAILABLE")
    assert "cannot serve" in entries[1][3]
    with http(server) as asking:
        assert infer(asking) == "1"
        put(root, 2)
        client.load_model("mlp")
        assert infer(asking) == "2"


def test_configuration_is_told_and_overridden(control):
    server, client, root = control
    put(root, 2)
    client.load_model("mlp", config=json.dumps(
        {"version_policy": {"specific": {"versions": [1]}},
         "parameters": {"threads": {"string_value": "1"}}}))
    told = as_json(client, client.get_model_config("mlp"))
    told = told.get("config", told)
    assert told["name"] == "mlp"
    assert told["platform"] == "millrace_onnx"
    assert [each["name"] for each in told["input"]] == ["x", "scale"]
    assert told["input"][0]["data_type"] == "TYPE_FP32"
    assert [int(v) for v in
            told["version_policy"]["specific"]["versions"]] == [1]
    assert told["parameters"]["threads"]["string_value"] == "1"
    with http(server) as asking:
        assert infer(asking) == "1"
    with pytest.raises(InferenceServerException,
                       match="unknown field 'max_batchsize'"):
        client.load_model("mlp", config='{"max_batchsize": 3}')
    with pytest.raises(InferenceServerException, match="repository's folder"):
        client.load_model("mlp", config="{}",
                          files={"file:1/model.onnx": b"bytes"})


def test_statistics_count_requests(control):
    server, client, root = control
    with http(server) as asking:
        for _ in range(3):
            infer(asking, "other")
    told = as_json(client, client.get_inference_statistics("other"))
    stats, = told["model_stats"]
    assert (stats["name"], stats["version"]) == ("other", "1")
    rows = len(CASE["x"])
    assert int(stats["execution_count"]) == 3
    assert int(stats["inference_count"]) in (3, 3 * rows)
    assert int(stats["last_inference"]) > 1_700_000_000_000
    success = stats["inference_stats"]["success"]
    assert int(success["count"]) == 3
    assert int(success["ns"]) > int(
        stats["inference_stats"]["compute_infer"]["ns"]) > 0
    everything = as_json(client, client.get_inference_statistics())
    assert [each["name"] for each in everything["model_stats"]] == ["other"]
    with pytest.raises(InferenceServerException, match="'none'"):
        client.get_inference_statistics("none")


def test_what_cannot_be_loaded_is_named(control):
    _, client, _ = control
    with pytest.raises(InferenceServerException, match="'none' is not in"):
        client.load_model("none")
    with pytest.raises(InferenceServerException, match="'..' is not in"):
        client.load_model("..")
    client.unload_model("mlp")  # as Triton: it is unloaded already


def test_control_needs_the_explicit_mode(tmp_path):
    put(tmp_path, 1)
    with start("--model-repository", tmp_path) as server:
        with http(server) as client:
            for ask in (client.load_model, client.unload_model):
                with pytest.raises(InferenceServerException,
                                   match="model-control-mode explicit"):
                    ask("mlp")
            assert index(client) == [("mlp", "1", "READY", "")]
            assert infer(client) == "1"


def test_no_request_fails_while_versions_come_and_go(control):
    server, client, root = control
    client.load_model("mlp")
    stop = threading.Event()
    served, failed = set(), []

    def ask():
        with http(server) as asking:
            while not stop.is_set():
                try:
                    served.add(infer(asking))
                except InferenceServerException as error:
                    failed.append(str(error))

    clients = [threading.Thread(target=ask) for _ in range(3)]
    for each in clients:
        each.start()
    for version in range(2, 22):
        put(root, version)
        client.load_model("mlp")
    stop.set()
    for each in clients:
        each.join()
    assert failed == []
    assert len(served) > 2
    assert [e for e in index(client) if e[2] == "READY"] == [
        ("mlp", "21", "READY", ""), OTHER]


def test_a_yaml_file_configures_a_model_and_labels_move_live(tmp_path):
    put(tmp_path, 1)
    put(tmp_path, 2)
    settings = tmp_path / "mlp" / "config.yaml"
    settings.write_text("version_policy: all\nmax_batch_size: 4\n"
                        "version_labels: {stable: 1, canary: 2}\n")
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit", "--load-model", "mlp") as server:
        with http(server) as client:
            assert infer(client, version="stable") == "1"
            assert infer(client, version="canary") == "2"
            assert infer(client) == "2"
            config = client.get_model_config("mlp")
            assert config["version_policy"] == {"all": {}}
            settings.write_text("version_policy: all\nmax_batch_size: 4\n"
                                "version_labels: {stable: 2}\n")
            client.load_model("mlp")
            assert infer(client, version="stable") == "2"
            with pytest.raises(InferenceServerException, match="'canary'"):
                infer(client, version="canary")
            assert logged(server, "graph loaded") == 2
            settings.write_text("max_batchsize: 4\n")
            with pytest.raises(InferenceServerException,
                               match="did you mean 'max_batch_size'"):
                client.load_model("mlp")
            assert infer(client, version="stable") == "2"


def test_instances_change_under_load_and_lose_nothing(tmp_path):
    put(tmp_path, 1)
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit", "--load-model", "mlp") as server:
        over = threading.Event()
        answered = []

        def ask():
            with http(server) as client:
                while not over.is_set():
                    answered.append(infer(client))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        with http(server) as client:
            def count():
                groups = client.get_model_config("mlp")["instance_group"]
                return sum(group["count"] for group in groups)

            for wanted in [2, 1, 3, 2] * 5:
                client.load_model("mlp", config=json.dumps(
                    {"instance_group": [{"count": wanted}],
                     "dynamic_batching": {}, "max_batch_size": 8}))
                assert count() == wanted
            over.set()
            for thread in threads:
                thread.join()
            failed = client.get_inference_statistics(
                "mlp")["model_stats"][0]["inference_stats"]["fail"]["count"]
        assert failed == 0
        assert len(answered) > 20
        # The first override differs from what was loaded at start.
        assert logged(server, "graph loaded") == 2
        assert logged(server, "instances changed") >= 15


def test_statistics_tell_which_instance_has_which_cpus(tmp_path):
    put(tmp_path, 1)
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        pytest.skip("one CPU")
    (tmp_path / "mlp" / "config.yaml").write_text(
        f"instance_count: 2\ncpu_cores: {cpus[0]},{cpus[1]}\n")
    with start("--model-repository", tmp_path) as server:
        told, = json.loads(server.get("/v2/models/mlp/stats"))["model_stats"]
        places = told["parameters"]["instances"]
        for place in places:
            for cpu in place["cpus"]:
                assert place["numa_nodes"] == [
                    int(path.name[4:]) for path in pathlib.Path(
                        f"/sys/devices/system/cpu/cpu{cpu}").glob("node*")
                ] or [0]
        if len({tuple(place["numa_nodes"]) for place in places}) == 1:
            assert [place["cpus"] for place in places] == [[c] for c in cpus]
        # gRPC tells the same in a field of our own, which Triton's clients keep
        # without knowing it: instances = 1000, cpus = 1, numa_nodes = 2, packed.
        with triton_grpc.InferenceServerClient(
                f"127.0.0.1:{server.grpc_port}") as client:
            model, = client.get_inference_statistics("mlp").model_stats
        got = model.SerializeToString()
        for place in places:
            packed = b"".join(bytes([8 * field + 2, len(place[name]),
                                     *place[name]])
                              for field, name in ((1, "cpus"),
                                                  (2, "numa_nodes")))
            assert b"\xc2\x3e" + bytes([len(packed)]) + packed in got


def test_the_number_of_instances_may_be_measured(tmp_path):
    put(tmp_path, 1)
    (tmp_path / "mlp" / "config.yaml").write_text("instance_count: 0\n")
    with start("--model-repository", tmp_path) as server:
        with http(server) as client:
            assert infer(client) == "1"
        assert logged(server, "rows/s") or len(os.sched_getaffinity(0)) == 1


@pytest.mark.parametrize("flags, said", [
    (["--cpu-cores", "0,9999"], "cpu_cores has 9999"),
    (["--cpu-cores", "0-"], "cpu_cores is '0-'"),
    (["--numa-node", "77"], "numa_node is 77"),
])
def test_cpus_that_are_not_there_are_named(tmp_path, flags, said):
    put(tmp_path, 1)
    assert said in refused("--model-repository", tmp_path, *flags)


def test_loads_are_counted_by_how_they_ended(tmp_path):
    put(tmp_path, 1)
    put(tmp_path, 1, name="broken")
    (tmp_path / "broken" / "1" / "model.onnx").write_bytes(b"no graph")
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit") as server:
        loads = "millrace_model_loads_total"
        assert server.metric(loads) == {'{outcome="error"}': 0,
                                        '{outcome="ok"}': 0}
        client = http(server)
        client.load_model("mlp")
        with pytest.raises(InferenceServerException):
            client.load_model("broken")
        assert server.metric(loads) == {'{outcome="error"}': 1,
                                        '{outcome="ok"}': 1}
        memory = server.metric("millrace_model_memory_bytes")
        assert list(memory) == ['{model="mlp",version="1"}']
        client.unload_model("mlp")
        await_true(lambda: not server.metric("millrace_model_memory_bytes"))
        assert server.metric(loads)['{outcome="ok"}'] == 1
