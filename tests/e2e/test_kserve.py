"""A graph asked by KServe's own client. The package brings some seventy others
along, so it is no part of requirements.txt: where it is missing this is
skipped by name.

    pip install kserve pytest && pytest tests/e2e/test_kserve.py
"""
import asyncio
import json

import numpy as np
import pytest

from conftest import REPO, start

kserve = pytest.importorskip("kserve")
requested = pytest.importorskip("kserve.protocol.infer_type").RequestedOutput

DATA = REPO / "tests" / "data" / "graph"
CASES = json.loads((DATA / "mlp.json").read_text())


@pytest.fixture(scope="module")
def server():
    with start(DATA / "mlp.onnx") as running:
        yield running


def ask(server, work):
    """Runs work(client, base URL) with a client of the v2 protocol."""
    async def session():
        client = kserve.InferenceRESTClient(
            kserve.RESTConfig(protocol="v2", timeout=30))
        try:
            return await work(client, server.url)
        finally:
            await client.close()
    return asyncio.run(session())


def inputs_of(case, binary):
    inputs = []
    for name in ("x", "scale"):
        value = np.array(case[name], np.float32)
        made = kserve.InferInput(name, list(value.shape), "FP32")
        made.set_data_from_numpy(value, binary_data=binary)
        inputs.append(made)
    return inputs


@pytest.mark.parametrize("case", CASES, ids=["one", "three"])
@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_infers(server, case, binary):
    request = kserve.InferRequest(
        "mlp", inputs_of(case, binary), request_id="r1",
        request_outputs=[requested(name, {"binary_data": binary})
                         for name in ("logits", "probabilities")])
    answer = ask(server, lambda client, url: client.infer(
        url, request, model_name="mlp"))
    assert answer.id == "r1"
    for output in answer.outputs:
        np.testing.assert_allclose(output.as_numpy(), case[output.name],
                                   rtol=2e-6, atol=1e-6)


def test_asks_for_health(server):
    assert ask(server, lambda c, url: c.is_server_live(url))
    assert ask(server, lambda c, url: c.is_server_ready(url))
    assert ask(server, lambda c, url: c.is_model_ready(url, "mlp"))
