"""What tests of vectors and scores of texts share: requests in JSON, and how
near two vectors are."""
import json
import math
import urllib.error
import urllib.request

import numpy as np
import pytest


def post(server, path, body):
    request = urllib.request.Request(
        server.url + path, json.dumps(body).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def refused(server, path, body):
    with pytest.raises(urllib.error.HTTPError) as error:
        post(server, path, body)
    return error.value.code, json.load(error.value)["error"]["message"]


def cosine(a, b):
    a, b = np.array(a, np.float64), np.array(b, np.float64)
    return a @ b / math.sqrt((a @ a) * (b @ b))
