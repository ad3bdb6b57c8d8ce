"""Ensembles: Triton's ensemble_scheduling and config.yaml's, by tritonclient.
What a real Triton 2.51 answered to the same ensemble stands in
tests/golden/triton/ensemble.json."""
import concurrent.futures
import json
import shutil
import subprocess
import time

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import BINARY, REPO, start

MODELS = REPO / "tests" / "golden" / "triton" / "models"
GOLDEN = json.loads(
    (REPO / "tests" / "golden" / "triton" / "ensemble.json").read_text())
SUM = """
max_batch_size: 8
input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ 16 ] },
        { name: "INPUT1" data_type: TYPE_INT32 dims: [ 16 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 16 ] },
         { name: "OUTPUT1" data_type: TYPE_INT32 dims: [ 16 ] } ]
dynamic_batching { }
"""
FIRST = """{ model_name: "simple" model_version: -1
  input_map { key: "INPUT0" value: "A" } input_map { key: "INPUT1" value: "B" }
  output_map { key: "OUTPUT0" value: "sum" }
  output_map { key: "OUTPUT1" value: "diff" } }"""
SECOND = """{ model_name: "simple" model_version: -1
  input_map { key: "INPUT0" value: "sum" }
  input_map { key: "INPUT1" value: "diff" }
  output_map { key: "OUTPUT0" value: "Y" } }"""
PORTS = """input [ { name: "A" data_type: TYPE_INT32 dims: [ 16 ] },
        { name: "B" data_type: TYPE_INT32 dims: [ 16 ] } ]
output [ { name: "Y" data_type: TYPE_INT32 dims: [ 16 ] } ]
"""
ENSEMBLE = (f'name: "ens"\nplatform: "ensemble"\nmax_batch_size: 8\n{PORTS}'
            f"ensemble_scheduling {{ step [ {FIRST}, {SECOND} ] }}\n")


def put(root, name, config, model=None, file="config.pbtxt"):
    folder = root / name
    (folder / "1").mkdir(parents=True)
    if model:
        shutil.copy(MODELS / f"{model}.onnx", folder / "1" / "model.onnx")
    (folder / file).write_text(config)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    put(root, "ens", ENSEMBLE)
    put(root, "nested", """
        ensemble:
          steps:
            - {model: ens, inputs: {A: left, B: right}, outputs: {Y: twice}}
            - {model: ens, inputs: {A: twice, B: right}, outputs: {Y: four}}
        """, file="config.yaml")
    put(root, "branches", """
        ensemble:
          inputs: [A, B]
          steps:
            - model: simple
              inputs: {INPUT0: A, INPUT1: B}
              outputs: {OUTPUT0: sum, OUTPUT1: diff}
            - model: simple
              inputs: {INPUT0: sum, INPUT1: sum}
              outputs: {OUTPUT0: result}
              when: diff > 0
            - model: simple
              inputs: {INPUT0: diff, INPUT1: diff}
              outputs: {OUTPUT0: result, OUTPUT1: zero}
              when: diff <= 0
        """, file="config.yaml")
    put(root, "simple", SUM, "simple")
    with start("--model-repository", root, "--model-control-mode",
               "explicit", "--load-model", "*") as running:
        yield running


@pytest.fixture(params=["http", "grpc"])
def triton(request, server):
    module = triton_http if request.param == "http" else triton_grpc
    port = getattr(server, request.param + "_port")
    return module, module.InferenceServerClient(f"127.0.0.1:{port}")


def ask(triton, model, a, b, names=("A", "B"), **options):
    module, client = triton
    inputs = []
    for name, value in zip(names, (a, b)):
        value = np.asarray(value, np.int32)
        inputs.append(module.InferInput(name, list(value.shape), "INT32"))
        inputs[-1].set_data_from_numpy(value)
    return client.infer(model, inputs, **options)


def rows(n, first=0):
    return np.arange(first, first + 16 * n, dtype=np.int32).reshape(n, 16)


def shape_of(value):
    """Keys and kinds of an answer, without its numbers."""
    if isinstance(value, dict):
        return {key: shape_of(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape_of(each) for each in value]
    return type(value).__name__


def stats_of(server, name):
    return json.loads(server.get(f"/v2/models/{name}/stats"))["model_stats"][0]


def test_tensors_flow_from_step_to_step(triton):
    answer = ask(triton, "ens", rows(2), rows(2, 5))
    np.testing.assert_array_equal(answer.as_numpy("Y"), 2 * rows(2))


def test_metadata_and_config_are_those_of_triton(server):
    metadata = json.loads(server.get("/v2/models/ens"))
    assert metadata == GOLDEN["metadata"]
    told = json.loads(server.get("/v2/models/ens/config"))
    for key in ("name", "platform", "backend", "max_batch_size",
                "instance_group", "version_policy"):
        assert told[key] == GOLDEN["config"][key], key
    steps = told["ensemble_scheduling"]["step"]
    for ours, theirs in zip(steps, GOLDEN["config"]["ensemble_scheduling"]["step"]):
        assert ours == {k: v for k, v in theirs.items() if k != "model_namespace"}


def test_statistics_are_counted_as_triton_counts_them(server):
    before, member = stats_of(server, "ens"), stats_of(server, "simple")
    client = triton_http, triton_http.InferenceServerClient(
        f"127.0.0.1:{server.http_port}")
    ask(client, "ens", rows(2), rows(2))
    after = stats_of(server, "ens")
    # One request of two rows: two inferences, one execution; two of each step.
    assert after["inference_count"] - before["inference_count"] == 2
    assert after["execution_count"] - before["execution_count"] == 1
    inside = stats_of(server, "simple")
    assert inside["inference_count"] - member["inference_count"] == 4
    assert inside["execution_count"] - member["execution_count"] == 2
    theirs = GOLDEN["stats"]["inference_stats"]
    assert shape_of(after["inference_stats"]) == shape_of(theirs)
    ours = after["inference_stats"]
    for part in theirs:
        # Each is counted once a request, as there.
        assert ours[part]["count"] - before["inference_stats"][part][
            "count"] == theirs[part]["count"], part
    assert ours["success"]["ns"] >= ours["compute_infer"]["ns"] > 0


def test_an_ensemble_may_be_a_step(triton):
    answer = ask(triton, "nested", rows(1), rows(1), ("left", "right"))
    np.testing.assert_array_equal(answer.as_numpy("four"), 4 * rows(1))


def test_a_step_runs_where_its_condition_holds(triton):
    more = ask(triton, "branches", rows(1, 9), rows(1))
    np.testing.assert_array_equal(more.as_numpy("result"),
                                  2 * (rows(1, 9) + rows(1)))
    assert more.as_numpy("zero") is None
    less = ask(triton, "branches", rows(1), rows(1, 9))
    np.testing.assert_array_equal(less.as_numpy("result"),
                                  np.full((1, 16), -18))
    np.testing.assert_array_equal(less.as_numpy("zero"), np.zeros((1, 16)))


def test_many_at_a_time_share_the_batches_of_their_steps(server, triton):
    before = stats_of(server, "simple")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        def one(i):
            client = triton[0].InferenceServerClient(
                f"127.0.0.1:{server.http_port if triton[0] is triton_http else server.grpc_port}")
            for k in range(20):
                value = rows(1, i * 100 + k)
                answer = ask((triton[0], client), "ens", value, rows(1))
                np.testing.assert_array_equal(answer.as_numpy("Y"), 2 * value)
        list(pool.map(one, range(8)))
    after = stats_of(server, "simple")
    assert after["inference_count"] - before["inference_count"] == 320
    assert after["inference_stats"]["fail"]["count"] == 0


@pytest.mark.parametrize("a, names, told", [
    (rows(1), ("A", "Q"), "input 'Q' is not one of model 'ens'"),
    (np.zeros((1, 15)), ("A", "B"), "input 'A' is INT32 [1, 15] but the model "
     "'ens' takes INT32 [-1,16]"),
    (rows(9), ("A", "B"), "in ensemble 'ens', step 1 (model 'simple')"),
])
def test_a_wrong_request_is_refused(triton, a, names, told):
    with pytest.raises(InferenceServerException) as refused:
        ask(triton, "ens", a, rows(len(a)), names)
    assert told in str(refused.value)


def test_a_deadline_ends_the_request_once(server):
    client = triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    before = stats_of(server, "ens")["inference_stats"]["fail"]["count"]
    with pytest.raises(InferenceServerException) as late:
        for _ in range(1000):
            ask((triton_grpc, client), "ens", rows(8), rows(8), timeout=1)
    assert "DEADLINE" in str(late.value).upper() or "deadline" in str(late.value)
    assert stats_of(server, "ens")["inference_stats"]["fail"]["count"] == before + 1


def test_a_member_that_unloads_makes_it_unready(server):
    client = triton_http.InferenceServerClient(f"127.0.0.1:{server.http_port}")
    grpc = triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    try:
        client.unload_model("simple")
        assert not client.is_model_ready("ens")
        assert not grpc.is_model_ready("nested")
        states = {m["name"]: m for m in client.get_model_repository_index()}
        assert states["ens"]["state"] == "UNAVAILABLE"
        assert "'simple'" in states["ens"]["reason"]
        with pytest.raises(InferenceServerException) as refused:
            ask((triton_http, client), "ens", rows(1), rows(1))
        assert "the ensemble 'ens' is not ready" in str(refused.value)
    finally:
        client.load_model("simple")
    assert client.is_model_ready("ens") and grpc.is_model_ready("nested")
    ask((triton_http, client), "ens", rows(1), rows(1))


def test_members_are_loaded_and_unloaded_with_it(tmp_path):
    put(tmp_path, "ens", ENSEMBLE)
    put(tmp_path, "simple", SUM, "simple")
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit") as server:
        client = triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}")
        client.load_model("ens")
        assert client.is_model_ready("simple")
        ask((triton_http, client), "ens", rows(1), rows(1))
        client.unload_model("ens", unload_dependents=True)
        # Members leave after it, one by one.
        until = time.monotonic() + 30
        while client.is_model_ready("simple"):
            assert time.monotonic() < until
            time.sleep(0.02)


def test_a_member_that_an_ensemble_brings_is_loaded_as_by_itself(tmp_path):
    put(tmp_path, "ens", ENSEMBLE)
    put(tmp_path, "simple",
        "max_batch_size: 8\nversion_policy: all\n"
        "version_labels: {stable: 1}\ntraffic: {1: 1}\n",
        "simple", file="config.yaml")
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit") as server:
        client = triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}")
        client.load_model("ens")
        answer = ask((triton_http, client), "simple", rows(1), rows(1),
                     ("INPUT0", "INPUT1"), model_version="stable")
        assert answer.get_response()["model_version"] == "1"
        ask((triton_http, client), "ens", rows(1), rows(1))
        assert any('model="simple"' in labels for labels in
                   server.metric("millrace_traffic_requests_total"))
        # Nothing of it has changed.
        loads = server.metric("millrace_model_loads_total")
        client.load_model("simple")
        assert server.metric("millrace_model_loads_total") == loads


def test_models_that_come_later_complete_it(tmp_path):
    put(tmp_path, "ens", ENSEMBLE)
    with start("--model-repository", tmp_path, "--model-control-mode", "poll",
               "--repository-poll-interval", "100ms") as server:
        client = triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}")
        assert not client.is_model_ready("ens")
        put(tmp_path, "simple", SUM, "simple")
        end = time.monotonic() + 30
        while not client.is_model_ready("ens"):
            assert time.monotonic() < end
            time.sleep(0.05)
        ask((triton_http, client), "ens", rows(1), rows(1))


@pytest.mark.parametrize("steps, told", [
    ([FIRST.replace("simple", "nobody"), SECOND],
     "the ensemble 'ens' needs 'nobody': the model 'nobody' is not in"),
    ([FIRST.replace("INPUT0", "NOPE"), SECOND],
     "step 1 (model 'simple') maps input 'NOPE', which the model does not have"),
    ([FIRST.replace("OUTPUT1", "NOPE"), SECOND],
     "maps output 'NOPE', which the model does not have; it gives 'OUTPUT0'"),
    ([FIRST, SECOND.replace('"diff"', '"other"')],
     "reads tensor 'other' in step 2 (model 'simple'), but it is no input and "
     "no step makes it"),
    ([FIRST.replace('"B"', '"back"'),
      SECOND.replace('"diff"', '"B"').replace(
          'output_map', 'output_map { key: "OUTPUT1" value: "back" } output_map')],
     "has steps that wait for each other in a cycle: step 1"),
    ([FIRST], "has output 'Y', which no step makes"),
    ([FIRST, FIRST, SECOND], "has tensor 'sum' made by step 1"),
    ([FIRST, SECOND.replace("simple", "identity").replace(
        'input_map { key: "INPUT1" value: "diff" }', "")],
     "has tensor 'sum' as INT32 in output 'OUTPUT0' of step 1 (model 'simple') "
     "but as FP32 in input 'INPUT0' of step 2"),
    ([FIRST, SECOND.replace("simple", "ens")], "ensembles contain each other"),
])
def test_what_does_not_fit_is_found_at_load(tmp_path, steps, told):
    put(tmp_path, "ens", ENSEMBLE[:ENSEMBLE.index("ensemble_scheduling")] +
        "ensemble_scheduling { step [ " + ", ".join(steps) + " ] }")
    put(tmp_path, "simple", SUM, "simple")
    put(tmp_path, "identity", "max_batch_size: 8", "identity")
    ended = subprocess.run(
        [BINARY, "serve", "--http-port", "0", "--grpc-port", "0",
         "--model-repository", tmp_path],
        stderr=subprocess.PIPE, text=True, timeout=60)
    assert ended.returncode != 0
    assert told in " ".join(ended.stderr.split()), ended.stderr
