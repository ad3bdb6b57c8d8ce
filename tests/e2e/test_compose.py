"""deploy/compose: the files that it mounts exist, the settings are the server's,
and its parts accept their configuration. Running it needs images: that is done
by deploy/compose/test.sh."""
import os
import re
import shutil
import subprocess

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


@pytest.mark.skipif(not shutil.which("haproxy"),
                    reason="haproxy is not installed")
def test_haproxy_accepts_its_configuration():
    done = subprocess.run(["haproxy", "-c", "-f", FOLDER / "haproxy.cfg"],
                          capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
