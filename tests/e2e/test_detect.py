"""Task detect: boxes of pictures over every wire, beside torchvision's batched_nms
behind PIL (tests/data/image/make_detector.py). The graphs make boxes of pixels."""
import base64
import json
import shutil
import zipfile

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import Server, start
from pictures import DATA, photo, post, refused

CASES = json.loads((DATA / "detector.json").read_text())
PICTURES = ["photo.jpg", "turned.png"]


def options(case):
    lines = ["labels: names.txt"]
    if case.get("letterbox"):
        lines.append("resize: letterbox")
    for key, option in (("score", "score_threshold"), ("iou", "iou_threshold"),
                        ("most", "max_detections")):
        if key in case:
            lines.append(f"{option}: {case[key]}")
    if case.get("agnostic"):
        lines.append("class_agnostic: true")
    if case["graph"] != "boxes.onnx":
        lines.append("output_format: yolo")
    return "{" + ", ".join(lines) + "}"


def put(root, name, graph, text, names="cat\nscore\ndog\nbird\n"):
    folder = root / name
    (folder / "1").mkdir(parents=True)
    shutil.copy(DATA / graph, folder / "1" / "model.onnx")
    (folder / "names.txt").write_text(names)
    (folder / "config.yaml").write_text(
        f"task: detect\ntask_options: {text}\n")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    for name, case in CASES.items():
        put(root, name, case["graph"], options(case),
            "cat\nscore\ndog\nbird\n" if name == "boxes" else "cat\nscore\n")
    put(root, "relative", "boxes.onnx", "{box_unit: relative, resize: "
        "[letterbox, 16, 16], score_threshold: 0.5, labels: names.txt}")
    with start("--model-repository", root) as running:
        yield running


def agrees(got, wanted):
    assert [list(box) for box in got] == [list(box) for box in wanted]
    for mine, theirs in zip(got, wanted):
        for key, value in theirs.items():
            assert mine[key] == pytest.approx(value, abs=2e-4), key


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("name", CASES)
def test_boxes_are_those_of_torchvision(server, name, picture):
    wanted = CASES[name]["answers"][picture]
    assert len(wanted) > 5
    agrees(post(server, f"/v1/tasks/{name}", photo(picture)), wanted)


def test_boxes_that_are_parts_of_the_input(server):
    """The graph's numbers are 0 to 20: parts of a picture 16 times as large,
    cut at its edges."""
    got = post(server, "/v1/tasks/relative", photo("turned.png"))
    wanted = CASES["boxes"]["answers"]["turned.png"]
    assert [box["score"] for box in got] == [box["score"] for box in wanted]
    for box in got:
        corners = next(v for k, v in box.items() if k != "score")
        assert all(0 <= x <= 17 for x in corners[::2])
        assert all(0 <= y <= 24 for y in corners[1::2])
        assert 17 in corners or 24 in corners


def test_a_request_has_its_own_thresholds(server):
    wanted = CASES["letterbox"]["answers"]["turned.png"]
    path = "/v1/tasks/letterbox"
    got = post(server, path + "?score_threshold=1", photo("turned.png"))
    assert got == [box for box in wanted if box["score"] >= 1]
    got = post(server, path + "?max_detections=3", photo("turned.png"))
    agrees(got, wanted[:3])
    body = json.dumps({
        "inputs": [base64.b64encode(photo("turned.png")).decode()] * 2,
        "parameters": {"score_threshold": 0.5, "iou_threshold": 0.45}}).encode()
    for one in post(server, path, body, "application/json"):
        agrees(one, [box for box in wanted if box["score"] >= 0.5])
    body = body.replace(b"0.45", b"1.0")  # nothing is hidden
    many = post(server, path, body, "application/json")[0]
    assert len(many) > sum(box["score"] >= 0.5 for box in wanted)


@pytest.mark.parametrize("query, said", [
    ("score_threshold=2", "score_threshold is 2"),
    ("iou_threshold=x", "iou_threshold must be"),
    ("max_detections=0", "max_detections is 0 but must be"),
    ("max_detections=301", "max_detections is 301 but must be"),
])
def test_parameters_that_make_no_sense_are_named(server, query, said):
    code, text = refused(server, "/v1/tasks/letterbox?" + query,
                         photo("turned.png"))
    assert code == 400 and said in text


def test_tritonclient(server):
    pictures = np.array([photo(p) for p in PICTURES], np.object_)
    for module, port in ((triton_http, server.http_port),
                         (triton_grpc, server.grpc_port)):
        client = module.InferenceServerClient(f"127.0.0.1:{port}")
        given = module.InferInput("image", [2], "BYTES")
        given.set_data_from_numpy(pictures)
        rows = client.infer("rows", [given]).as_numpy("output")
        assert rows.shape == (2,)
        for row, picture in zip(rows, PICTURES):
            agrees(json.loads(row), CASES["rows"]["answers"][picture])


def test_torchserves_object_detector(tmp_path):
    """An archive as torch-model-archiver writes it, asked as TorchServe is."""
    with zipfile.ZipFile(tmp_path / "d.mar", "w") as archive:
        archive.write(DATA / "yolo.onnx", "model.onnx")
        archive.writestr("index_to_name.json", '{"0": "cat", "1": "score"}')
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps({
            "runtime": "python", "archiverVersion": "0.12.0", "model": {
                "modelName": "d", "serializedFile": "model.onnx",
                "handler": "object_detector", "modelVersion": "1.0"}}))
    server = Server("--profile", "torchserve", "--disable-token-auth",
                    "--model-store", tmp_path, "--models", "d.mar",
                    "--http-port", "0", "--grpc-port", "0",
                    "--grpc-management-port", "0", "--management-port", "0",
                    "--metrics-port", "0")
    try:
        got = post(server, "/predictions/d", photo("turned.png"))
    finally:
        server.stop()
    wanted = CASES["stretched"]["answers"]["turned.png"]
    agrees(got[:len(wanted)], wanted)
    assert len(got) > len(wanted)


@pytest.mark.parametrize("graph, text, said", [
    ("classifier.onnx", "{}", "task 'detect' needs FP32 [1, 4 + classes, "),
    ("yolo.onnx", "{output_format: boxes}",
     "needs boxes FP32 [n, 4], scores FP32 [n] and labels INT64 [n]"),
    ("boxes.onnx", "{output_format: yolo}", "the graph has the outputs "
                                            "'labels' INT64 [128], 'boxes'"),
    ("yolo.onnx", "{labels: names.txt}",
     "has no dimension of 4 + 4, for there are so many labels"),
    ("yolo.onnx", "{score_threshold: 1.5}", "score_threshold is '1.5' but"),
    ("yolo.onnx", "{iou: x}", "iou_threshold is 'x' but must be a number"),
    ("yolo.onnx", "{max_detections: 0}", "max_detections is '0' but"),
    ("yolo.onnx", "{output_format: ssd}", "auto, yolo, boxes"),
    ("yolo.onnx", "{iou_treshold: 0.5}",
     "unknown option of task detect 'iou_treshold'; did you mean "
     "'iou_threshold'?"),
    ("yolo.onnx", "{scaled_decoding: true}", "unknown option"),
    ("yolo.onnx", "{resize: [letterbox, 8, 8]}",
     "resize makes pictures of 8 x 8 (height x width) but the graph takes"),
    ("yolo.onnx", "{resize: letterbox, center_crop: 16}",
     "center_crop cuts off what a letterbox keeps"),
    ("yolo.onnx", "{resize: [letterbox, 0]}", "resize has '0'"),
    ("yolo.onnx", "{resize: letterbx}", "resize has 'letterbx'"),
])
def test_what_does_not_fit_is_said_at_load(tmp_path, graph, text, said):
    put(tmp_path, "d", graph, text)
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit") as server:
        client = triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}")
        with pytest.raises(InferenceServerException) as caught:
            client.load_model("d")
        assert said in str(caught.value)
