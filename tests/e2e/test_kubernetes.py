"""The chart and KServe's runtime: what they tell the server is what the server
knows. Rendering needs helm-python-sdk (250 MB, not among the gate's packages);
schemas need kubernetes-validate. Both parts skip where these are missing."""
import importlib.util
import json
import os
import re
import subprocess
import sys
import urllib.request

import pytest
import yaml

from conftest import BINARY, REPO

FOLDER = REPO / "deploy" / "kubernetes"
CHART = FOLDER / "millrace"
RUNTIME = yaml.safe_load((FOLDER / "kserve/runtime.yaml").read_text())

needs_helm = pytest.mark.skipif(
    not importlib.util.find_spec("helm_python"),
    reason="helm-python-sdk is not installed")
ALL_ON = {
    "image.repository": "localhost/millrace", "auth.existingSecret": "keys",
    "autoscaling.enabled": True, "serviceMonitor.enabled": True,
    "prometheusRule.enabled": True, "inferencePool.enabled": True,
    "inferencePool.gateway": "gateway",
    "modelVolume.source": {"persistentVolumeClaim": {"claimName": "models"}},
    "networkPolicy.metrics": [{"podSelector": {}}]}


def render(values, *flags):
    command = [sys.executable, FOLDER / "render.py", "--name", "demo", *flags]
    for key, value in values.items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def objects(values):
    done = render(values)
    assert done.returncode == 0, done.stderr
    return {document["kind"]: document
            for document in yaml.safe_load_all(done.stdout)}


def effective(*flags, env=None):
    """The settings that the server makes of flags and environment."""
    done = subprocess.run([BINARY, "serve", "--print-config", *map(str, flags)],
                          capture_output=True, text=True, timeout=30,
                          env={**os.environ, **(env or {})})
    assert done.returncode == 0, done.stderr
    return dict(re.findall(r"^(\w+): (\S+)", done.stdout, re.M))


def answers_without_key(server, path):
    with urllib.request.urlopen(server.url + path, timeout=10) as answer:
        return answer.status == 200


def probes(text):
    return re.findall(r"httpGet: \{path: (\S+),", text)


def test_probes_ask_for_what_the_server_answers(server):
    deployment = (CHART / "templates/deployment.yaml").read_text()
    runtime = (FOLDER / "kserve/runtime.yaml").read_text()
    assert len(probes(deployment)) == 3 and len(probes(runtime)) == 3
    for path in {*probes(deployment), *probes(runtime), "/metrics"}:
        assert answers_without_key(server, path), path


def test_scaling_goes_by_metrics_that_exist(server):
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    metric = values["autoscaling"]["metric"]
    assert server.metric(metric)
    adapter = yaml.safe_load((FOLDER / "prometheus-adapter.yaml").read_text())
    pattern = re.search(r'__name__=~"([^"]+)"',
                        adapter["rules"][0]["seriesQuery"])[1]
    assert re.fullmatch(pattern, metric)


def test_the_runtime_of_kserve_sets_what_the_server_knows():
    container, = RUNTIME["spec"]["containers"]
    env = {item["name"]: item["value"] for item in container["env"]}
    settings = effective(env=env)
    for name, value in env.items():
        key = name.removeprefix("MILLRACE_").lower()
        assert settings[key] == value, name
    assert str(container["ports"][0]["containerPort"]) == settings["http_port"]
    formats = {item["name"] for item in RUNTIME["spec"]["supportedModelFormats"]}
    used = {document["spec"]["predictor"]["model"]["modelFormat"]["name"]
            for document in yaml.safe_load_all(
                (FOLDER / "kserve/inferenceservices.yaml").read_text())}
    assert used == formats == {"onnx", "pytorch-export", "gguf", "huggingface"}


def test_the_group_of_ranks_sets_what_the_server_knows(tmp_path):
    kinds = {document["kind"]: document for document in yaml.safe_load_all(
        (FOLDER / "tensor-parallel/leaderworkerset.yaml").read_text())}
    texts = kinds["ConfigMap"]["data"]
    file = tmp_path / "millrace.yaml"
    file.write_text(texts["millrace.yaml"])
    settings = effective("--config", file)
    group = kinds["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
    assert group["restartPolicy"] == "RecreateGroupOnPodRestart"
    for role in ("leader", "worker"):
        pod = group[f"{role}Template"]["spec"]
        container, = pod["containers"]
        assert container["command"] == [
            "/bin/sh", f"/etc/millrace/config/{role}.sh"]
        assert pod["terminationGracePeriodSeconds"] > int(
            settings["shutdown_timeout"].rstrip("s"))
        mounts = {mount["name"]: mount["mountPath"]
                  for mount in container["volumeMounts"]}
        assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
        assert settings["api_key_file"].strip('"').startswith(mounts["keys"])
        assert mounts["models"] in texts["millrace.yaml"]
        assert f"keys={mounts['ssh']}\n" in texts[f"{role}.sh"]
    leader, = group["leaderTemplate"]["spec"]["containers"]
    assert str(leader["ports"][0]["containerPort"]) == settings["http_port"]
    # mpirun takes a silent node as lost before rank 0 gives up.
    time, gap, probes = (int(re.search(rf"keepalive_{name} (\d+)",
                                       texts["leader.sh"])[1])
                         for name in ("time", "intvl", "probes"))
    assert time + gap * probes < int(
        settings["tensor_parallel_timeout"].rstrip("s"))


@needs_helm
def test_the_server_reads_the_rendered_configuration(tmp_path):
    config = objects(ALL_ON)["ConfigMap"]["data"]["millrace.yaml"]
    file = tmp_path / "millrace.yaml"
    file.write_text(config)
    settings = effective("--config", file)
    assert settings["shutdown_timeout"] == "30s"
    assert settings["api_key_file"].strip('"') == "/etc/millrace/keys/keys"


@needs_helm
def test_keys_of_tenants_certificates_and_a_port_of_management(tmp_path):
    kinds = objects({**ALL_ON, "auth.keysFileSecret": "tenants",
                     "tls.existingSecret": "tls", "managementPort": 8002})
    file = tmp_path / "millrace.yaml"
    file.write_text(kinds["ConfigMap"]["data"]["millrace.yaml"])
    settings = effective("--config", file)
    pod = kinds["Deployment"]["spec"]["template"]["spec"]
    container, = pod["containers"]
    secrets = {volume["name"]: volume["secret"]["secretName"]
               for volume in pod["volumes"] if "secret" in volume}
    assert secrets == {"keys": "keys", "keys-file": "tenants", "tls": "tls"}
    folders = {mount["name"]: mount["mountPath"]
               for mount in container["volumeMounts"]}
    for setting, volume in (("api_key_file", "keys"),
                            ("api_keys_file", "keys-file"),
                            ("ssl_cert_file", "tls"), ("ssl_key_file", "tls")):
        assert settings[setting].strip('"').startswith(folders[volume] + "/")
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
    ports = {port["name"]: port["containerPort"]
             for port in container["ports"]}
    assert str(ports["management"]) == settings["management_port"]
    assert kinds["PodMonitor"]["spec"]["podMetricsEndpoints"][0][
        "port"] == "management"
    assert "management" not in str(kinds["Service"]["spec"])


@needs_helm
def test_the_inference_pool_gets_the_gauges_it_asks_for(tmp_path):
    file = tmp_path / "millrace.yaml"
    file.write_text(objects(ALL_ON)["ConfigMap"]["data"]["millrace.yaml"])
    assert effective("--config", file)["metrics_compat"].strip('[]"') == "vllm"


@needs_helm
def test_a_pod_gets_the_time_and_the_cores_it_needs():
    kinds = objects({**ALL_ON, "shutdownTimeoutSeconds": 50,
                     "preStopSeconds": 7, "resources.cpu": 6})
    pod = kinds["Deployment"]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= 50 + 7
    container, = pod["containers"]
    assert container["lifecycle"]["preStop"]["sleep"]["seconds"] == 7
    resources = container["resources"]
    assert resources["requests"] == resources["limits"]
    assert resources["limits"]["cpu"] == 6
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]}}
    assert kinds["NetworkPolicy"]["spec"]["egress"] == []


@needs_helm
def test_the_rules_in_the_chart_are_those_of_prometheus():
    rules = yaml.safe_load(
        (REPO / "deploy/observability/rules.yaml").read_text())
    assert objects(ALL_ON)["PrometheusRule"]["spec"] == rules


@needs_helm
def test_a_chart_without_image_or_key_says_so():
    done = render({"auth.disabled": True})
    assert done.returncode != 0 and "image.repository is empty" in done.stderr
    done = render({"image.repository": "x"})
    assert done.returncode != 0 and "auth.existingSecret is empty" in done.stderr


@needs_helm
@pytest.mark.parametrize("key, value", [
    ("resources.cpu", 2.5), ("resources.memory", "4G"), ("models", []),
    ("config", {"http_port": 80}), ("image.digest", "latest"),
    ("autoscaling.minReplica", 2), ("service.httpPort", 70000)])
def test_wrong_values_are_refused_by_name(key, value):
    done = render({**ALL_ON, key: value})
    assert done.returncode != 0
    assert key.split(".")[-1] in done.stderr, done.stderr


@needs_helm
@pytest.mark.skipif(not importlib.util.find_spec("kubernetes_validate"),
                    reason="kubernetes-validate is not installed")
def test_manifests_hold_for_kubernetes_schemas():
    import kubernetes_validate
    for kind, document in objects(ALL_ON).items():
        if kind in ("ServiceMonitor", "PrometheusRule", "InferencePool",
                    "HTTPRoute"):
            continue
        kubernetes_validate.validate(document, "1.34", strict=True)
