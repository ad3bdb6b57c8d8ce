"""--metrics-compat: the names, types and labels that dashboards, autoscalers and
routers of other servers ask for, and values that are our own."""
import json
import pathlib
import re
import time
import urllib.request

import pytest

from conftest import MODEL, MODEL_ID, REPO, start

GRAPH = REPO / "tests" / "data" / "graph" / "mlp.onnx"

# Name, type and labels as each server exports them. Histograms have "le", too.
VLLM = {"model_name", "engine"}
EXPECTED = {
    "vllm:num_requests_running": ("gauge", VLLM),
    "vllm:num_requests_waiting": ("gauge", VLLM),
    "vllm:kv_cache_usage_perc": ("gauge", VLLM),
    "vllm:gpu_cache_usage_perc": ("gauge", VLLM),
    "vllm:cache_config_info": ("gauge",
                               VLLM | {"block_size", "num_gpu_blocks"}),
    "vllm:prompt_tokens_total": ("counter", VLLM),
    "vllm:generation_tokens_total": ("counter", VLLM),
    "vllm:prefix_cache_queries_total": ("counter", VLLM),
    "vllm:prefix_cache_hits_total": ("counter", VLLM),
    "vllm:prompt_tokens_cached_total": ("counter", VLLM),
    **{f"{server}:spec_decode_num_{name}_total": ("counter", labels | more)
       for server, labels in (("vllm", VLLM), ("llamacpp", set()))
       for name, more in (("drafts", set()), ("draft_tokens", set()),
                          ("accepted_tokens", set()),
                          ("accepted_tokens_per_pos", {"position"}))},
    "vllm:num_preemptions_total": ("counter", VLLM),
    "vllm:admission_rejections_total": ("counter", VLLM),
    "vllm:request_success_total": ("counter", VLLM | {"finished_reason"}),
    **{f"vllm:{name}": ("histogram", VLLM) for name in (
        "time_to_first_token_seconds", "inter_token_latency_seconds",
        "time_per_output_token_seconds", "e2e_request_latency_seconds",
        "request_queue_time_seconds", "request_inference_time_seconds",
        "request_prefill_time_seconds", "request_decode_time_seconds",
        "request_prompt_tokens", "request_generation_tokens",
        "request_max_num_generation_tokens",
        "request_time_per_output_token_seconds",
        "request_prefill_kv_computed_tokens",
        "request_params_n", "request_params_max_tokens",
        "iteration_tokens_total")},
    **{f"nv_inference_{name}": ("counter", {"model", "version"}) for name in (
        "request_success", "count", "exec_count", "request_duration_us",
        "queue_duration_us", "compute_input_duration_us",
        "compute_infer_duration_us", "compute_output_duration_us")},
    "nv_inference_request_failure": ("counter",
                                     {"model", "version", "reason"}),
    "nv_inference_pending_request_count": ("gauge", {"model", "version"}),
    "nv_model_load_duration_secs": ("gauge", {"model", "version"}),
    "nv_cpu_utilization": ("gauge", set()),
    "nv_cpu_memory_total_bytes": ("gauge", set()),
    "nv_cpu_memory_used_bytes": ("gauge", set()),
    **{f"Requests{status}XX": ("counter", {"Level", "Hostname"})
       for status in (2, 4, 5)},
    **{f"ts_{name}": ("counter", {"model_name", "model_version", "hostname"})
       for name in ("inference_requests_total",
                    "inference_latency_microseconds",
                    "queue_latency_microseconds")},
    **{name: ("gauge", {"ModelName", "Level", "Hostname"}) for name in
       ("QueueTime", "HandlerTime", "PredictionTime", "WorkerThreadTime")},
    "WorkerLoadTime": ("gauge", {"WorkerName", "Level", "Hostname"}),
    **{f"llamacpp:{name}": ("counter", set()) for name in
       ("prompt_tokens_total", "prompt_tokens_cached_total",
        "prompt_seconds_total", "tokens_predicted_total",
        "tokens_predicted_seconds_total", "n_decode_total", "n_tokens_max")},
    **{f"llamacpp:{name}": ("gauge", set()) for name in
       ("prompt_tokens_seconds", "predicted_tokens_seconds",
        "requests_processing", "requests_deferred",
        "n_busy_slots_per_decode")},
    **{name: ("gauge", {"Level", "Hostname"}) for name in
       ("CPUUtilization", "MemoryUsed", "MemoryAvailable", "MemoryUtilization",
        "DiskUsage", "DiskUtilization", "DiskAvailable")},
}
SERIES = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)$")


def scrape(server):
    """Types by name, and values by name and labels."""
    types, values = {}, {}
    for line in server.get("/metrics").decode().splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in types, f"{name} is there twice"
            types[name] = kind
        elif not line.startswith("#"):
            name, labels, value = SERIES.match(line).groups()
            pairs = re.findall(r'(\w+)="([^"]*)"', labels or "")
            values[name, frozenset(pairs)] = float(value)
    return types, values


def labels_of(values, name):
    return [dict(labels) for found, labels in values if found == name]


def total(values, name, **labels):
    found = [value for (each, pairs), value in values.items()
             if each == name and labels.items() <= dict(pairs).items()]
    assert found, (name, labels)
    return sum(found)


def post(server, path, body):
    request = urllib.request.Request(
        server.url + path, json.dumps(body).encode(),
        {"Content-Type": "application/json"})
    try:
        return urllib.request.urlopen(request, timeout=60).status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.fixture(scope="module")
def compat():
    with start(MODEL, GRAPH, "--metrics-compat",
               "vllm,triton,torchserve,llamacpp") as server:
        complete = {"model": MODEL_ID, "prompt": "Once", "max_tokens": 9,
                    "ignore_eos": True}
        assert post(server, "/v1/completions", complete) == 200
        assert post(server, "/v1/completions", {**complete, "n": 2}) == 200
        assert post(server, "/v1/completions",
                    {**complete, "prompt": "one, two, three, four,",
                     "max_tokens": 40, "stop": [",", " "]}) == 200
        assert post(server, "/v1/completions", {"max_tokens": -1}) == 400
        assert post(server, "/v2/models/mlp/infer", {"inputs": [
            {"name": "x", "datatype": "FP32", "shape": [1, 4],
             "data": [1, 2, 3, 4]},
            {"name": "scale", "datatype": "FP32", "shape": [1],
             "data": [0.5]}]}) == 200
        yield server


def test_names_types_and_labels_are_those_of_the_other_servers(compat):
    types, values = scrape(compat)
    for name, (kind, labels) in EXPECTED.items():
        assert types.get(name) == kind, name
        series = labels_of(values, name + "_bucket"
                           if kind == "histogram" else name)
        assert series, name
        for each in series:
            assert set(each) - {"le"} == labels, name
    foreign = {name for name in types
               if not name.startswith(("millrace_", "process_"))}
    assert foreign == set(EXPECTED)


def test_values_are_our_own(compat):
    _, values = scrape(compat)
    for theirs, ours in {
            "vllm:prompt_tokens_total": "millrace_prompt_tokens_total",
            "vllm:generation_tokens_total": "millrace_generation_tokens_total",
            "vllm:time_to_first_token_seconds_count":
                "millrace_time_to_first_token_seconds_count",
            "vllm:iteration_tokens_total_sum": "millrace_step_tokens_sum",
            "vllm:e2e_request_latency_seconds_sum":
                "millrace_completion_time_seconds_sum"}.items():
        assert total(values, theirs) == total(values, ours) > 0, theirs
    success = {pair["finished_reason"]: total(
        values, "vllm:request_success_total", **pair)
        for pair in labels_of(values, "vllm:request_success_total")}
    assert success == {"stop": 1, "length": 3, "abort": 0}
    assert total(values, "vllm:request_params_n_count") == 3
    assert total(values, "vllm:request_params_n_sum") == 4
    # One of three requests has two completions, of 9 tokens both.
    longest = "vllm:request_max_num_generation_tokens"
    assert total(values, longest + "_count") == 3
    assert total(values, longest + "_sum") == total(
        values, "vllm:request_generation_tokens_sum") - 9
    assert total(values, "vllm:request_prefill_kv_computed_tokens_sum") == \
        total(values, "millrace_computed_prompt_tokens_total")
    assert not [labels for labels in
                labels_of(values, "vllm:num_requests_running")
                if labels["model_name"] == "mlp"]

    graph = {"model": "mlp", "version": "1"}
    assert total(values, "nv_inference_request_success", **graph) == 1
    assert total(values, "nv_inference_count", **graph) == 1
    assert total(values, "nv_inference_exec_count", **graph) == 1
    text = {"model": MODEL_ID, "version": "1"}
    assert total(values, "nv_inference_request_success", **text) == 4
    queue = total(values, "millrace_queue_time_seconds_sum", **text)
    assert total(values, "nv_inference_queue_duration_us",
                 **text) == pytest.approx(queue * 1e6)
    assert total(values, "ts_queue_latency_microseconds",
                 model_name=MODEL_ID) == pytest.approx(queue * 1e6)
    assert total(values, "ts_inference_requests_total", model_name="mlp") == 1
    for theirs, ours in {
            "prompt_seconds_total": "millrace_prefill_time_seconds_sum",
            "tokens_predicted_total": "millrace_generation_tokens_total",
            "prompt_tokens_cached_total": "millrace_prefix_cache_hits_total",
            "prompt_tokens_total": "millrace_computed_prompt_tokens_total"
    }.items():
        assert total(values, "llamacpp:" + theirs) == total(values, ours)
    # Of three requests one has two completions, which share their prompt.
    assert total(values, "millrace_prompt_tokens_total") <= total(
        values, "llamacpp:prompt_tokens_total") + total(
            values, "llamacpp:prompt_tokens_cached_total")
    steps = total(values, "millrace_batch_size_count", **text)
    assert total(values, "llamacpp:n_decode_total") == steps
    assert total(values, "llamacpp:n_busy_slots_per_decode") == pytest.approx(
        total(values, "millrace_batch_size_sum", **text) / steps)
    assert total(values, "llamacpp:n_tokens_max") > 9
    assert total(values, "llamacpp:predicted_tokens_seconds") > 0
    assert total(values, "Requests4XX") == 1
    assert total(values, "Requests2XX") >= 4
    memory = total(values, "millrace_host_memory_bytes", state="total")
    assert total(values, "nv_cpu_memory_total_bytes") == memory > 1 << 30
    assert 0 < total(values, "MemoryUtilization") <= 100
    assert total(values, "PredictionTime", ModelName=MODEL_ID) > 0
    # One batch was computed: its value is the mean.
    assert total(values, "WorkerThreadTime", ModelName="mlp") == pytest.approx(
        total(values, "millrace_batch_overhead_seconds_sum", model="mlp") * 1e3)
    assert total(values, "WorkerThreadTime", ModelName="mlp") > 0


def test_draft_tokens_by_their_place(compat):
    post(compat, "/v1/completions",
         {"model": MODEL_ID, "prompt": "one two three " * 20, "max_tokens": 60,
          "temperature": 0, "ignore_eos": True})
    _, values = scrape(compat)
    for server in ("vllm", "llamacpp"):
        def of(name, **labels):
            return total(values, f"{server}:spec_decode_num_{name}_total",
                         **labels)
        places = [of("accepted_tokens_per_pos", position=str(i)) for i in range(
            len(labels_of(values, f"{server}:spec_decode_num_accepted_tokens"
                          "_per_pos_total")))]
        assert len(places) > 1
        assert places == sorted(places, reverse=True)
        assert sum(places) == of("accepted_tokens") > 0
        assert places[0] <= of("drafts") <= of("draft_tokens")


def test_without_the_switch_only_our_own_names(server):
    types, _ = scrape(server)
    assert all(name.startswith(("millrace_", "process_")) for name in types)


def test_the_process_tells_its_memory_and_cpu_time(server):
    _, values = scrape(server)
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    told = {name: int(value) for name, value in
            re.findall(r"^(\w+):\s+(\d+)", status, re.M)}
    assert total(values, "process_resident_memory_bytes") == pytest.approx(
        told["VmRSS"] * 1024, rel=0.05)
    assert total(values, "process_virtual_memory_bytes") == pytest.approx(
        told["VmSize"] * 1024, rel=0.05)
    assert total(values, "process_threads") == pytest.approx(
        told["Threads"], abs=3)
    started = total(values, "process_start_time_seconds")
    assert time.time() - 3600 < started <= time.time()
    assert total(values, "process_cpu_seconds_total") > 0
    assert total(values, "process_open_fds") > 3


def test_pools_tell_their_threads_and_cpu_time(compat):
    def pools():
        _, values = scrape(compat)
        threads = {labels["pool"]: total(values, "millrace_pool_threads",
                                         **labels)
                   for labels in labels_of(values, "millrace_pool_threads")}
        spent = {pool: total(values, "millrace_pool_cpu_seconds_total",
                             pool=pool) for pool in threads}
        return threads, spent, total(values, "process_cpu_seconds_total")
    threads, before, of_process = pools()
    assert {"handler", "http-io", "llm", "other"} <= set(threads)
    assert all(threads[pool] >= 1 for pool in ("handler", "http-io", "llm"))
    _, values = scrape(compat)
    assert sum(threads.values()) == pytest.approx(
        total(values, "process_threads"), abs=3)
    # Clock ticks are hundredths of seconds; threads that ended are missing.
    assert 0.3 * of_process < sum(before.values()) < of_process + 0.5
    post(compat, "/v1/completions", {"model": MODEL_ID, "prompt": "Once",
                                     "max_tokens": 200, "ignore_eos": True})
    _, after, _ = pools()
    assert after["llm"] > before["llm"]
    assert all(after[pool] >= before[pool] for pool in before)


def test_the_answer_says_when_the_process_started(compat):
    with urllib.request.urlopen(compat.url + "/metrics", timeout=60) as answer:
        told = int(answer.headers["Process-Start-Time-Unix"])
    _, values = scrape(compat)
    assert told == pytest.approx(
        total(values, "process_start_time_seconds"), abs=2)


def test_an_unknown_server_is_refused():
    with pytest.raises(AssertionError, match="metrics_compat names 'tgi'"):
        start_and_stop("--metrics-compat", "vllm,tgi")


def start_and_stop(*flags):
    with start(*flags):
        pass
