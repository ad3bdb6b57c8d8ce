"""Sequences of requests with a state, as tritonclient starts, continues and
ends them over REST, gRPC and a gRPC stream. Words of refusals are those of a
real Triton 2.51 (direct and oldest)."""
import concurrent.futures
import json
import queue
import shutil
import struct
import subprocess
import time

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import BINARY, REPO, start
from onnx_bytes import sum_of_sequence

MODEL = REPO / "tests" / "data" / "sequences" / "running_sum.onnx"
CONTROLS = "".join(
    f'control_input {{ name: "{name}" control {{ kind: '
    f"CONTROL_SEQUENCE_{name} int32_false_true: [ 0, 1 ] }} }}\n"
    for name in ("START", "END", "READY")) + (
        'control_input { name: "CORRID" control { kind: '
        "CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }\n")
STATE = """state { input_name: "STATE_IN" output_name: "STATE_OUT"
  data_type: TYPE_INT32 dims: [ 1 ] INITIAL }
"""


def config(strategy, initial="", idle=600_000_000):
    return f"""
        max_batch_size: 4
        input [ {{ name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }} ]
        sequence_batching {{
          max_sequence_idle_microseconds: {idle}
          {strategy}
          {CONTROLS}
          {STATE.replace("INITIAL", initial)}
        }}"""


YAML = """
max_batch_size: 4
sequence_batching:
  max_sequence_idle_microseconds: 600000000
  oldest: {max_candidate_sequences: 1000}
  control_input:
    - {name: START, control: [{kind: CONTROL_SEQUENCE_START, int32_false_true: [0, 1]}]}
    - {name: END, control: [{kind: CONTROL_SEQUENCE_END, int32_false_true: [0, 1]}]}
    - {name: READY, control: [{kind: CONTROL_SEQUENCE_READY, int32_false_true: [0, 1]}]}
    - {name: CORRID, control: [{kind: CONTROL_SEQUENCE_CORRID, data_type: TYPE_UINT64}]}
  state:
    - {input_name: STATE_IN, output_name: STATE_OUT, data_type: TYPE_INT32, dims: [1]}
"""


def put(root, name, text, file="config.pbtxt"):
    (root / name / "1").mkdir(parents=True)
    shutil.copy(MODEL, root / name / "1" / "model.onnx")
    (root / name / file).write_text(text)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    put(root, "oldest", config("oldest { max_candidate_sequences: 1000 }"))
    put(root, "direct", config("direct { }"))
    put(root, "yaml", YAML, "config.yaml")
    put(root, "two_instances", "instance_count: 2\n" + YAML.replace(
        "oldest: {max_candidate_sequences: 1000}", "direct: {}"), "config.yaml")
    put(root, "brief", config("oldest { max_candidate_sequences: 1000 }",
                              idle=300_000))
    put(root, "from_file", config(
        "oldest { }", 'initial_state { name: "a" data_type: TYPE_INT32 '
        'dims: [ 1 ] data_file: "hundred" }'))
    (root / "from_file" / "initial_state").mkdir()
    (root / "from_file" / "initial_state" / "hundred").write_bytes(
        struct.pack("<i", 100))
    put(root, "text_ids", """
        max_batch_size: 4
        sequence_batching {
          oldest { max_candidate_sequences: 1000 }
          control_input [ { name: "CORRID" control [ {
            kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } ] } ]
          state [ { input_name: "STATE_IN" output_name: "STATE_OUT"
                    data_type: TYPE_INT32 dims: [ 1 ] } ]
        }""")
    (root / "text_ids" / "1" / "model.onnx").write_bytes(sum_of_sequence())
    (root / "ensemble" / "1").mkdir(parents=True)
    (root / "ensemble" / "config.yaml").write_text("""
        ensemble:
          steps:
            - {model: oldest, inputs: {INPUT: INPUT}, outputs: {OUTPUT: sum}}
            - {model: direct, inputs: {INPUT: sum}, outputs: {OUTPUT: OUTPUT}}
        """)
    with start("--model-repository", root) as running:
        yield running


@pytest.fixture(params=["http", "grpc"])
def triton(request, server):
    module = triton_http if request.param == "http" else triton_grpc
    port = getattr(server, request.param + "_port")
    return module, module.InferenceServerClient(f"127.0.0.1:{port}")


ids = iter(range(1, 1_000_000))


def inputs_of(module, value, rows=1):
    value = np.full((rows, 1), value, np.int32)
    given = module.InferInput("INPUT", [rows, 1], "INT32")
    given.set_data_from_numpy(value)
    return [given]


def ask(triton, model, value, sequence, first=False, last=False, rows=1):
    module, client = triton
    return client.infer(model, inputs_of(module, value, rows),
                        sequence_id=sequence, sequence_start=first,
                        sequence_end=last)


def refusal(*args, **kwargs):
    with pytest.raises(InferenceServerException) as refused:
        ask(*args, **kwargs)
    return str(refused.value)


@pytest.mark.parametrize("model", ["oldest", "direct", "yaml"])
def test_a_sequence_keeps_its_state_and_hears_its_controls(triton, model):
    sequence, total = next(ids), 0
    for i, value in enumerate((5, 7, 11)):
        answer = ask(triton, model, value, sequence, i == 0, i == 2)
        total += value
        assert answer.as_numpy("OUTPUT").tolist() == [[total]]
        assert answer.as_numpy("CONTROLS").tolist() == [
            [int(i == 0), int(i == 2), 1]]
        assert answer.as_numpy("ID").tolist() == [[sequence]]
        assert answer.as_numpy("STATE_OUT") is None
    assert "must specify the START flag on the first request" in refusal(
        triton, model, 1, sequence)


def test_members_of_an_ensemble_keep_their_states(triton):
    """The second member sums the sums of the first."""
    sequence, sums = next(ids), []
    for i, value in enumerate((5, 7, 11)):
        answer = ask(triton, "ensemble", value, sequence, i == 0, i == 2)
        sums.append(answer.as_numpy("OUTPUT").tolist())
    assert sums == [[[5]], [[17]], [[40]]]
    said = refusal(triton, "ensemble", 1, sequence)
    assert "step 1 (model 'oldest')" in said
    assert "must specify the START flag on the first request" in said


def test_a_model_takes_ids_that_are_texts(triton):
    for name in "café", "b":
        ask(triton, "text_ids", len(name), name, first=True)
    for name in "café", "b":
        answer = ask(triton, "text_ids", 10, name, last=True)
        assert answer.as_numpy("ID").tolist() == [[name.encode()]]
        assert answer.as_numpy("OUTPUT").tolist() == [[10 + len(name)]]
    assert "takes it as BYTES; send a text" in refusal(
        triton, "text_ids", 1, 7, first=True)


def test_metadata_leaves_out_what_clients_do_not_send(server):
    told = json.loads(server.get("/v2/models/oldest"))
    assert [i["name"] for i in told["inputs"]] == ["INPUT"]
    assert [o["name"] for o in told["outputs"]] == ["OUTPUT", "CONTROLS", "ID"]
    told = json.loads(server.get("/v2/models/yaml/config"))
    assert told["sequence_batching"]["oldest"]["max_candidate_sequences"] == 1000
    assert told["sequence_batching"]["state"][0]["input_name"] == "STATE_IN"


def test_a_start_begins_anew(triton):
    sequence = next(ids)
    ask(triton, "oldest", 5, sequence, True)
    again = ask(triton, "oldest", 7, sequence, True)
    assert again.as_numpy("OUTPUT").tolist() == [[7]]


def test_an_initial_state_may_stand_in_a_file(triton):
    answer = ask(triton, "from_file", 5, next(ids), True, True)
    assert answer.as_numpy("OUTPUT").tolist() == [[105]]


def test_refusals_are_in_tritons_words(triton):
    assert ("inference request to model 'oldest' must specify a non-zero or "
            "non-empty correlation ID") in refusal(triton, "oldest", 1, 0)
    assert ("inference request for sequence 987654 to model 'oldest' must "
            "specify the START flag on the first request of the sequence"
            ) in refusal(triton, "oldest", 1, 987654)
    assert ("inference request to model 'oldest' must specify batch-size 1 due "
            "to requirements of sequence batcher"
            ) in refusal(triton, "oldest", 1, next(ids), True, rows=2)
    assert "sequence_id is 'abc' but the model 'oldest' takes it as UINT64" in (
        refusal(triton, "oldest", 1, "abc", True))


def test_a_request_that_fails_leaves_the_state(triton):
    module, client = triton
    sequence = next(ids)
    ask(triton, "oldest", 5, sequence, True)
    wrong = module.InferInput("INPUT", [1, 2], "INT32")
    wrong.set_data_from_numpy(np.ones((1, 2), np.int32))
    with pytest.raises(InferenceServerException):
        client.infer("oldest", [wrong], sequence_id=sequence)
    assert ask(triton, "oldest", 7, sequence, last=True).as_numpy(
        "OUTPUT").tolist() == [[12]]


def test_an_idle_sequence_ends(server, triton):
    sequence = next(ids)
    ask(triton, "brief", 5, sequence, True)
    assert server.metric("millrace_sequences")['{model="brief"}'] >= 1
    end = time.monotonic() + 20
    while server.metric("millrace_sequences")['{model="brief"}'] > 0:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert "START flag" in refusal(triton, "brief", 1, sequence)


@pytest.mark.parametrize("model, slots", [("direct", 4), ("two_instances", 8)])
def test_the_direct_strategy_has_a_slot_for_each_row(server, model, slots):
    client = triton_http, triton_http.InferenceServerClient(
        f"127.0.0.1:{server.http_port}")
    held = [next(ids) for _ in range(slots)]
    for sequence in held:
        ask(client, model, 1, sequence, True)
    told = refusal(client, model, 1, next(ids), True)
    assert (f"keeps {slots} sequences, as many as max_candidate_sequences "
            "allows") in told
    for sequence in held:
        ask(client, model, 1, sequence, last=True)
    ask(client, model, 1, next(ids), True, True)


def test_a_stream_keeps_the_order_of_each_sequence(server):
    client = triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    sequences = [next(ids) for _ in range(10)]
    for i in range(50):
        for sequence in sequences:
            client.async_stream_infer(
                "oldest", inputs_of(triton_grpc, i), sequence_id=sequence,
                sequence_start=i == 0, sequence_end=i == 49,
                request_id=f"{sequence}/{i}")
    got = {}
    for _ in range(500):
        result, error = answers.get(timeout=30)
        assert error is None, error
        name = result.get_response().id
        got[name] = int(result.as_numpy("OUTPUT")[0, 0])
    client.stop_stream()
    for sequence in sequences:
        for i in range(50):
            assert got[f"{sequence}/{i}"] == sum(range(i + 1))


def test_a_stream_outlives_bad_chunks_and_a_sequence_its_stream(server):
    """A chunk that is refused is answered and changes nothing; a client that is gone
    leaves its sequence, which another stream goes on with or which idles out."""
    wrong = triton_grpc.InferInput("INPUT", [1, 2], "INT32")
    wrong.set_data_from_numpy(np.ones((1, 2), np.int32))
    unknown = triton_grpc.InferInput("NONE", [1, 1], "INT32")
    unknown.set_data_from_numpy(np.ones((1, 1), np.int32))

    def opened():
        answers = queue.Queue()
        client = triton_grpc.InferenceServerClient(
            f"127.0.0.1:{server.grpc_port}")
        client.start_stream(lambda result, error: answers.put(error or result))

        def send(given, sequence, model="oldest", **place):
            if isinstance(given, int):
                given = inputs_of(triton_grpc, given)
            client.async_stream_infer(model, given, sequence_id=sequence,
                                      **place)
            return answers.get(timeout=30)
        return client, send

    def total(answer):
        return int(answer.as_numpy("OUTPUT")[0, 0])
    sequence, brief = next(ids), next(ids)
    client, send = opened()
    assert total(send(5, sequence, sequence_start=True)) == 5
    for given, place, told in [
            ([wrong], {}, "INPUT"), ([unknown], {}, "NONE"), ([], {}, "INPUT"),
            (1, {"model": "none"}, "none"),
            (1, {"sequence": next(ids)}, "START")]:
        answer = send(given, **{"sequence": sequence, **place})
        assert isinstance(answer, InferenceServerException), answer
        assert told in str(answer)
    assert total(send(7, sequence)) == 12
    assert total(send(1, brief, "brief", sequence_start=True)) == 1
    # Gone with an answer under way.
    client.async_stream_infer("oldest", inputs_of(triton_grpc, 8),
                              sequence_id=sequence)
    client.stop_stream(cancel_requests=True)
    client.close()
    end = time.monotonic() + 20
    while server.metric("millrace_sequences")['{model="brief"}'] > 0:
        assert time.monotonic() < end
        time.sleep(0.05)
    client, send = opened()
    assert "START" in str(send(1, brief, "brief"))
    # The last chunk was heard or not, but never half.
    assert total(send(30, sequence, sequence_end=True)) in (42, 50)
    client.stop_stream()


def test_sequences_share_batches(server):
    def one(sequence):
        client = triton_grpc, triton_grpc.InferenceServerClient(
            f"127.0.0.1:{server.grpc_port}")
        for i in range(50):
            answer = ask(client, "oldest", i, sequence, i == 0, i == 49)
            assert answer.as_numpy("OUTPUT").tolist() == [[sum(range(i + 1))]]
            assert answer.as_numpy("ID").tolist() == [[sequence]]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(one, [next(ids) for _ in range(8)]))
    stats = json.loads(server.get("/v2/models/oldest/stats"))["model_stats"][0]
    assert stats["inference_stats"]["success"]["count"] >= 400


@pytest.mark.parametrize("change, told", [
    (("STATE_OUT", "NOPE"), "names the state's output 'NOPE'"),
    (('name: "END"', 'name: "NOPE"'), "names control input 'NOPE'"),
    (("int32_false_true: [ 0, 1 ]", "fp32_false_true: [ 0, 1 ]"),
     "has 'START' as FP32 but the model has INT32"),
    (("int32_false_true: [ 0, 1 ]", "int32_false_true: [ 1 ]"),
     "each with two values"),
    (("dims: [ 1 ]  }\n", "dims: [ 2 ] }\n"), "has a state for 'STATE_IN' of"),
])
def test_what_does_not_fit_is_found_at_load(tmp_path, change, told):
    text = config("oldest { }").replace(*change)
    assert text != config("oldest { }")
    put(tmp_path, "m", text)
    ended = subprocess.run(
        [BINARY, "serve", "--http-port", "0", "--grpc-port", "0",
         "--model-repository", tmp_path],
        stderr=subprocess.PIPE, text=True, timeout=60)
    assert ended.returncode != 0
    assert told in " ".join(ended.stderr.split()), ended.stderr
