#!/usr/bin/env python3
"""Checks the chart and the manifests without a cluster, and tells what holds.

    deploy/kubernetes/check.py [--crds FOLDER]

The chart is rendered with several sets of values. Kubernetes' own kinds are held
against its schemas (kubernetes-validate, strict: no unknown fields), all of them
against checkov's rules for security. Other kinds are held against the
CustomResourceDefinitions in FOLDER, as their projects publish them (any *.yaml:
kserve config/crd/full, prometheus-operator example/prometheus-operator-crd,
gateway-api and gateway-api-inference-extension config/crd, lws config/crd/bases),
strictly as well.
Needs helm-python-sdk, PyYAML, kubernetes-validate, jsonschema and checkov of
PyPI; what is missing is skipped by name. Ends with 1 where a check failed.
"""
import argparse
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
VERSION = "1.34"  # of Kubernetes' schemas

PLAIN = {"image.repository": "localhost/millrace",
         "auth.existingSecret": "keys"}
SETS = {
    "defaults": PLAIN,
    "no key": {"image.repository": "localhost/millrace", "auth.disabled": True,
               "service.grpcPort": -1},
    "everything": {
        "image.repository": "localhost/millrace",
        "image.digest": "sha256:" + "0" * 64, "auth.existingSecret": "keys",
        "auth.keysFileSecret": "keys-file", "tls.existingSecret": "tls",
        "autoscaling.enabled": True, "serviceMonitor.enabled": True,
        "serviceMonitor.keySecret": "metrics-key",
        "prometheusRule.enabled": True, "inferencePool.enabled": True,
        "inferencePool.gateway": "gateway",
        "modelVolume.source": {"persistentVolumeClaim": {"claimName": "m"}},
        "networkPolicy.metrics": [{"podSelector": {}}]},
    "management apart": {
        **PLAIN, "managementPort": 8002, "serviceMonitor.enabled": True,
        "networkPolicy.metrics": [{"podSelector": {}}]},
}

# Rules of checkov that do not fit, and why.
LEFT_OUT = {
    "CKV_K8S_21": "the namespace is the installer's",
    "CKV_K8S_43": "an image by its digest is a value (image.digest)",
    "CKV_K8S_15": "IfNotPresent is right for a tag that never moves",
    "CKV2_K8S_6": "policies of the network are a document of their own",
}


def render(values):
    command = [sys.executable, FOLDER / "render.py", "--name", "demo"]
    for key, value in values.items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip())
    return done.stdout


def strict(schema):
    """As the API server with fieldValidation=Strict: fields that a schema does
    not name are wrong, unless it keeps unknown ones."""
    if not isinstance(schema, dict):
        return schema
    out = {key: strict(value) if key in ("items", "additionalProperties")
           else value for key, value in schema.items()}
    if "properties" in schema:
        out["properties"] = {name: strict(each) for name, each in
                             schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            out.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        out["type"] = ["integer", "string"]
        out.pop("anyOf", None)
    if schema.get("nullable") and isinstance(out.get("type"), str):
        out["type"] = [out["type"], "null"]
    return out


def definitions(folder):
    """{(apiVersion, kind): strict schema}"""
    import yaml
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if not document or document.get("kind") != \
                    "CustomResourceDefinition":
                continue
            spec = document["spec"]
            for version in spec["versions"]:
                schema = strict(version["schema"]["openAPIV3Schema"])
                schema["properties"]["metadata"] = {"type": "object"}
                found[f"{spec['group']}/{version['name']}",
                      spec["names"]["kind"]] = schema
    return found


def pods_of(document):
    """Pods of a LeaderWorkerSet, whose kind checkov does not know."""
    templates = document.get("spec", {}).get("leaderWorkerTemplate", {})
    for role in ("leader", "worker"):
        template = templates.get(f"{role}Template")
        if template:
            name = f"{document['metadata']['name']}-{role}"
            yield {"apiVersion": "v1", "kind": "Pod",
                   "metadata": {**template.get("metadata", {}), "name": name},
                   "spec": template["spec"]}


class Report:
    def __init__(self):
        self.num_failed = 0

    def tell(self, what, wrong):
        """`wrong`: sentences; none: it holds."""
        wrong = list(wrong)
        print(f"{'FAILED' if wrong else 'ok    '}  {what}")
        for sentence in wrong[:10]:
            print(f"        {sentence}")
        self.num_failed += bool(wrong)


def is_kubernetes(document):
    group = document["apiVersion"].rpartition("/")[0]
    return "." not in group or group.endswith(".k8s.io") and \
        not group.endswith(("gateway.networking.k8s.io",
                            "inference.networking.k8s.io"))


def schema_errors(document):
    import kubernetes_validate
    try:
        kubernetes_validate.validate(document, VERSION, strict=True)
    except Exception as error:  # its own class, by version
        yield f"{document['kind']}: {str(error)[:300]}"


def crd_errors(document, schemas):
    import jsonschema
    schema = schemas.get((document["apiVersion"], document["kind"]))
    if schema is None:
        yield (f"{document['kind']} of {document['apiVersion']} is in none of "
               "the definitions")
        return
    for error in jsonschema.Draft202012Validator(schema).iter_errors(document):
        where = "/".join(map(str, error.absolute_path))
        yield f"{document['kind']}: {where}: {error.message[:300]}"


def checkov_errors(checkov, text):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "rendered.yaml").write_text(text)
        done = subprocess.run(
            [checkov, "-d", folder, "--framework", "kubernetes", "-o", "json",
             "--quiet", "--compact", "--skip-check", ",".join(LEFT_OUT)],
            capture_output=True, text=True)
    report = json.loads(done.stdout)
    reports = report if isinstance(report, list) else [report]
    for each in reports:
        for failed in each.get("results", {}).get("failed_checks", []):
            yield (f"{failed['check_id']} {failed['check_name']}: "
                   f"{failed['resource']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--crds")
    options = parser.parse_args()
    have = {name for name in ("helm_python", "yaml", "kubernetes_validate",
                              "jsonschema") if importlib.util.find_spec(name)}
    if not {"helm_python", "yaml"} <= have:
        sys.exit("check: install helm-python-sdk and PyYAML first")
    import yaml
    checkov = shutil.which("checkov", path=str(
        pathlib.Path(sys.executable).parent)) or shutil.which("checkov")
    report = Report()
    texts = {f"the chart, {name}": render(values)
             for name, values in SETS.items()}
    for folder in ("kserve", "tensor-parallel"):
        for path in sorted((FOLDER / folder).glob("*.yaml")):
            texts[f"{folder}/{path.name}"] = path.read_text().replace(
                "image: IMAGE", "image: localhost/millrace:0")
    schemas = definitions(options.crds) if options.crds else None
    for name, text in texts.items():
        documents = [d for d in yaml.safe_load_all(text) if d]
        ours = [d for d in documents if is_kubernetes(d)]
        others = [d for d in documents if not is_kubernetes(d)]
        if ours and "kubernetes_validate" in have:
            report.tell(f"{name}: {len(ours)} objects fit the schemas of "
                        f"Kubernetes {VERSION}",
                        (e for d in ours for e in schema_errors(d)))
        if others and schemas and "jsonschema" in have:
            report.tell(f"{name}: {len(others)} objects fit the definitions of "
                        "their projects",
                        (e for d in others for e in crd_errors(d, schemas)))
        if ours and checkov:
            pods = yaml.safe_dump_all(
                [*documents, *(pod for d in others for pod in pods_of(d))])
            report.tell(f"{name}: checkov finds nothing",
                        checkov_errors(checkov, pods))
    for tool, missing in (("kubernetes-validate",
                           "kubernetes_validate" not in have),
                          ("definitions (--crds)", schemas is None),
                          ("checkov", not checkov)):
        if missing:
            print(f"SKIPPED {tool}: not there")
    print(f"{report.num_failed} failed")
    sys.exit(1 if report.num_failed else 0)


if __name__ == "__main__":
    main()
