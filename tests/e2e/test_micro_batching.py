"""micro_batching in config.yaml: the same answers as without, byte by byte, over
REST and gRPC; bounded; refused where it makes no sense."""
import base64
import concurrent.futures
import json
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc

from conftest import start
from pictures import DATA, put_classifier

NAMES = ["photo.jpg", "turned.png"]
TASK = """
task: classify
task_options:
  labels: index_to_name.json
  resize: 10
  center_crop: 8
  mean: [0.485, 0.456, 0.406]
  std: [0.229, 0.224, 0.225]
  top_k: 5
"""
MICRO = """
micro_batching:
  micro_batch_size: %d
  parallelism: {preprocess: %d, inference: %d, postprocess: %d}
"""
FORMS = {"one": (1, 1, 1, 1), "three": (3, 2, 2, 1), "all": (64, 2, 1, 2)}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    put_classifier(root, "plain", TASK)
    for name, form in FORMS.items():
        put_classifier(root, name, TASK + MICRO % form)
    put_classifier(root, "narrow",
                   TASK + MICRO % (1, 1, 1, 1) + "max_queue_size: 2\n")
    with start("--model-repository", root) as running:
        yield running


def pictures(count):
    return [(DATA / NAMES[i % 2]).read_bytes() for i in range(count)]


def ask(server, model, items):
    body = json.dumps({"inputs": [base64.b64encode(each).decode()
                                  for each in items]}).encode()
    request = urllib.request.Request(f"{server.url}/v1/tasks/{model}", body,
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


@pytest.mark.parametrize("model", FORMS)
def test_answers_are_those_without(server, model):
    for count in (1, 2, 7, 64):
        items = pictures(count)
        assert ask(server, model, items) == ask(server, "plain", items)


def test_concurrent_requests(server):
    items = [pictures(count) for count in (1, 5, 8, 3, 2, 9, 4, 6)] * 4
    wanted = [ask(server, "plain", each) for each in items]
    before = server.metric("millrace_micro_batches_total")['{model="three"}']
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda each: ask(server, "three", each), items))
    assert answers == wanted
    after = server.metric("millrace_micro_batches_total")['{model="three"}']
    assert after - before == sum(-(-len(each) // 3) for each in items)


def test_tritonclient_over_grpc(server):
    client = triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    image = triton_grpc.InferInput("image", [5], "BYTES")
    image.set_data_from_numpy(np.array(pictures(5), np.object_))
    texts = [client.infer(model, [image]).as_numpy("output").tolist()
             for model in ("plain", "three")]
    assert len(texts[0]) == 5 and texts[0] == texts[1]
    config = client.get_model_config("three", as_json=True)["config"]
    assert (config["parameters"]["micro_batching"]["string_value"]
            == "size 3, preprocess 2, inference 2, postprocess 1")


def test_one_bad_picture_names_itself_and_harms_no_other(server):
    items = pictures(8)
    wanted = ask(server, "three", items)
    bad = items[:4] + [b"no picture"] + items[5:]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        good = [pool.submit(ask, server, "three", items) for _ in range(8)]
        for _ in range(8):
            with pytest.raises(urllib.error.HTTPError) as caught:
                ask(server, "three", bad)
            assert caught.value.code == 400
            assert "picture 4: the picture is no JPEG" in (
                caught.value.read().decode())
        assert all(each.result() == wanted for each in good)


def test_a_full_queue_refuses(server):
    def code(_):
        try:
            ask(server, "narrow", pictures(64))
            return 200
        except urllib.error.HTTPError as error:
            assert "Retry-After" in error.headers
            return error.code
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        codes = list(pool.map(code, range(64)))
    assert set(codes) == {200, 429}
    assert ask(server, "narrow", pictures(2)) == ask(server, "plain",
                                                     pictures(2))


def test_what_makes_no_sense_is_refused_at_load(tmp_path):
    put_classifier(tmp_path, "zero", TASK + MICRO % (0, 1, 1, 1))
    put_classifier(tmp_path, "wide", TASK + MICRO % (1, 65, 1, 1))
    put_classifier(tmp_path, "untasked", MICRO % (1, 1, 1, 1))
    put_classifier(tmp_path, "typo", TASK + "micro_batching: {size: 4}\n")
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit") as server:
        def refusal(name):
            request = urllib.request.Request(
                f"{server.url}/v2/repository/models/{name}/load", b"{}")
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=60)
            assert caught.value.code == 400
            return caught.value.read().decode()
        assert "micro_batch_size is '0'" in refusal("zero")
        assert "preprocess is '65'" in refusal("wide")
        assert "without a task" in refusal("untasked")
        assert "unknown key 'size'" in refusal("typo")
