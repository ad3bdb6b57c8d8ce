"""Requests of many clients in one batch: rows keep their bits, the response
tells the batch, queue policies mean what Triton's mean."""
import concurrent.futures
import time

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import REPO, start

DATA = REPO / "tests" / "data" / "graph"
DTYPES = {"float32": "FP32", "int64": "INT64"}


def rows_of(model):
    """Inputs of the model's three-row case, by name."""
    names = {"minilm": ["input_ids", "attention_mask"], "resnet50": ["input"]}
    with np.load(DATA / f"{model}.b3.npz") as case:
        return {name: case[f"in{i}"] for i, name in enumerate(names[model])}


def infer(module, client, model, inputs, **options):
    made = []
    for name, value in inputs.items():
        tensor = module.InferInput(name, list(value.shape),
                                   DTYPES[str(value.dtype)])
        tensor.set_data_from_numpy(value)
        made.append(tensor)
    return client.infer(model, made, **options)


def together(module, server, model, requests, **options):
    """Answers to requests sent at the same time, each by its own client:
    those of tritonclient.http belong to one thread."""
    port = (server.http_port if module is triton_http else server.grpc_port)

    def send(inputs):
        with module.InferenceServerClient(f"127.0.0.1:{port}") as client:
            return infer(module, client, model, inputs, **options)

    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(send, requests))


def outputs(answer):
    response = answer.get_response()
    names = ([o["name"] for o in response["outputs"]]
             if isinstance(response, dict)
             else [o.name for o in response.outputs])
    return {name: answer.as_numpy(name) for name in names}


def batch_of(answer):
    response = answer.get_response()
    if isinstance(response, dict):
        return response["parameters"]
    return {key: getattr(value, value.WhichOneof("parameter_choice"))
            for key, value in response.parameters.items()}


@pytest.fixture(scope="module")
def server():
    with start(DATA / "minilm.onnx", DATA / "resnet50.onnx",
               "--max-batch-size", 4, "--max-queue-delay", "300ms") as running:
        yield running


@pytest.fixture(params=[triton_http, triton_grpc], ids=["http", "grpc"])
def triton(request, server):
    if request.param is triton_http:
        with triton_http.InferenceServerClient(
                f"127.0.0.1:{server.http_port}") as client:
            yield request.param, client
    else:
        with triton_grpc.InferenceServerClient(
                f"127.0.0.1:{server.grpc_port}") as client:
            yield request.param, client


@pytest.mark.parametrize("model", ["minilm", "resnet50"])
def test_rows_of_one_batch_keep_their_bits(server, triton, model):
    module, client = triton
    inputs = rows_of(model)
    each = [{name: value[row:row + 1] for name, value in inputs.items()}
            for row in range(3)]
    alone = [outputs(infer(module, client, model, one)) for one in each]
    requests = each + [each[0]]
    answers = together(module, server, model, requests,
                       parameters={"batch_statistics": True})
    for answer in answers:
        told = batch_of(answer)
        assert told["batch_size"] == 4 and told["batch_requests"] == 4
        assert told["batch_closed"] == "full"
        assert told["compute_infer_ns"] > 0
    for answer, expected in zip(answers, alone + [alone[0]]):
        for name, value in outputs(answer).items():
            assert value.tobytes() == expected[name].tobytes(), name


def test_a_batch_that_is_not_full_waits_for_its_delay(triton):
    module, client = triton
    one = {name: value[:1] for name, value in rows_of("resnet50").items()}
    began = time.monotonic()
    told = batch_of(infer(module, client, "resnet50", one,
                          parameters={"batch_statistics": True}))
    assert time.monotonic() - began >= 0.3
    assert told["batch_closed"] == "delay" and told["batch_size"] == 1
    assert told["queue_ns"] >= 300e6


def test_more_rows_than_max_batch_size_are_refused(triton):
    module, client = triton
    five = {name: np.concatenate([value, value[:2]])
            for name, value in rows_of("resnet50").items()}
    with pytest.raises(InferenceServerException) as refused:
        infer(module, client, "resnet50", five)
    assert "5 rows" in str(refused.value)
    assert "max_batch_size" in str(refused.value)


def test_metrics_count_rows_and_batches(server):
    counts = server.metric("millrace_inference_rows_total")
    batches = server.metric("millrace_batch_size_count")
    label = next(key for key in counts if "resnet50" in key)
    assert counts[label] > batches[label] > 0
    closed = server.metric("millrace_batches_total")
    assert any("full" in key and value > 0 for key, value in closed.items())


def test_preferred_sizes_do_not_wait():
    with start(DATA / "resnet50.onnx", "--max-batch-size", 8,
               "--preferred-batch-size", "2",
               "--max-queue-delay", "20s") as server:
        one = {name: value[:1] for name, value in rows_of("resnet50").items()}
        told = [batch_of(answer) for answer in together(
            triton_http, server, "resnet50", [one, one],
            parameters={"batch_statistics": True})]
    assert [t["batch_closed"] for t in told] == ["preferred", "preferred"]


def test_instances_share_the_load():
    with start(DATA / "resnet50.onnx", "--instance-count", 2,
               "--max-batch-size", 1) as server:
        inputs = rows_of("resnet50")
        one = {name: value[:1] for name, value in inputs.items()}
        expected, *answers = [outputs(answer) for answer in together(
            triton_http, server, "resnet50", [one] * 12)]
        for answer in answers:
            for name, value in answer.items():
                assert value.tobytes() == expected[name].tobytes()


@pytest.mark.parametrize("flags, told", [
    (["--max-batch-size", "4", "--preferred-batch-size", "8"],
     "preferred_batch_size has 8 but max_batch_size is 4"),
    (["--default-priority-level", "2"], "priority_levels is 0"),
    (["--max-queue-delay", "soon"], "max-queue-delay is 'soon'"),
])
def test_settings_that_contradict_each_other_are_named(flags, told):
    with pytest.raises(AssertionError) as ended:
        with start(DATA / "resnet50.onnx", *flags):
            pass
    assert told in str(ended.value)


def test_a_graph_whose_rows_meet_is_served_one_by_one():
    with start(DATA / "vit_b_16.onnx", "--max-batch-size", 8) as server:
        assert any("requests are not joined" in line for line in server.lines)
