"""metrics_mode=log: TorchServe's two files of metrics. Which lines a request
makes, their names, units and dimensions were read off a real TorchServe 0.12
that served the same archive."""
import collections
import json
import re
import sys

import pytest

from test_torchserve import archives, ask, torchserve, until
from test_torchserve_python import CLASS, mar

# As TorchServe reads them itself, and the time that log4j puts in front.
LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{3} - "
    r"(?P<name>[\w\s]+)\.(?P<unit>[\w\s]+):(?P<value>[0-9\-,.e]+)\|#"
    r"(?P<dimensions>[^|]*)\|#hostname:[^,]+(,requestID:(?P<id>[^,]+))?"
    r",timestamp:\d{10}")
HOST = {("CPUUtilization", "Percent"), ("MemoryUsed", "Megabytes"),
        ("MemoryAvailable", "Megabytes"), ("MemoryUtilization", "Percent"),
        ("DiskUsage", "Gigabytes"), ("DiskAvailable", "Gigabytes"),
        ("DiskUtilization", "Percent")}


def lines(folder, name):
    found = [LINE.fullmatch(line) for line in
             (folder / name).read_text().splitlines()]
    assert all(found), (folder / name).read_text()
    # As its benchmark finds the value in a line.
    assert all(each[0].split("|")[0].split(":")[3] == each["value"]
               for each in found)
    return found


def count(folder, name):
    """Lines by name, unit and dimensions; those of the machine aside."""
    return collections.Counter(
        (each["name"], each["unit"], each["dimensions"])
        for each in lines(folder, name)
        if (each["name"], each["unit"]) not in HOST)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("store")
    archives.write_store(root, "onnx")
    mar(root, "scaler", CLASS)
    return root


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    return tmp_path_factory.mktemp("metrics") / "made"


@pytest.fixture(scope="module")
def server(store, logs, tmp_path_factory):
    properties = tmp_path_factory.mktemp("config") / "config.properties"
    properties.write_text(
        f"model_store={store}\nload_models=linear.mar\nmetrics_mode=log\n"
        f"metric_time_interval=1\nenable_model_api=true\n"
        f"default_workers_per_model=1\npython={sys.executable}\n")
    with torchserve("--ts-config", properties,
                    env={"METRICS_LOCATION": str(logs)}) as running:
        yield running


def test_each_request_makes_torchserves_lines(server, logs):
    loaded = ("WorkerLoadTime", "Milliseconds",
              "WorkerName:W-9000-linear_1.0,Level:Host")
    assert count(logs, "ts_metrics.log")[loaded] == 1
    before = count(logs, "ts_metrics.log")
    row = b"[1, 2, 3]"
    for path in ("linear", "linear/1.0"):
        assert ask(server, "inference", "POST", f"/predictions/{path}", row,
                   "application/json") == (200, [3, 5, 7])
    assert ask(server, "inference", "POST", "/predictions/linear",
               b'"x"', "application/json")[0] == 400
    assert ask(server, "inference", "POST", "/predictions/absent",
               row)[0] == 404
    level = "Level:Host"
    default, named = ("model_name:linear,model_version:" + version
                      for version in ("default", "1.0"))
    expected = {
        ("Requests2XX", "Count", level): 2, ("Requests4XX", "Count", level): 2,
        ("QueueTime", "Milliseconds", level): 2,
        ("WorkerThreadTime", "Milliseconds", level): 2,
        ("ts_inference_requests_total", "Count", default): 2,
        ("ts_inference_requests_total", "Count", named): 1}
    for name in ("inference", "queue"):
        for version in (default, named):
            expected[f"ts_{name}_latency_microseconds", "Microseconds",
                     version] = 1
    # The line of a response is written once its last byte was.
    until(lambda: count(logs, "ts_metrics.log") - before == expected)
    model = lines(logs, "model_metrics.log")
    assert {each["id"] for each in model} and all(each["id"] for each in model)
    assert count(logs, "model_metrics.log") == {
        (name, "ms", "ModelName:linear,Level:Model"): 2
        for name in ("HandlerTime", "PredictionTime")}


def test_the_machine_is_measured_again_and_again(server, logs):
    def times():
        return collections.Counter(
            (each["name"], each["unit"])
            for each in lines(logs, "ts_metrics.log")
            if each["dimensions"] == "Level:Host")
    until(lambda: all(times()[each] >= 2 for each in HOST))
    total = [float(each["value"]) for each in lines(logs, "ts_metrics.log")
             if each["name"] in ("MemoryUsed", "MemoryAvailable")][:2]
    with open("/proc/meminfo") as file:
        kib = int(file.readline().split()[1])
    assert sum(total) == pytest.approx(kib / 1024, rel=0.01)


def test_metrics_of_a_handler_in_python_stand_with_the_models(server, logs):
    assert ask(server, "management", "POST",
               "/models?url=scaler-1.0.mar&initial_workers=1")[0] == 200
    assert ask(server, "inference", "POST", "/predictions/scaler", b"[1, 2]",
               "application/json") == (200, [3.0, 6.0])
    level = "ModelName:scaler,Level:Model"
    found = count(logs, "model_metrics.log")
    assert found["Rows", "Count", level] == 1
    assert found["Took", "Milliseconds", level] == 1
    assert found["PredictionTime", "ms", level] == 1
    assert not any("Rows.Count" in line for line in server.lines)
    assert count(logs, "ts_metrics.log")[
        "WorkerLoadTime", "Milliseconds",
        "WorkerName:W-9000-scaler_1.0,Level:Host"] == 1
    ask(server, "management", "DELETE", "/models/scaler")


def test_prometheus_still_reads_them(server):
    import urllib.request
    with urllib.request.urlopen(
            f"http://127.0.0.1:{server.ports['metrics']}/metrics") as answer:
        assert b"ts_inference_requests_total" in answer.read()


def test_without_the_mode_there_are_no_files(store, tmp_path):
    with torchserve("--model-store", store, "--models", "linear.mar",
                    env={"METRICS_LOCATION": str(tmp_path / "logs")}) as server:
        ask(server, "inference", "POST", "/predictions/linear", b"[1, 2, 3]")
        assert json.loads(server.line('"request"'))
    assert not (tmp_path / "logs").exists()
