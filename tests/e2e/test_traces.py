"""W3C trace context in and out, and spans at a collector."""
import json
import re
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as triton

from collector import Collector, attributes
from conftest import MODEL, MODEL_ID, REPO, start

GRAPH = REPO / "tests" / "data" / "graph" / "mlp.onnx"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT_ID = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{PARENT_ID}-01"


def post(server, path, body, **headers):
    request = urllib.request.Request(
        server.url + path, json.dumps(body).encode(),
        {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers


def test_the_readme_names_every_variable():
    source = (REPO / "server/tracing/otlp_exporter.cc").read_text()
    names = set(re.findall(r'"(OTEL_\w+)"', source))
    readme = (REPO / "deploy/observability/README.md").read_text()
    assert len(names) >= 7
    assert names == set(re.findall(r"`(OTEL_\w+)`", readme))


COMPLETE = {"model": MODEL_ID, "prompt": "Once", "max_tokens": 8,
            "ignore_eos": True}


@pytest.fixture(scope="module")
def collector():
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def traced(collector):
    with start(MODEL, GRAPH, env={
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_SERVICE_NAME": "mill-on-the-race",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test",
            "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=seven"}) as server:
        yield server


def test_a_request_becomes_a_span_in_the_callers_trace(traced, collector):
    status, headers = post(traced, "/v1/completions", COMPLETE,
                           traceparent=TRACEPARENT, tracestate="vendor=1",
                           **{"X-Request-Id": "traced-1"})
    assert status == 200
    version, trace_id, span_id, flags = headers["traceparent"].split("-")
    assert (version, trace_id, flags) == ("00", TRACE_ID, "01")
    assert span_id != PARENT_ID
    [root] = collector.wait_for(lambda span: span.span_id.hex() == span_id)
    assert root.trace_id.hex() == TRACE_ID
    assert root.parent_span_id.hex() == PARENT_ID
    assert root.trace_state == "vendor=1"
    assert root.kind == 2 and root.status.code == 0
    assert root.name == "POST /v1/completions"
    told = attributes(root)
    assert told["http.response.status_code"] == 200
    assert told["http.route"] == "/v1/completions"
    assert told["millrace.request_id"] == "traced-1"
    assert told["gen_ai.request.model"] == MODEL_ID
    assert told["gen_ai.usage.output_tokens"] == 8
    now = time.time() * 1e9
    assert now - 60e9 < root.start_time_unix_nano < root.end_time_unix_nano
    assert root.end_time_unix_nano < now

    stages = {span.name: span for span in collector.spans()
              if span.parent_span_id.hex() == span_id}
    assert list(stages) == ["parse", "queue", "prefill", "decode"]
    at = root.start_time_unix_nano
    for span in stages.values():
        assert span.kind == 1 and span.trace_id == root.trace_id
        assert span.start_time_unix_nano == at
        at = span.end_time_unix_nano
    assert at == root.end_time_unix_nano


def test_the_resource_and_headers_are_those_of_the_environment(traced,
                                                               collector):
    post(traced, "/v1/completions", COMPLETE)
    collector.wait_for(lambda span: True)
    path, headers, message = collector.requests[0]
    assert path == "/v1/traces"
    assert headers["x-tenant"] == "seven"
    assert headers["Content-Type"] == "application/x-protobuf"
    [resource] = message.resource_spans
    told = attributes(resource.resource)
    assert told["service.name"] == "mill-on-the-race"
    assert told["deployment.environment"] == "test"
    assert told["service.version"]
    assert resource.scope_spans[0].scope.name == "millrace"


def test_a_request_without_context_begins_a_trace(traced, collector):
    _, headers = post(traced, "/v1/completions", {"max_tokens": -1})
    _, trace_id, span_id, _ = headers["traceparent"].split("-")
    [root] = collector.wait_for(lambda span: span.span_id.hex() == span_id)
    assert root.trace_id.hex() == trace_id
    assert root.parent_span_id == b""
    assert attributes(root)["http.response.status_code"] == 400
    assert attributes(root)["error.type"] == "INVALID_ARGUMENT"
    assert attributes(root)["millrace.outcome"] == "client_error"
    assert json.loads(traced.line(trace_id))["event"] == "request"


def test_a_caller_that_does_not_sample_gets_no_span(traced, collector):
    trace_id = "1" * 32
    _, headers = post(traced, "/v1/completions", COMPLETE,
                      traceparent=f"00-{trace_id}-{PARENT_ID}-00")
    assert headers["traceparent"].endswith("-00")
    _, headers = post(traced, "/v1/completions", COMPLETE)
    span_id = headers["traceparent"].split("-")[2]
    collector.wait_for(lambda span: span.span_id.hex() == span_id)
    assert trace_id not in {span.trace_id.hex() for span in collector.spans()}


def test_grpc_and_graphs_have_spans(traced, collector):
    client = triton.InferenceServerClient(f"127.0.0.1:{traced.grpc_port}")
    inputs = []
    for name, value in [("x", [[1, 2, 3, 4]]), ("scale", [0.5])]:
        array = np.array(value, np.float32)
        inputs.append(triton.InferInput(name, list(array.shape), "FP32"))
        inputs[-1].set_data_from_numpy(array)
    trace_id = "2" * 32
    client.infer("mlp", inputs, headers={
        "traceparent": f"00-{trace_id}-{PARENT_ID}-01"})
    [root] = collector.wait_for(
        lambda span: span.trace_id.hex() == trace_id and span.kind == 2)
    assert root.name == "gRPC grpc/ModelInfer"
    assert root.parent_span_id.hex() == PARENT_ID
    assert attributes(root)["rpc.system"] == "grpc"
    stages = [span.name for span in collector.spans()
              if span.parent_span_id == root.span_id]
    assert stages == ["parse", "queue", "compute"]


def test_a_busy_collector_is_asked_again():
    with Collector(503, 429) as busy, start(
            GRAPH, "--otlp-endpoint", busy.url) as server:
        post(server, "/v2/models/none/infer", {})
        busy.wait_for(lambda span: "infer" in span.name)
        assert busy.refused == 2
        exported = server.metric("millrace_otlp_spans_total")
        assert exported['{result="dropped_failed"}'] == 0


def test_spans_that_nobody_takes_are_dropped_and_counted():
    with start(GRAPH, "--otlp-endpoint", "http://127.0.0.1:9") as server:
        assert post(server, "/v2/models/none/infer", {})[0] == 404
        end = time.monotonic() + 15
        while time.monotonic() < end:
            counts = server.metric("millrace_otlp_spans_total")
            if counts['{result="dropped_failed"}'] > 0:
                break
            time.sleep(0.1)
        assert counts['{result="dropped_failed"}'] > 0
        assert server.stop() == 0


def test_what_is_left_is_sent_at_the_end():
    with Collector() as last, start(
            GRAPH, "--otlp-endpoint", last.url) as server:
        post(server, "/v2/models/last/infer", {})
        assert server.stop() == 0
        assert "POST /v2/models/{id}/infer" in {s.name for s in last.spans()}


def test_without_an_exporter_the_callers_trace_is_still_handed_on(server):
    _, headers = post(server, "/v1/completions", COMPLETE,
                      traceparent=TRACEPARENT)
    assert headers["traceparent"].startswith(f"00-{TRACE_ID}-")
    _, headers = post(server, "/v1/completions", COMPLETE)
    assert headers["traceparent"] is None


def test_an_endpoint_that_is_no_url_is_refused():
    for endpoint, why in [("https://x:4318", "without TLS"),
                          ("localhost:4318", "no http:// URL")]:
        with pytest.raises(AssertionError, match=why):
            with start("--otlp-endpoint", endpoint):
                pass


def test_the_access_log_tells_stages_that_apply(traced):
    def line_of(request_id):
        end = time.monotonic() + 10
        while time.monotonic() < end:
            for line in map(json.loads, list(traced.lines)):
                if line.get("id") == request_id:
                    return line
            time.sleep(0.05)
        raise AssertionError(request_id)

    post(traced, "/v1/completions", COMPLETE, **{"X-Request-Id": "stages-1"})
    text = line_of("stages-1")
    stages = [text[name] for name in
              ("parse_s", "queue_s", "prefill_s", "decode_s")]
    assert sum(stages) == pytest.approx(text["duration_s"], abs=1e-4)
    assert text["ttft_s"] == pytest.approx(sum(stages[:3]), abs=1e-4)
    assert text["outcome"] == "ok" and "compute_s" not in text

    post(traced, "/v2/models/mlp/infer", {"inputs": [
        {"name": "x", "datatype": "FP32", "shape": [1, 4],
         "data": [1, 2, 3, 4]},
        {"name": "scale", "datatype": "FP32", "shape": [1], "data": [0.5]}]},
        **{"X-Request-Id": "stages-2"})
    graph = line_of("stages-2")
    assert graph["compute_s"] > 0 and graph["queue_s"] >= 0
    assert not {"ttft_s", "prefill_s", "decode_s",
                "prompt_tokens"} & graph.keys()

    post(traced, "/v1/completions", {"prompt": "Once", "max_tokens": -1},
         **{"X-Request-Id": "stages-3"})
    refused = line_of("stages-3")
    assert not [name for name in refused if name.endswith("_s")
                and name != "duration_s"]
    assert refused["outcome"] == "client_error"
    assert refused["error_field"] == "max_tokens"
