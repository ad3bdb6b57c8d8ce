"""Ranking models of the DLRM class: jagged features as offsets or lengths over
REST and gRPC, joined to batches, with tables in FP32, FP16 and bytes."""
import concurrent.futures
import json
import subprocess
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import BINARY, REPO, start

DATA = REPO / "tests" / "data" / "ranking"
NAMES = ("dense", "ads", "ads_offsets", "tags", "tags_offsets", "words",
         "words_offsets", "ads_weights")
CLIENTS = pytest.mark.parametrize("module", [triton_http, triton_grpc],
                                  ids=["http", "grpc"])
# Sums of up to ten products and three small layers in f32; of half-precision
# tables PyTorch rounds each sum to 11 bits.
TOLERANCE = {"dlrm": 1e-5, "end": 1e-5, "byte": 1e-5, "half": 2e-3}


def requests(model):
    """What PyTorch was given and gave: inputs by name, and the output."""
    arrays = np.load(DATA / f"{model}.npz")
    count = sum(name.endswith("_out0") for name in arrays.files)
    return [({name: arrays[f"r{k}_in{i}"] for i, name in enumerate(NAMES)
              if f"r{k}_in{i}" in arrays.files}, arrays[f"r{k}_out0"])
            for k in range(count)]


def as_lengths(inputs, end):
    """The same with lengths instead of offsets."""
    changed = {}
    for name, value in inputs.items():
        if not name.endswith("_offsets"):
            changed[name] = value
            continue
        ends = value if end else np.append(value, len(inputs[name[:-8]]))
        changed[name.replace("offsets", "lengths")] = np.diff(ends)
    return changed


def infer(module, server, model, inputs):
    port = server.http_port if module is triton_http else server.grpc_port
    sent = []
    for name, value in inputs.items():
        kind = {"f": "FP32", "i": "INT64"}[value.dtype.kind]
        if value.dtype == np.int32:
            kind = "INT32"
        sent.append(module.InferInput(name, list(value.shape), kind))
        sent[-1].set_data_from_numpy(value)
    with module.InferenceServerClient(f"127.0.0.1:{port}") as client:
        answer = client.infer(model, sent,
                              parameters={"batch_statistics": True})
    response = answer.get_response()
    if isinstance(response, dict):
        told = response["parameters"]["batch_requests"]
        name = response["outputs"][0]["name"]
    else:
        told = response.parameters["batch_requests"].int64_param
        name = response.outputs[0].name
    return answer.as_numpy(name), told


def put(root, model, config="", name=None):
    folder = root / (name or model) / "1"
    folder.mkdir(parents=True)
    (folder / "model.pt2").write_bytes((DATA / f"{model}.pt2").read_bytes())
    (root / (name or model) / "config.yaml").write_text(config)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("ranking")
    for model in TOLERANCE:
        put(root, model, "max_batch_size: 64\n")
        put(root, model, "max_batch_size: 9\nmax_queue_delay: 20s\n",
            model + "_joined")
    for model in MODES:
        put(root, model, "max_batch_size: 64\n")
        put(root, model, "max_batch_size: 10\nmax_queue_delay: 20s\n",
            model + "_joined")
    put(root, "fixed", "max_batch_size: 8\n")
    put(root, "modes_fixed", "max_batch_size: 8\n")
    with start("--model-repository", root) as running:
        yield running


@CLIENTS
@pytest.mark.parametrize("model", TOLERANCE)
def test_ragged_requests_get_what_pytorch_computes(module, server, model):
    for inputs, wanted in requests(model):
        got, _ = infer(module, server, model, inputs)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE[model])


@CLIENTS
@pytest.mark.parametrize("model", ["dlrm", "end"])
def test_lengths_stand_for_offsets(module, server, model):
    for kind in (np.int64, np.int32):
        for inputs, _ in requests(model):
            by_offsets, _ = infer(module, server, model, inputs)
            lengths = as_lengths(inputs, model == "end")
            for name in lengths:
                if name.endswith("_lengths"):
                    lengths[name] = lengths[name].astype(kind)
            by_lengths, _ = infer(module, server, model, lengths)
            assert by_lengths.tobytes() == by_offsets.tobytes()


@CLIENTS
@pytest.mark.parametrize("model", TOLERANCE)
def test_a_batch_joins_ragged_requests_bit_for_bit(module, server, model):
    """9 rows of 4 requests, which is the size at which the batch is full."""
    cases = requests(model)
    assert sum(len(each["dense"]) for each, _ in cases[:3]) + 3 == 9
    cases = cases[:3] + [({k: v for k, v in cases[0][0].items()}, None)]
    alone = [infer(module, server, model, inputs)[0] for inputs, _ in cases]
    with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
        joined = list(pool.map(
            lambda case: infer(module, server, model + "_joined", case[0]),
            cases))
    for mine, (got, count) in zip(alone, joined):
        assert count == 4
        assert got.tobytes() == mine.tobytes()


# One feature and nothing beside it, pooled in every mode with every padding.
MODES = {"modes": 1e-5, "modes_end": 1e-5, "modes_half": 1e-2,
         "modes_bf16": 8e-2}


def requests_of_modes(model):
    arrays = np.load(DATA / f"{model}.npz")
    names = ("ads", "offsets", "weights")
    return [({name: arrays[f"r{k}_in{i}"] for i, name in enumerate(names)},
             arrays[f"r{k}_out0"]) for k in range(4)]


@CLIENTS
@pytest.mark.parametrize("model", MODES)
def test_every_mode_pools_as_pytorch_does(module, server, model):
    for inputs, wanted in requests_of_modes(model):
        got, _ = infer(module, server, model, inputs)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=MODES[model])
        # With lengths, whose name follows from that of the offsets.
        count = len(inputs["ads"])
        ends = inputs["offsets"] if model == "modes_end" else np.append(
            inputs["offsets"], count)
        lengths = {"ads": inputs["ads"], "lengths": np.diff(ends),
                   "weights": inputs["weights"]}
        same, _ = infer(module, server, model, lengths)
        assert same.tobytes() == got.tobytes()


@pytest.mark.parametrize("model", MODES)
def test_modes_are_joined_bit_for_bit(server, model):
    cases = [inputs for inputs, _ in requests_of_modes(model)]
    alone = [infer(triton_http, server, model, each)[0] for each in cases]
    with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
        joined = list(pool.map(lambda each: infer(
            triton_http, server, model + "_joined", each), cases))
    for mine, (got, count) in zip(alone, joined):
        assert count == 4
        assert got.tobytes() == mine.tobytes()


def test_bags_of_one_size_in_every_mode(server):
    arrays = np.load(DATA / "modes_fixed.npz")
    for k in range(4):
        got, _ = infer(triton_http, server, "modes_fixed", {
            "ads": arrays[f"r{k}_in0"], "weights": arrays[f"r{k}_in1"]})
        np.testing.assert_allclose(got, arrays[f"r{k}_out0"], rtol=0, atol=1e-5)


@CLIENTS
@pytest.mark.parametrize("model, changes, told", [
    ("modes", {"offsets": [0, -1, 2]}, "'offsets' has -1 at place 1"),
    ("modes", {"offsets": [0, 2, 1]}, "'offsets' has 1 at place 2"),
    ("modes", {"offsets": [0, 2, 6]}, "'offsets' has 6 at place 2"),
    ("modes", {"offsets": [1, 2, 2]}, "'offsets' has 1 at place 0"),
    ("modes", {"offsets": [-2**63, 2, 2]}, "'offsets' has -92233720368547758"),
    ("modes", {"ads": [0, 1, 2, 3, 2**62]}, "'ads' has the index 4611686018427"),
    ("modes", {"weights": [1., 2.]}, "weights"),
    ("modes_end", {"offsets": [0, 2, 2, 4]},
     "'offsets' has 4 at place 3; offsets begin with 0, do not fall, and end at "
     "5"),
    ("modes_end", {"offsets": [0, 2, 2, 6]}, "'offsets' has 6 at place 3"),
    ("modes_end", {"offsets": [5]}, "'offsets' has 5 at place 0"),
    ("modes_end", {"offsets": []}, "'offsets' has 0 offsets"),
    ("modes_end", {"ads": [0, 1, 20, 3, 4]}, "'ads' has the index 20 at place 2"),
    ("modes_end", {"ads": [0, -3, 2, 3, 4]}, "'ads' has the index -3 at place 1"),
])
def test_what_no_bag_can_be_is_named(module, server, model, changes, told):
    good = requests_of_modes(model)[0][0]
    assert len(good["ads"]) == 5
    wrong = {name: np.array(changes.get(name, value), value.dtype)
             for name, value in good.items()}
    with pytest.raises(InferenceServerException) as refused:
        infer(module, server, model, wrong)
    assert told in str(refused.value)


FEATURES = ("ads", "tags", "words")


def as_keyed(inputs, end, kind=np.int64):
    """All features in three tensors, as a KeyedJaggedTensor has them."""
    lengths = as_lengths(inputs, end)
    values = [inputs[name] for name in FEATURES]
    weights = [inputs.get(f"{name}_weights",
                          np.ones(len(inputs[name]), np.float32))
               for name in FEATURES]
    return {"dense": inputs["dense"],
            "keyed_values": np.concatenate(values),
            "keyed_lengths": np.concatenate(
                [lengths[f"{name}_lengths"] for name in FEATURES]).astype(kind),
            "keyed_weights": np.concatenate(weights)}


@CLIENTS
@pytest.mark.parametrize("model", ["dlrm", "end"])
def test_all_features_may_come_together(module, server, model):
    for kind in (np.int64, np.int32):
        for inputs, _ in requests(model):
            alone, _ = infer(module, server, model, inputs)
            together, _ = infer(module, server, model,
                                as_keyed(inputs, model == "end", kind))
            assert together.tobytes() == alone.tobytes()
    two = requests(model)[0][0]
    square = as_keyed(two, model == "end")
    square["keyed_lengths"] = square["keyed_lengths"].reshape(3, -1)
    got, _ = infer(module, server, model, square)
    assert got.tobytes() == infer(module, server, model, two)[0].tobytes()


def test_features_together_are_given_once(server):
    body = {"inputs": [
        {"name": name, "shape": [2], "datatype": "INT64", "data": [1, 1]}
        for name in ("keyed_values", "keyed_values", "keyed_lengths")]}
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(
            server.url + "/v2/models/dlrm/infer", json.dumps(body).encode(),
            {"Content-Type": "application/json"}), timeout=60)
    assert refused.value.code == 400
    assert "twice" in refused.value.read().decode()


def test_features_together_share_a_batch(server):
    cases = [inputs for inputs, _ in requests("dlrm")[:3]]
    cases.append(dict(cases[0]))
    alone = [infer(triton_http, server, "dlrm", each)[0] for each in cases]
    sent = [as_keyed(each, False) for each in cases[:2]] + cases[2:]
    with concurrent.futures.ThreadPoolExecutor(len(sent)) as pool:
        joined = list(pool.map(lambda each: infer(
            triton_http, server, "dlrm_joined", each), sent))
    for mine, (got, count) in zip(alone, joined):
        assert count == 4
        assert got.tobytes() == mine.tobytes()


def test_bags_of_one_size_are_rows_of_a_batch(server):
    arrays = np.load(DATA / "fixed.npz")
    got, _ = infer(triton_http, server, "fixed", {"ads": arrays["r0_in0"]})
    np.testing.assert_allclose(got, arrays["r0_out0"], rtol=0, atol=1e-5)


def changed(**values):
    inputs = dict(requests("dlrm")[0][0])
    inputs.update(values)
    return inputs


ADS = requests("dlrm")[0][0]["ads"]


KEYED = as_keyed(requests("dlrm")[0][0], False)


@CLIENTS
@pytest.mark.parametrize("inputs, told", [
    ({**KEYED, "ads": ADS}, "'ads' is given beside keyed_values"),
    ({k: v for k, v in KEYED.items() if k != "keyed_lengths"},
     "'keyed_lengths' is missing"),
    ({k: v for k, v in KEYED.items() if k != "keyed_values"},
     "'keyed_values' is missing"),
    ({k: v for k, v in KEYED.items() if k != "keyed_weights"},
     "'keyed_weights' is missing: the feature 'ads' has weights"),
    ({**KEYED, "keyed_lengths": KEYED["keyed_lengths"][:-1]},
     "one length for each row of each of 3 features"),
    ({**KEYED, "keyed_lengths": KEYED["keyed_lengths"] * 2},
     "'keyed_lengths' has "),
    ({**KEYED, "keyed_values": KEYED["keyed_values"] + 100},
     "'ads' has the index"),
    ({**KEYED, "keyed_values": KEYED["keyed_values"].astype(np.float32)},
     "'keyed_values' is FP32"),
    (changed(ads=np.array([0, 1, 2, 20, 4])),
     "'ads' has the index 20 at place 3, but its table has 20 rows; send "
     "indices from 0 to 19"),
    (changed(ads=np.array([0, 1, 2, 3, -1])), "'ads' has the index -1 at place 4"),
    (changed(tags_offsets=np.array([0, 5, 1])), "'tags_offsets' has 1 at place 2"),
    (changed(tags_offsets=np.array([1, 1, 5])), "'tags_offsets' has 1 at place 0"),
    (changed(tags_offsets=np.array([0, 1, 6])),
     "'tags_offsets' has 6 at place 2; offsets begin with 0, do not fall, and "
     "end at 5, the number of values in 'tags'"),
    (changed(tags_offsets=np.array([0, 1])), "tags_offsets"),
    ({**{k: v for k, v in changed().items() if k != "ads_offsets"},
      "ads_lengths": np.array([2, 0, 4])},
     "'ads_lengths' has the length 4 at place 2, but 3 of the 5 values of 'ads' "
     "are left there"),
    ({**{k: v for k, v in changed().items() if k != "ads_offsets"},
      "ads_lengths": np.array([2, 0, 2])},
     "'ads_lengths' adds up to 4, but 'ads' has 5 values"),
    ({**changed(), "ads_lengths": np.array([2, 0, 3])}, "given twice"),
    ({k: v for k, v in changed().items() if k != "ads_offsets"},
     "'ads_offsets' is missing"),
    (changed(ads_weights=np.ones(4, np.float32)), "ads_weights"),
    (changed(ads=np.array([0.5], np.float32)), "'ads' is FP32"),
])
def test_what_does_not_fit_is_named(module, server, inputs, told):
    with pytest.raises(InferenceServerException) as refused:
        infer(module, server, "dlrm", inputs)
    assert told in str(refused.value)
    good, wanted = requests("dlrm")[0]
    np.testing.assert_allclose(infer(module, server, "dlrm", good)[0], wanted,
                               rtol=0, atol=1e-5)


def test_the_metadata_tells_features_and_their_lengths(server):
    metadata = json.loads(server.get("/v2/models/dlrm"))
    told = metadata["parameters"]["jagged_features"]
    assert told.startswith("ads: ads_offsets or ads_lengths, tags: ")


@pytest.mark.parametrize("tables, name", [("int8", "int8"), ("f16", "f16")])
def test_quantize_shrinks_tables_and_tells_what_that_costs(tmp_path, tables,
                                                           name):
    put(tmp_path, "dlrm")
    model = tmp_path / "dlrm" / "1" / "model.pt2"
    inputs, wanted = requests("dlrm")[0]
    np.savez(tmp_path / "samples.npz", **inputs)
    done = subprocess.run(
        [BINARY, "quantize", model, "--calibration", tmp_path / "samples.npz",
         "--tables", tables], capture_output=True, text=True, timeout=300,
        check=True)
    assert f"{name}" in done.stdout and "error" in done.stdout
    layers = json.loads(
        model.with_name("model.pt2.quant.json").read_text())["layers"]
    bags = [each for each in layers if each["name"].startswith("embedding_bag")]
    assert len(bags) == 3
    for each in bags:
        assert each["precision"] == tables
        assert 0 < each["error"] < 0.01
    (tmp_path / "dlrm" / "config.yaml").write_text("precision: int8\n")
    with start("--model-repository", tmp_path) as server:
        got, _ = infer(triton_http, server, "dlrm", inputs)
        parameters = json.loads(server.get("/v2/models/dlrm"))["parameters"]
    assert np.abs(got - wanted).max() < 0.02
    assert float(parameters["precision_error"]) < 0.05
