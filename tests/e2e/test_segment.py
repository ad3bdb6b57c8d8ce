"""Task segment: masks of pictures as PNG and as COCO's runs, over every wire, beside
numpy behind PIL (tests/data/image/make_detector.py). PNG and runs are read here
without the server's code."""
import base64
import json
import shutil
import struct
import zipfile
import zlib

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import Server, start
from pictures import DATA, photo, post, refused

WANTED = json.loads((DATA / "segmenter.json").read_text())
PICTURES = ["photo.jpg", "turned.png"]
FORMS = ["stretched", "letterbox"]
NAMES = ["red", "green", "blue", "3"]


def put(root, name, text, graph="segmenter.onnx"):
    folder = root / name
    (folder / "1").mkdir(parents=True)
    shutil.copy(DATA / graph, folder / "1" / "model.onnx")
    (folder / "names.txt").write_text("red\ngreen\nblue\n")
    (folder / "five.txt").write_text("a\nb\nc\nd\ne\n")
    (folder / "config.yaml").write_text(f"task: segment\ntask_options: {text}\n")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    put(root, "stretched", "{labels: names.txt}")
    put(root, "letterbox", "{labels: names.txt, resize: letterbox, mask: rle}")
    with start("--model-repository", root) as running:
        yield running


def png(data):
    """Rows of a grey PNG of 8 bits (RFC 2083)."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        chunk = data[at + 8:at + 8 + size]
        crc, = struct.unpack(">I", data[at + 8 + size:at + 12 + size])
        assert crc == zlib.crc32(kind + chunk)
        if kind == b"IHDR":
            width, height, *form = struct.unpack(">IIBBBBB", chunk)
            assert form == [8, 0, 0, 0, 0]
        if kind == b"IDAT":
            packed += chunk
        at += 12 + size
    raw = np.frombuffer(zlib.decompress(packed), np.uint8)
    rows = []
    above = [0] * width
    for line in raw.reshape(height, width + 1).tolist():
        kind, values = line[0], line[1:]
        for x in range(width):
            a = values[x - 1] if x else 0
            b, c = above[x], above[x - 1] if x else 0
            near = min((abs(b - c), 0, a), (abs(a - c), 1, b),
                       (abs(a + b - 2 * c), 2, c))[2]
            values[x] = (values[x] + [0, a, b, (a + b) // 2, near][kind]) % 256
        rows.append(values)
        above = values
    return np.array(rows)


def runs(one):
    """A mask of one class: COCO's counts, column by column."""
    height, width = one["size"]
    flat = np.repeat(np.arange(len(one["counts"])) % 2, one["counts"])
    assert flat.size == height * width
    return flat.reshape(width, height).T.astype(bool)


def agrees(answer, form, picture):
    wanted = np.array(WANTED[picture][form])
    assert answer["size"] == list(wanted.shape)
    counted = dict(zip(*np.unique(wanted, return_counts=True)))
    assert {(c["class"], c["label"], c["pixels"])
            for c in answer["classes"]} == {
        (i, NAMES[i], n) for i, n in counted.items()}
    if "mask" in answer:
        assert (png(base64.b64decode(answer["mask"])) == wanted).all()
        return
    for one in answer["classes"]:
        assert (runs(one) == (wanted == one["class"])).all()


@pytest.mark.parametrize("mask", ["png", "rle"])
@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("form", FORMS)
def test_masks_are_those_of_numpy(server, form, picture, mask):
    answer = post(server, f"/v1/tasks/{form}?mask={mask}", photo(picture))
    assert ("mask" in answer) == (mask == "png")
    agrees(answer, form, picture)


def test_the_config_chooses_the_mask(server):
    assert "mask" in post(server, "/v1/tasks/stretched", photo("turned.png"))
    assert "mask" not in post(server, "/v1/tasks/letterbox",
                              photo("turned.png"))
    code, text = refused(server, "/v1/tasks/stretched?mask=gif",
                         photo("turned.png"))
    assert code == 400 and "mask is 'gif' but must be png or rle" in text


def test_tritonclient(server):
    pictures = np.array([photo(p) for p in PICTURES], np.object_)
    for module, port in ((triton_http, server.http_port),
                         (triton_grpc, server.grpc_port)):
        client = module.InferenceServerClient(f"127.0.0.1:{port}")
        given = module.InferInput("image", [2], "BYTES")
        given.set_data_from_numpy(pictures)
        rows = client.infer("letterbox", [given], parameters={
            "mask": "png"}).as_numpy("output")
        for row, picture in zip(rows, PICTURES):
            answer = json.loads(row)
            assert "mask" in answer
            agrees(answer, "letterbox", picture)


def test_torchserves_image_segmenter(tmp_path):
    with zipfile.ZipFile(tmp_path / "s.mar", "w") as archive:
        archive.write(DATA / "segmenter.onnx", "model.onnx")
        archive.writestr("index_to_name.json",
                         '{"0": "red", "1": "green", "2": "blue"}')
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps({
            "runtime": "python", "archiverVersion": "0.12.0", "model": {
                "modelName": "s", "serializedFile": "model.onnx",
                "handler": "image_segmenter", "modelVersion": "1.0"}}))
    server = Server("--profile", "torchserve", "--disable-token-auth",
                    "--model-store", tmp_path, "--models", "s.mar",
                    "--http-port", "0", "--grpc-port", "0",
                    "--grpc-management-port", "0", "--management-port", "0",
                    "--metrics-port", "0")
    try:
        agrees(post(server, "/predictions/s", photo("turned.png")),
               "stretched", "turned.png")
    finally:
        server.stop()


@pytest.mark.parametrize("graph, text, said", [
    ("yolo.onnx", "{}", "needs scores of two classes or more as FP32 [1, "
                        "classes, height, width]; the graph has the outputs "
                        "'boxes' FP32 "),
    ("segmenter.onnx", "{labels: five.txt}",
     "labels has 5 names but 'logits'"),
    ("segmenter.onnx", "{mask: gif}", "png, rle"),
    ("segmenter.onnx", "{top_k: 3}", "unknown option of task segment 'top_k'"),
    ("segmenter.onnx", "{resize: 20}", "cuts off parts of a picture"),
])
def test_what_does_not_fit_is_said_at_load(tmp_path, graph, text, said):
    put(tmp_path, "s", text, graph)
    with start("--model-repository", tmp_path, "--model-control-mode",
               "explicit") as server:
        client = triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}")
        with pytest.raises(InferenceServerException) as caught:
            client.load_model("s")
        assert said in str(caught.value)
