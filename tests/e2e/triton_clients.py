"""tritonclient over both protocols, for tests of tensors of BYTES."""
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http


@pytest.fixture(params=["http", "grpc"])
def triton(request, server):
    """The client's module and a client of the test file's `server`."""
    module = triton_http if request.param == "http" else triton_grpc
    port = getattr(server, request.param + "_port")
    return module, module.InferenceServerClient(f"127.0.0.1:{port}")


def strings(module, name, values):
    values = np.array(values, object)
    given = module.InferInput(name, values.shape, "BYTES")
    given.set_data_from_numpy(values)
    return given
