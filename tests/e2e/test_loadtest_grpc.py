"""millrace-loadtest over gRPC at a server that is slower than the load."""
import concurrent.futures
import json
import signal
import subprocess
import threading
import time

import grpc
import pytest
from test_loadtest import command, load
from tritonclient.grpc import service_pb2, service_pb2_grpc


class SlowTensors:
    """KServe v2 over gRPC: each request takes 0.2 s."""

    def __init__(self):
        self.asked = asked = threading.Event()

        class Servicer(service_pb2_grpc.GRPCInferenceServiceServicer):
            def ModelMetadata(self, request, context):
                return service_pb2.ModelMetadataResponse(
                    name=request.name,
                    inputs=[{"name": "x", "datatype": "FP32", "shape": [1]}])

            def ModelInfer(self, request, context):
                asked.set()
                time.sleep(0.2)
                return service_pb2.ModelInferResponse(
                    outputs=[{"name": "y", "datatype": "FP32", "shape": [1]}])

        self._server = grpc.server(
            concurrent.futures.ThreadPoolExecutor(max_workers=16))
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(
            Servicer(), self._server)
        self.url = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self):
        self._server.stop(None).wait(5)


@pytest.fixture
def slow_tensors():
    server = SlowTensors()
    yield server
    server.stop()


def test_a_backlog_over_grpc_ends_with_the_grace_period(slow_tensors, tmp_path):
    begun = time.monotonic()
    report = load(tmp_path, "--url", slow_tensors.url, "--endpoint-type",
                  "kserve-grpc", "-m", "slow", "--request-rate", 200,
                  "--duration", "1s", "--grace-period", "500ms",
                  "--max-connections", 4)
    # The backlog would last ten seconds.
    assert time.monotonic() - begun < 6
    assert set(report["errors"]["by_kind"]) == {"unfinished"}
    assert report["request_count"] < 60
    assert report["request_count"] + report["errors"]["total"] == 200


def test_an_interrupt_records_what_waits_for_a_connection_over_grpc(
        slow_tensors, tmp_path):
    out = tmp_path / "report.json"
    running = subprocess.Popen(
        command("--url", slow_tensors.url, "--endpoint-type", "kserve-grpc",
                "-m", "slow", "--request-rate", 200, "--duration", "60s",
                "--max-connections", 4, "--json", out),
        stdout=subprocess.DEVNULL)
    assert slow_tensors.asked.wait(20)
    time.sleep(1)
    running.send_signal(signal.SIGINT)
    assert running.wait(10) == 0
    report = json.loads(out.read_text())
    assert set(report["errors"]["by_kind"]) == {"unfinished"}
    assert report["errors"]["total"] > 2 * report["request_count"]
