"""External handlers whose process ends and is started again: who waits for it, and
who is refused."""
import concurrent.futures
import time

import numpy as np
import pytest
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from conftest import start
from test_external import ask, external, put, python  # noqa: F401

FRAGILE = """
import os
import millrace_handler

class Fragile(millrace_handler.Handler):
    inputs = {"x": ("FP32", [-1])}
    outputs = {"y": ("FP32", [-1])}

    def initialize(self, context):
        if os.path.exists(os.environ["BROKEN"]):
            raise RuntimeError("the file is broken")

    def handle(self, inputs, context):
        if inputs["x"][0] < -1:
            open(os.environ["BROKEN"], "w").close()
        if inputs["x"][0] < 0:
            os._exit(3)
        return {"y": inputs["x"]}

millrace_handler.serve(Fragile())
"""


def test_requests_wait_for_a_process_that_comes_back(tmp_path, python):  # noqa: F811
    external(tmp_path, "fragile", FRAGILE)
    with start("--model-repository", tmp_path, env={
            **python, "BROKEN": str(tmp_path / "broken")}) as server:
        def one(value):
            client = triton_http.InferenceServerClient(
                f"127.0.0.1:{server.http_port}")
            try:
                return ask((triton_http, client), "fragile", [value]).tolist()
            except InferenceServerException as refused:
                return str(refused)
        assert "exited with code 3" in one(-1)
        # Its process is gone; the other requests are answered.
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert list(pool.map(one, range(8))) == [[i] for i in range(8)]
        # One that cannot start ends what waits, and is told.
        assert "exited with code 3" in one(-2)
        begun = time.monotonic()
        assert "RuntimeError: the file is broken" in one(1)
        assert time.monotonic() - begun < 20
        assert "RuntimeError" in one(1)
        (tmp_path / "broken").unlink()
        until = time.monotonic() + 30
        while one(1) != [1]:
            assert time.monotonic() < until
            time.sleep(0.1)


OUTER = """
ensemble:
  steps:
    - {model: MEMBER, inputs: {x: x}, outputs: {y: y}}
"""
CALLS_FRAGILE = """
import millrace_handler

class Calls(millrace_handler.Handler):
    inputs = {"x": ("FP32", [-1])}
    outputs = {"y": ("FP32", [-1])}

    def handle(self, inputs, context):
        return context.call("fragile", inputs)

millrace_handler.serve(Calls())
"""


def test_those_that_call_it_wait_for_it_too(tmp_path, python):  # noqa: F811
    slow = FRAGILE.replace("        if os.path.exists", """        if os.path.exists(os.environ["BROKEN"] + ".slow"):
            import time; time.sleep(2)
        if os.path.exists""")
    external(tmp_path, "fragile", slow)
    external(tmp_path, "calls", CALLS_FRAGILE)
    put(tmp_path, "ens", {}, OUTER.replace("MEMBER", "fragile"))
    put(tmp_path, "nested", {}, OUTER.replace("MEMBER", "ens"))
    with start("--model-repository", tmp_path, env={
            **python, "BROKEN": str(tmp_path / "broken")}) as server:
        client = triton_http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}")
        (tmp_path / "broken.slow").touch()  # the next start takes 2 s
        for model in ["ens", "nested", "calls"]:
            with pytest.raises(InferenceServerException) as ended:
                ask((triton_http, client), "fragile", [-1])
            assert "exited with code 3" in str(ended.value)
            begun = time.monotonic()
            while client.is_model_ready("fragile"):  # told a moment later
                assert time.monotonic() - begun < 10
            if model != "calls":
                assert not client.is_model_ready(model)
            np.testing.assert_array_equal(
                ask((triton_http, client), model, [7]), [7])
            assert time.monotonic() - begun > 1
            assert client.is_model_ready(model)
        # One that does not come back: they are refused, and say so.
        with pytest.raises(InferenceServerException):
            ask((triton_http, client), "fragile", [-2])
        for model in ["ens", "calls", "nested"]:
            with pytest.raises(InferenceServerException) as refused:
                ask((triton_http, client), model, [7])
            assert "RuntimeError: the file is broken" in str(refused.value)
