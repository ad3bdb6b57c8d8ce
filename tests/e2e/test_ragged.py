"""Requests of different lengths in one batch: shorter ones are padded, the mask
is made by the server, and each gets the bits that it gets alone."""
import concurrent.futures
import json
import shutil

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import REPO, start

DATA = REPO / "tests" / "data" / "graph"
RAGGED = "ragged_inputs: {input_ids: 0, attention_mask: mask}\n"
LENGTHS = (16, 11, 7)


def put(root, config, file="config.yaml", model="minilm"):
    folder = root / model / "1"
    folder.mkdir(parents=True)
    shutil.copy(DATA / "minilm.onnx", folder / "model.onnx")
    (root / model / file).write_text(config)


def tokens(length, rows=1):
    return np.random.default_rng(length).integers(
        1, 60, (rows, length), dtype=np.int64)


def infer(module, server, ids, mask=None, model="minilm"):
    port = server.http_port if module is triton_http else server.grpc_port
    inputs = [module.InferInput("input_ids", list(ids.shape), "INT64")]
    inputs[0].set_data_from_numpy(ids)
    if mask is not None:
        inputs.append(module.InferInput("attention_mask", list(mask.shape),
                                        "INT64"))
        inputs[1].set_data_from_numpy(mask)
    with module.InferenceServerClient(f"127.0.0.1:{port}") as client:
        answer = client.infer(model, inputs,
                              parameters={"batch_statistics": True})
    response = answer.get_response()
    if isinstance(response, dict):
        names = [each["name"] for each in response["outputs"]]
        requests = response["parameters"]["batch_requests"]
    else:
        names = [each.name for each in response.outputs]
        requests = response.parameters["batch_requests"].int64_param
    return {name: answer.as_numpy(name) for name in names}, requests


def together(module, server, all_ids):
    with concurrent.futures.ThreadPoolExecutor(len(all_ids)) as pool:
        return list(pool.map(lambda ids: infer(module, server, ids), all_ids))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """By length: what the model computes for one request, with its mask."""
    root = tmp_path_factory.mktemp("alone")
    put(root, "max_batch_size: 4\n")
    with start("--model-repository", root) as server:
        with pytest.raises(InferenceServerException,
                           match="'attention_mask' is missing"):
            infer(triton_http, server, tokens(5))
        return {length: infer(triton_http, server, tokens(length),
                              np.ones((1, length), np.int64))[0]
                for length in LENGTHS}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("ragged")
    put(root, "max_batch_size: 3\nmax_queue_delay: 20s\n" + RAGGED)
    with start("--model-repository", root) as running:
        yield running


@pytest.mark.parametrize("module", [triton_http, triton_grpc],
                         ids=["http", "grpc"])
def test_requests_of_different_lengths_share_a_batch(module, server, alone):
    answers = together(module, server, [tokens(n) for n in LENGTHS])
    for length, (values, requests) in zip(LENGTHS, answers):
        assert requests == 3
        for name, value in values.items():
            assert value.shape == alone[length][name].shape
            assert value.tobytes() == alone[length][name].tobytes(), name


def test_what_comes_out_is_what_pytorch_computes_of_the_padded_batch(server):
    case = np.load(DATA / "minilm.b3.npz")
    lengths = case["in1"].sum(axis=1)
    assert len(set(lengths)) > 1
    answers = together(triton_http, server, [
        ids[None, :length] for ids, length in zip(case["in0"], lengths)])
    for row, (values, requests) in enumerate(answers):
        assert requests == 3
        hidden, pooled = values.values()
        np.testing.assert_allclose(
            hidden[0], case["out0"][row, :lengths[row]], atol=2e-5)
        np.testing.assert_allclose(pooled[0], case["out1"][row], atol=2e-5)


def test_a_mask_of_the_client_is_kept(server, alone):
    """Its zeros are padding of the client's own, beside that of the server."""
    short, long = LENGTHS[2], LENGTHS[0]
    ids = np.concatenate([tokens(short), np.full((1, 2), 9)], axis=1)
    mask = np.concatenate([np.ones((1, short), np.int64),
                           np.zeros((1, 2), np.int64)], axis=1)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        masked = pool.submit(infer, triton_http, server, ids, mask)
        others = [pool.submit(infer, triton_http, server, tokens(long))
                  for _ in range(2)]
        values, requests = masked.result()
        assert requests == 3
        assert {each.result()[1] for each in others} == {3}
    for name, value in values.items():
        wanted = alone[short][name]
        cut = value[:, :short] if value.shape != wanted.shape else value
        assert cut.tobytes() == wanted.tobytes(), name


def test_the_metadata_tells_what_is_padded(server):
    config = json.loads(server.get("/v2/models/minilm/config"))
    assert config["parameters"]["ragged_inputs"] == {
        "string_value": "input_ids=0,attention_mask=mask"}


@pytest.mark.parametrize("config, file, told", [
    ("ragged_inputs: {size: 1}", "config.yaml", "'size', which is no input"),
    ("ragged_inputs: {input_ids: much}", "config.yaml",
     "pads 'input_ids' with 'much'"),
    ("ragged_inputs: {input_ids: 0.5, attention_mask: mask}", "config.yaml",
     "pads 'input_ids' with 0.5, which its type INT64 cannot hold"),
    ("ragged_inputs: {input_ids: 0}", "config.yaml",
     "leaves out 'attention_mask'"),
    ("ragged_inputs: {input_ids: 0, input_ids: 1}", "config.yaml",
     "'input_ids' twice"),
    ("ragged_inputs: input_ids", "config.yaml", "needs lines such as"),
    ("max_batch_size: 1\n" + RAGGED, "config.yaml", "max_batch_size is 1"),
    ('parameters { key: "ragged_inputs" value { string_value: "input_ids" } }',
     "config.pbtxt", "has 'input_ids' but needs names with"),
    ('input [ { name: "input_ids" allow_ragged_batch: true } ]',
     "config.pbtxt", "'allow_ragged_batch' is not supported"),
])
def test_what_cannot_be_padded_is_refused_by_name(tmp_path, config, file, told):
    put(tmp_path, "max_batch_size: 4\n", model="fine")
    put(tmp_path, config, file)
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit", "--load-model", "fine") as server:
        with triton_http.InferenceServerClient(
                f"127.0.0.1:{server.http_port}") as client:
            with pytest.raises(InferenceServerException) as refused:
                client.load_model("minilm")
            assert told in str(refused.value)
            assert client.is_model_ready("fine")


def test_a_parameter_of_config_pbtxt_says_the_same(tmp_path, alone):
    put(tmp_path, 'max_batch_size: 3\nparameters { key: "ragged_inputs" value '
        '{ string_value: "input_ids=0,attention_mask=mask" } }\n'
        "dynamic_batching { max_queue_delay_microseconds: 20000000 }\n",
        "config.pbtxt")
    with start("--model-repository", tmp_path) as server:
        answers = together(triton_grpc, server, [tokens(n) for n in LENGTHS])
    for length, (values, requests) in zip(LENGTHS, answers):
        assert requests == 3
        for name, value in values.items():
            assert value.tobytes() == alone[length][name].tobytes(), name
