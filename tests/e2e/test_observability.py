"""Rules and dashboard: what they ask for is what the server exports, and every
alert has a test and a line in the runbook."""
import contextlib
import http.server
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
import yaml

from conftest import BINARY, MODEL_ID, REPO, start

FOLDER = REPO / "deploy" / "observability"
RULES = yaml.safe_load((FOLDER / "rules.yaml").read_text())
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
ALERTS = {rule["alert"] for group in RULES["groups"]
          for rule in group["rules"] if "alert" in rule}
METRIC = re.compile(r"\b(?:millrace|nv)_[a-z0-9_]+\b|\bmillrace:[a-z0-9_:]+")


def all_rules():
    return [rule for group in RULES["groups"] for rule in group["rules"]]


def queries():
    """(where, expression) of every rule and every panel."""
    for rule in all_rules():
        yield rule.get("alert") or rule["record"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def promtool(*args):
    done = subprocess.run(["promtool", *map(str, args)], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_configuration_and_rules_hold():
    promtool("check", "config", FOLDER / "prometheus.yaml")
    promtool("test", "rules", FOLDER / "rules_test.yaml")


def test_every_alert_is_tested_and_has_a_line_in_the_runbook():
    tests = (FOLDER / "rules_test.yaml").read_text()
    runbook = (FOLDER / "README.md").read_text()
    assert len(ALERTS) >= 10
    for alert in ALERTS:
        assert tests.count(f"alertname: {alert}\n") == 2, alert
        assert f"| `{alert}` |" in runbook, alert


def test_the_dashboard_is_what_its_script_makes():
    made = subprocess.run([sys.executable, FOLDER / "dashboard.py"],
                          capture_output=True, text=True, check=True).stdout
    assert made == (FOLDER / "dashboard.json").read_text()


def exported(server):
    """Names that a query may use."""
    names = set()
    for line in server.get("/metrics").decode().splitlines():
        if line and not line.startswith("#"):
            names.add(re.split(r"[{ ]", line, maxsplit=1)[0])
    return names


def complete(server, **headers):
    body = json.dumps({"model": MODEL_ID, "prompt": "Once", "max_tokens": 8,
                       "ignore_eos": True}).encode()
    request = urllib.request.Request(server.url + "/v1/completions", body,
                                     {"Content-Type": "application/json",
                                      **headers})
    urllib.request.urlopen(request, timeout=60).read()


def test_every_metric_asked_for_is_exported(server):
    complete(server)
    known = exported(server)
    known |= {rule["record"] for rule in all_rules() if "record" in rule}
    known.add("millrace_drift_psi")  # of a classifier: test_drift.py
    for where, expression in queries():
        for name in METRIC.findall(expression):
            assert name in known, f"{where}: {name}"


class Prometheus:
    """A Prometheus with our configuration that scrapes each second.
    `change_rules` gets the text of the rules and returns another."""

    def __init__(self, folder, *targets, change_rules=lambda text: text):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        rules = (FOLDER / "rules.yaml").read_text()
        (folder / "rules.yaml").write_text(change_rules(rules))
        config = (FOLDER / "prometheus.yaml").read_text()
        (folder / "prometheus.yaml").write_text(config.replace("15s", "1s"))
        (folder / "targets.yaml").write_text(
            json.dumps([{"targets": list(targets)}]))
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yaml",
             f"--storage.tsdb.path={folder}/data",
             "--enable-feature=exemplar-storage",
             f"--web.listen-address=127.0.0.1:{self.port}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ask(self, what, **parameters):
        text = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}/api/v1/{what}?{text}",
                timeout=10) as answer:
            body = json.load(answer)
        assert body["status"] == "success", body
        return body["data"]

    def query(self, expression):
        return self.ask("query", query=expression)["result"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


@pytest.mark.skipif(not shutil.which("prometheus"),
                    reason="prometheus is not installed")
def test_every_query_runs_in_a_real_prometheus(server, tmp_path):
    with Prometheus(tmp_path, f"127.0.0.1:{server.http_port}") as prometheus:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            complete(server)
            time.sleep(0.3)
            try:
                if prometheus.query("millrace:generation_tokens:rate5m > 0"):
                    break
            except OSError:
                pass
        empty = set()
        for where, expression in queries():
            expression = (expression.replace("$__rate_interval", "1m")
                          .replace("$job", "millrace")
                          .replace("$instance", ".*")
                          .replace("$model", ".*"))
            if not prometheus.query(expression):
                empty.add(where)
        # No alert is due, and nobody drafts tokens or has errors in this test.
        assert empty - ALERTS <= {"Draft tokens accepted",
                                  "millrace:error_ratio:rate5m",
                                  "millrace:rejected_ratio:rate5m"}


@pytest.mark.skipif(not shutil.which("prometheus"),
                    reason="prometheus is not installed")
def test_a_server_without_free_connections_is_scraped(tmp_path):
    """And probed; everybody else is refused, which the scrape tells."""
    with start("--max-connections", 8) as server:
        taken = [socket.create_connection(("127.0.0.1", server.http_port))
                 for _ in range(8)]
        refused = "millrace_http_connections_refused_total"
        with Prometheus(tmp_path,
                        f"127.0.0.1:{server.http_port}") as prometheus:
            told = []
            end = time.monotonic() + 60
            while not told and time.monotonic() < end:
                with pytest.raises(urllib.error.HTTPError) as full:
                    complete(server)
                assert full.value.code == 503
                assert full.value.headers["Retry-After"]
                assert server.get("/health")
                assert subprocess.run(
                    [BINARY, "health", "--port", str(server.http_port)],
                    capture_output=True, timeout=30).returncode == 0
                time.sleep(0.3)
                with contextlib.suppress(OSError):
                    told = prometheus.query(refused + " > 0")
            assert told
            assert not prometheus.query("up == 0")
        for each in taken:
            each.close()


TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.skipif(not shutil.which("prometheus"),
                    reason="prometheus is not installed")
def test_exemplars_name_traces_in_a_real_prometheus(server, tmp_path):
    """Prometheus asks for OpenMetrics itself. A trace that its caller does not
    keep is no exemplar."""
    with Prometheus(tmp_path, f"127.0.0.1:{server.http_port}") as prometheus:
        complete(server, traceparent=f"00-{TRACE_ID}-00f067aa0ba902b7-01")
        complete(server, traceparent=f"00-{'a' * 32}-00f067aa0ba902b7-00")
        names = {"millrace_time_to_first_token_seconds_bucket",
                 "millrace_completion_time_seconds_bucket",
                 "millrace_request_duration_seconds_bucket"}
        found = {}
        end = time.monotonic() + 60
        while set(found) != names and time.monotonic() < end:
            time.sleep(0.3)
            try:
                for name in names:
                    for series in prometheus.ask(
                            "query_exemplars", query=name,
                            start=time.time() - 600, end=time.time() + 60):
                        found[name] = series["exemplars"]
            except OSError:
                pass
        assert set(found) == names
        for name, exemplars in found.items():
            assert {each["labels"]["trace_id"] for each in exemplars} == {
                TRACE_ID}, name
            for each in exemplars:
                assert 0 < float(each["value"]) < 60
                assert abs(each["timestamp"] - time.time()) < 120
        assert prometheus.query("up == 1")


def test_openmetrics_is_for_those_who_ask(server):
    def scrape(accept):
        request = urllib.request.Request(server.url + "/metrics",
                                         headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
            assert answer.headers["Vary"] == "Accept"
            assert text.endswith("# EOF\n") == (
                "openmetrics" in answer.headers["Content-Type"])
            return answer.headers["Content-Type"], text
    for accept, wanted in {
            "application/openmetrics-text;version=1.0.0,"
            "application/openmetrics-text;version=0.0.1;q=0.75,"
            "text/plain;version=0.0.4;q=0.5,*/*;q=0.1": True,
            "application/openmetrics-text": True,
            "Application/OpenMetrics-Text; version=\"1.0.0\"; q=0.9": True,
            "text/plain;q=1, application/openmetrics-text;q=0.5": False,
            "application/openmetrics-text;q=0": False,
            "application/openmetrics-text;version=2.0.0": False,
            "*/*": False, "text/plain": False, ",;,q=;=": False}.items():
        kind, text = scrape(accept)
        assert kind == ("application/openmetrics-text; version=1.0.0; "
                        "charset=utf-8" if wanted else
                        "text/plain; version=0.0.4; charset=utf-8"), accept
    # Both tell the same, but for the form of bounds.
    def series(text):
        return {re.sub(r'le="(\d+)"', r'le="\1.0"', line.rsplit(" # ")[0]
                       ).rsplit(" ", 1)[0]
                for line in text.splitlines() if not line.startswith("#")}
    assert series(scrape("application/openmetrics-text")[1]) == series(
        scrape("*/*")[1])


class Other(http.server.BaseHTTPRequestHandler):
    """Metrics of a server of another version."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'millrace_build_info{version="0.0.1"} 1\n')

    def log_message(self, *_):
        pass


def impatient(rules):
    """The rules with windows of seconds and without waiting."""
    rules = re.sub(r"^ +for: \w+\n", "", rules, flags=re.M)
    return re.sub(r"\[\d+m\]", "[10s]", rules)


@pytest.mark.skipif(not shutil.which("prometheus"),
                    reason="prometheus is not installed")
def test_alerts_fire_when_their_cause_is_there(tmp_path):
    """Two sequences at once, four pages and a crowd; the server's process is
    stopped again and again, as by a host that takes its cores away. It goes on
    for so short a time, with slow kernels on one core, that one token of a
    hundred and more is late on a fast machine, too. Some clients have little
    time; when the crowd has provoked its alerts, they alone go on, so that its
    refusals do not outnumber their time-outs. Idle connections come and go, so
    that Prometheus gets one again after a scrape that took too long."""
    expected = set(ALERTS) - {"MillraceDrift"}  # of classifiers: test_drift.py
    records = {rule["record"] for rule in all_rules() if "record" in rule}
    fired, recorded = set(), set()
    with start("--max-num-seqs", 2, "--max-queue-size", 40, "--max-connections",
               80, "--kv-cache-memory-bytes", "6MiB",
               "--max-model-len", 256, "--isa", "avx2", "--threads", 1) as server, \
            http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as other, \
            Prometheus(tmp_path, f"127.0.0.1:{server.http_port}",
                       f"127.0.0.1:{other.server_port}", "127.0.0.1:9",
                       change_rules=impatient) as prometheus:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        body = json.dumps({"model": MODEL_ID, "prompt": "Once",
                           "max_tokens": 200, "ignore_eos": True}).encode()

        def ask(timeout_ms, alerts):
            request = urllib.request.Request(
                server.url + "/v1/completions", body,
                {"Content-Type": "application/json",
                 "X-Request-Timeout-Ms": str(timeout_ms)})
            while alerts - fired:
                try:
                    urllib.request.urlopen(request, timeout=120).read()
                except OSError:
                    time.sleep(0.2)

        def stall():
            while fired != expected:
                server.process.send_signal(signal.SIGSTOP)
                time.sleep(0.6)
                server.process.send_signal(signal.SIGCONT)
                time.sleep(0.2)

        crowd = (100_000, expected - {"MillraceErrors"})
        for i in range(60):
            threading.Thread(target=ask, daemon=True,
                             args=(700, expected) if i % 10 == 0 else crowd).start()
        stalls = threading.Thread(target=stall)
        stalls.start()
        idle = []
        end = time.monotonic() + 180
        while fired != expected and time.monotonic() < end:
            if len(idle) >= 60:
                while idle:
                    idle.pop().close()
            elif "MillraceRefusesConnections" not in fired:
                idle += [socket.create_connection(
                    ("127.0.0.1", server.http_port)) for _ in range(10)]
            time.sleep(0.5)
            try:
                firing = prometheus.query('ALERTS{alertstate="firing"}')
                recorded |= {name for name in records - recorded
                             if prometheus.query(name)}
            except OSError:
                continue
            fired |= {alert["metric"]["alertname"] for alert in firing}
            fired &= expected
        missing = expected - fired
        fired |= expected  # lets the crowd end
        stalls.join()
        for connection in idle:
            connection.close()
        other.shutdown()
        assert not missing
        assert not records - recorded
