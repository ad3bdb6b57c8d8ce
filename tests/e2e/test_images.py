"""Pictures to classes: a model whose config.yaml declares the task, asked over
every wire. What onnxruntime says behind PIL stands in classifier.json."""
import base64
import concurrent.futures
import json

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import start
from pictures import DATA, photo, post, put_classifier, refused

WANTED = json.loads((DATA / "classifier.json").read_text())
NAMES = ["cat", "Chihuahua", "crane", "crane (3)", "4"]
CONFIG = """
task: classify
task_options:
  labels: index_to_name.json
  resize: 10
  center_crop: 8
  mean: [0.485, 0.456, 0.406]
  std: [0.229, 0.224, 0.225]
  top_k: 3
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    put_classifier(root, "animals", CONFIG)
    put_classifier(root, "logits", "task: classify\ntask_options: {top_k: 0, "
                        "activation: none, resize: 10, "
                        "mean: [0.485, 0.456, 0.406], "
                        "std: [0.229, 0.224, 0.225]}")
    put_classifier(root, "plain", "max_batch_size: 4")
    put_classifier(root, "small", CONFIG + "  max_pixels: 1000\n")
    with start("--model-repository", root) as running:
        yield running


def expected(name, count=3):
    """The best classes, with the names that index_to_name.json gives them: the
    second crane has its number only behind the first."""
    scores = WANTED[name]["softmax"]
    best = sorted(range(len(scores)), key=lambda i: -scores[i])[:count]
    answer = {}
    for i in best:
        label = "crane" if i in (2, 3) else NAMES[i]
        answer[f"{label} ({i})" if label in answer else label] = scores[i]
    return answer


def agrees(answer, name, count=3):
    wanted = expected(name, count)
    assert list(answer) == list(wanted)
    np.testing.assert_allclose(list(answer.values()), list(wanted.values()),
                               rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", WANTED)
@pytest.mark.parametrize("content_type", [
    "image/jpeg", "application/octet-stream",
    "application/x-www-form-urlencoded"])
def test_a_picture_as_the_body(server, name, content_type):
    agrees(post(server, "/v1/tasks/animals", photo(name), content_type), name)


def test_several_pictures_as_json(server):
    names = list(WANTED) * 3
    items = [base64.b64encode(photo(name)).decode() for name in names]
    items[1] = {"b64": items[1]}
    items[2] = "data:image/jpeg;base64," + items[2]
    for key in ("inputs", "instances"):
        body = json.dumps({key: items, "parameters": {"top_k": 5}}).encode()
        answers = post(server, "/v1/tasks/animals", body, "application/json")
        assert len(answers) == len(names)
        for answer, name in zip(answers, names):
            agrees(answer, name, 5)


def test_top_k_of_one_request(server):
    answer = post(server, "/v1/tasks/animals?top_k=1", photo("photo.jpg"))
    agrees(answer, "photo.jpg", 1)
    code, text = refused(server, "/v1/tasks/animals?top_k=-2",
                         photo("photo.jpg"))
    assert code == 400 and "top_k" in text


def test_options_may_be_left_out(server):
    """The crop is the graph's size; scores are as the graph gives them."""
    answer = post(server, "/v1/tasks/logits", photo("photo.jpg"))
    wanted = WANTED["photo.jpg"]["logits"]
    assert list(answer) == [str(i) for i in np.argsort(wanted)[::-1]]
    np.testing.assert_allclose(list(answer.values()), sorted(wanted)[::-1],
                               rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient_over_rest(server, binary):
    client = triton_http.InferenceServerClient(f"127.0.0.1:{server.http_port}")
    image = triton_http.InferInput("image", [2], "BYTES")
    pictures = [photo("photo.jpg"), photo("turned.png")]
    if not binary:
        pictures = [base64.b64encode(each) for each in pictures]
    image.set_data_from_numpy(np.array(pictures, np.object_),
                              binary_data=binary)
    wanted = [triton_http.InferRequestedOutput("output", binary_data=binary)]
    for outputs in (wanted, None):
        answer = client.infer("animals", [image], outputs=outputs,
                              request_id="7")
        assert answer.get_response()["id"] == "7"
        texts = answer.as_numpy("output")
        assert texts.shape == (2,)
        agrees(json.loads(texts[0]), "photo.jpg")
        agrees(json.loads(texts[1]), "turned.png")
    with pytest.raises(InferenceServerException, match="gives 'output'"):
        client.infer("animals", [image],
                     outputs=[triton_http.InferRequestedOutput("scores")])


def test_a_picture_as_the_body_of_infer(server):
    answer = post(server, "/v2/models/animals/infer", photo("photo.jpg"),
                  "image/jpeg")
    assert answer["outputs"][0]["shape"] == [1]
    agrees(json.loads(answer["outputs"][0]["data"][0]), "photo.jpg")


def test_tritonclient_over_grpc(server):
    client = triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    image = triton_grpc.InferInput("image", [2, 1], "BYTES")
    image.set_data_from_numpy(np.array(
        [[photo("photo.jpg")], [photo("turned.png")]], np.object_))
    answer = client.infer("animals", [image], parameters={"top_k": 2})
    texts = answer.as_numpy("output")
    assert texts.shape == (2,)
    agrees(json.loads(texts[0]), "photo.jpg", 2)
    agrees(json.loads(texts[1]), "turned.png", 2)
    image = triton_grpc.InferInput("image", [1], "BYTES")
    image.set_data_from_numpy(np.array([b"no picture"], np.object_))
    with pytest.raises(InferenceServerException, match="no JPEG, PNG or WebP"):
        client.infer("animals", [image])


def test_tensors_are_taken_as_before(server):
    client = triton_http.InferenceServerClient(f"127.0.0.1:{server.http_port}")
    pixels = triton_http.InferInput("pixels", [2, 3, 8, 8], "FP32")
    pixels.set_data_from_numpy(np.zeros((2, 3, 8, 8), np.float32))
    for model in ("animals", "plain"):
        logits = client.infer(model, [pixels]).as_numpy("logits")
        assert logits.shape == (2, 5)
    metadata = client.get_model_metadata("animals")
    assert metadata["parameters"]["task"] == "classify"


@pytest.mark.parametrize("body, said", [
    (b"", "has no bytes"),
    (b"GIF89a", "is a GIF"),
    (b"no picture at all", "no JPEG, PNG or WebP"),
    (photo("photo.jpg")[:900], "JPEG cannot be read"),
    (photo("turned.png")[:300], "PNG cannot be read"),
])
def test_what_is_no_picture_is_refused(server, body, said):
    for path in ("/v1/tasks/animals", "/v2/models/animals/infer"):
        code, text = refused(server, path, body, "image/jpeg")
        assert code in (400, 501) and said in text
    agrees(post(server, "/v1/tasks/animals", photo("photo.jpg")), "photo.jpg")


def test_one_bad_picture_among_good_ones(server):
    items = [base64.b64encode(photo("photo.jpg")).decode()] * 4
    items[2] = "bm8gcGljdHVyZQ=="
    body = json.dumps({"inputs": items}).encode()
    code, text = refused(server, "/v1/tasks/animals", body, "application/json")
    assert code == 400 and "picture 2" in text
    body = json.dumps({"inputs": items[:1] * 65}).encode()
    code, text = refused(server, "/v1/tasks/animals", body, "application/json")
    assert code == 400 and "65 pictures but 1 to 64" in text


@pytest.mark.parametrize("body, said", [
    ({}, "inputs is missing"), ({"inputs": [3]}, "inputs[0]"),
    ({"inputs": [{"b64": "###"}]}, "inputs[0] must be"),
    ({"inputs": []}, "0 pictures"),
    ({"inputs": ["x"], "parameters": []}, "parameters"),
])
def test_json_that_makes_no_sense_is_refused(server, body, said):
    code, text = refused(server, "/v1/tasks/animals",
                         json.dumps(body).encode(), "application/json")
    assert code == 400 and said in text


def test_limits_and_other_models(server):
    code, text = refused(server, "/v1/tasks/small", photo("photo.jpg"))
    assert code == 400
    assert "64 x 48 pixels but at most 1000" in text
    code, text = refused(server, "/v1/tasks/plain", photo("photo.jpg"))
    assert code == 400 and "has no task" in text
    code, text = refused(server, "/v1/tasks/none", photo("photo.jpg"))
    assert code == 404
    code, text = refused(server, "/v1/tasks/animals", b"--x", "multipart/form-"
                         "data; boundary=x")
    assert code == 400 and "a form is not read" in text


def test_many_clients_at_once(server):
    names = list(WANTED) * 16

    def ask(name):
        return post(server, "/v1/tasks/animals", photo(name))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for name, answer in zip(names, pool.map(ask, names)):
            agrees(answer, name)


@pytest.mark.parametrize("config, said", [
    ("task: detect", "task 'detect' needs"),
    ("task: classify\ntask_options: {labels: none.txt}",
     "labels is 'none.txt', but neither"),
    ("task: classify\ntask_options: {labels: ../x.txt}", "name of a file"),
    ("task: classify\ntask_options: {center_crop: 9}",
     "makes pictures of 9 x 9 (height x width) but the graph takes 8 x 8"),
    ("task: classify\ntask_options: {color: gray}", "channels"),
    ("task: classify\ntask_options: {mean: [1, 2]}",
     "mean has 2 numbers but needs 1 or 3"),
    ("task: classify\ntask_options: {std: 0}", "numbers other than 0"),
    ("task: classify\ntask_options: {rescale_factor: 1/0}", "fraction"),
    ("task: classify\ntask_options: {resize: [1, 2, 3]}", "one or two"),
])
def test_what_does_not_fit_is_said_at_load(tmp_path, config, said):
    put_classifier(tmp_path, "animals", config)
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit") as server:
        client = triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}")
        with pytest.raises(InferenceServerException) as caught:
            client.load_model("animals")
        assert said in str(caught.value)
