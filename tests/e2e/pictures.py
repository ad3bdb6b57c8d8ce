"""What tests of pictures share: models of tests/data/image, and requests whose
body is a picture."""
import json
import shutil
import urllib.error
import urllib.request

import pytest

from conftest import REPO

DATA = REPO / "tests" / "data" / "image"


def put_classifier(root, name, config):
    folder = root / name / "1"
    folder.mkdir(parents=True)
    shutil.copy(DATA / "classifier.onnx", folder / "model.onnx")
    shutil.copy(DATA / "index_to_name.json", root / name)
    (root / name / "config.yaml").write_text(config)


def photo(name):
    return (DATA / name).read_bytes()


def post(server, path, body, content_type="application/octet-stream"):
    request = urllib.request.Request(server.url + path, body,
                                     {"Content-Type": content_type})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def refused(server, path, body, content_type="application/octet-stream"):
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(server, path, body, content_type)
    return caught.value.code, caught.value.read().decode()
