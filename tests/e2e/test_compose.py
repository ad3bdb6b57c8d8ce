"""deploy/compose: the files that it mounts exist, the settings are the server's,
and its parts accept their configuration. Running it needs images: that is done
by deploy/compose/test.sh."""
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request

import pytest
import yaml

from conftest import BINARY, REPO

FOLDER = REPO / "deploy" / "compose"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]


def test_every_mounted_file_exists():
    mounts = 0
    for name, service in SERVICES.items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (FOLDER / source).is_file(), f"{name}: {source}"
                mounts += 1
            else:
                assert source in COMPOSE["volumes"], f"{name}: {source}"
    assert mounts >= 6


def test_every_variable_is_in_the_example():
    named = set(re.findall(r"^(\w+)=", (FOLDER / "example.env").read_text(),
                           re.M))
    asked = set(re.findall(r"\$\{(\w+)",
                           (FOLDER / "compose.yaml").read_text()))
    assert asked == named


def test_the_server_knows_its_settings():
    for name in ("server-1", "server-2"):
        service = SERVICES[name]
        env = {**service["environment"], "MILLRACE_API_KEY": "k"}
        done = subprocess.run([BINARY, "serve", "--print-config"],
                              capture_output=True, text=True, timeout=30,
                              env={**os.environ, **env})
        assert done.returncode == 0, done.stderr
        # Compose kills a server only after it had its time to drain.
        drain = int(re.search(r"^shutdown_timeout: (\d+)s", done.stdout,
                              re.M)[1])
        assert int(service["stop_grace_period"].rstrip("s")) > drain
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        assert service["networks"] == ["inner"]
    assert COMPOSE["networks"]["inner"]["internal"]


def test_prometheus_asks_the_servers_of_the_file():
    config = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    targets = config["scrape_configs"][0]["static_configs"][0]["targets"]
    assert {target.split(":")[0] for target in targets} == {
        name for name in SERVICES if name.startswith("server-")}


@pytest.mark.skipif(not shutil.which("prometheus"),
                    reason="prometheus is not installed")
def test_prometheus_accepts_its_flags_and_keeps_exemplars(tmp_path):
    """The command line of the file, with folders of this test."""
    shutil.copy(FOLDER / "prometheus.yaml", tmp_path)
    shutil.copy(FOLDER.parent / "observability" / "rules.yaml", tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = [flag.replace("/etc/prometheus", str(tmp_path)).replace(
        "=/prometheus", f"={tmp_path}/data")
        for flag in SERVICES["prometheus"]["command"]]
    url = f"http://127.0.0.1:{port}/api/v1"
    with subprocess.Popen(
            ["prometheus", f"--web.listen-address=127.0.0.1:{port}", *flags],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            end = time.monotonic() + 60
            while True:
                try:
                    with urllib.request.urlopen(url + "/status/flags",
                                                timeout=10) as answer:
                        set_to = json.load(answer)["data"]
                    break
                except OSError:
                    assert process.poll() is None
                    assert time.monotonic() < end
                    time.sleep(0.2)
            assert "exemplar-storage" in set_to["enable-feature"]
            assert set_to["storage.tsdb.retention.time"] == "15d"
        finally:
            process.kill()


def test_haproxy_keeps_clients_from_what_the_replicas_proxy_does():
    """What test_replicas.py finds to be denied there."""
    def rules(path):
        return [line for line in path.read_text().splitlines()
                if "internal" in line]
    ours = rules(FOLDER / "haproxy.cfg")
    assert len(ours) == 4
    assert ours == rules(REPO / "deploy/proxy/haproxy.cfg")


@pytest.mark.skipif(not shutil.which("haproxy"),
                    reason="haproxy is not installed")
def test_haproxy_accepts_its_configuration():
    done = subprocess.run(["haproxy", "-c", "-f", FOLDER / "haproxy.cfg"],
                          capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
