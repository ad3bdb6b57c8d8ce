"""tritonclient's asyncio clients: many requests of one connection under way at
the same time, metadata, errors, and a stream."""
import asyncio
import importlib
import sys

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from conftest import REPO, start

sys.path.insert(0, str(REPO / "tests" / "golden" / "triton"))
from repository import write_repository  # noqa: E402

WIRES = ["http", "grpc"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_repository(root, "onnx")
    with start("--model-repository", root) as running:
        yield running


def run(server, wire, work):
    """`work` with the wire's module and a client of it."""
    module = importlib.import_module(f"tritonclient.{wire}.aio")
    port = server.http_port if wire == "http" else server.grpc_port

    async def with_client():
        async with module.InferenceServerClient(f"127.0.0.1:{port}") as client:
            return await work(module, client)

    return asyncio.run(with_client())


def inputs_of(module, **values):
    made = []
    for name, value in values.items():
        made.append(module.InferInput(name, list(value.shape), "INT32"))
        made[-1].set_data_from_numpy(value)
    return made


def rows(i):
    return np.full((1, 16), i, np.int32), np.arange(16, dtype=np.int32)[None]


@pytest.mark.parametrize("wire", WIRES)
def test_requests_at_the_same_time_have_their_own_answers(server, wire):
    async def work(module, client):
        async def one(i):
            a, b = rows(i)
            answer = await client.infer(
                "simple", inputs_of(module, INPUT0=a, INPUT1=b),
                request_id=str(i))
            np.testing.assert_array_equal(answer.as_numpy("OUTPUT0"), a + b)
            np.testing.assert_array_equal(answer.as_numpy("OUTPUT1"), a - b)
            response = answer.get_response()
            return response["id"] if wire == "http" else response.id

        return await asyncio.gather(*[one(i) for i in range(64)])

    assert run(server, wire, work) == [str(i) for i in range(64)]


@pytest.mark.parametrize("wire", WIRES)
def test_listings_and_errors(server, wire):
    async def work(module, client):
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("simple")
        assert not await client.is_model_ready("nobody")
        metadata = await client.get_model_metadata("simple")
        name = metadata["name"] if wire == "http" else metadata.name
        assert name == "simple"
        a, _ = rows(1)
        with pytest.raises(InferenceServerException, match="INPUT1"):
            await client.infer("simple", inputs_of(module, INPUT0=a))

    run(server, wire, work)


def test_a_stream_answers_each_request(server):
    async def work(module, client):
        async def requests():
            for i in range(5):
                a, b = rows(i)
                yield {"model_name": "simple", "request_id": str(i),
                       "inputs": inputs_of(module, INPUT0=a, INPUT1=b)}

        found = {}
        async for answer, error in client.stream_infer(requests()):
            assert error is None, repr(error.message())
            found[answer.get_response().id] = answer.as_numpy("OUTPUT0")[0, 0]
        return found

    assert run(server, "grpc", work) == {str(i): i for i in range(5)}
