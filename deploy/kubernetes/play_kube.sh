#!/usr/bin/env bash
# Runs the Deployment that the chart renders on this machine's podman, without a
# cluster, and asks it for a chat: the nearest thing to Kubernetes here.
#
#   deploy/kubernetes/play_kube.sh [IMAGE]
#
# IMAGE holds the default model (build.sh --model --tag NAME:TAG; default
# localhost/millrace-model:VERSION). PYTHON names an interpreter that has what
# render.py needs. Ends with 0 and says SKIPPED where a tool is missing.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
version=$(sed -n 's/^project(millrace VERSION \([0-9.]*\).*/\1/p' "$repo/CMakeLists.txt")
image=${1:-localhost/millrace-model:$version}
python=${PYTHON:-python3}
for tool in podman curl; do
  command -v "$tool" >/dev/null || { echo "SKIPPED: $tool is not installed"; exit 0; }
done
"$python" -c 'import helm_python, yaml' 2>/dev/null ||
  { echo "SKIPPED: $python lacks helm-python-sdk or PyYAML"; exit 0; }
export CONTAINERS_CONF=${CONTAINERS_CONF:-$repo/deploy/container/containers.conf}

work=$(mktemp -d)
cleanup() {
  podman play kube --down "$work/all.yaml" >/dev/null 2>&1 || true
  podman secret rm play-keys >/dev/null 2>&1 || true
  podman volume rm play-keys play-millrace >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT

"$python" "$repo/deploy/kubernetes/render.py" --name play \
  --set "image.repository=${image%:*}" --set "image.tag=\"${image##*:}\"" \
  --set replicas=1 --set auth.existingSecret=play-keys \
  --set resources.cpu=1 --set resources.memory=1Gi \
  --set service.httpPort=18900 --set service.grpcPort=-1 >"$work/rendered.yaml"
"$python" - "$work/rendered.yaml" >"$work/all.yaml" <<'PY'
import sys

import yaml

# podman runs pods; policies and services are for a cluster, so the pod's ports
# become ports of this machine.
documents = [d for d in yaml.safe_load_all(open(sys.argv[1]))
             if d["kind"] in ("ConfigMap", "Deployment")]
for document in documents:
    if document["kind"] == "Deployment":
        container, = document["spec"]["template"]["spec"]["containers"]
        for port in container["ports"]:
            port["hostPort"] = port["containerPort"]
documents.insert(0, {"apiVersion": "v1", "kind": "Secret",
                     "metadata": {"name": "play-keys"},
                     "data": {"keys": "cGxheS1rZXktb2YtdGhpcy10ZXN0"}})
yaml.safe_dump_all(documents, sys.stdout, sort_keys=False)
PY

podman play kube "$work/all.yaml" >"$work/log" 2>&1 || { head -n 5 "$work/log"; exit 1; }
url=http://127.0.0.1:18900
tries=300
until curl -fs "$url/health" >/dev/null; do
  sleep 0.1
  if [ $((tries -= 1)) -le 0 ]; then
    echo "the pod is not ready after 30 s:" >&2
    for container in $(podman ps -aq --filter name=play-millrace); do
      podman logs "$container" 2>&1 | tail -n 5 >&2
    done
    exit 1
  fi
done
ask() {
  curl -s -o "$work/answer" -w '%{http_code}' "$url/v1/chat/completions" "$@" \
    -H 'Content-Type: application/json' -d '{"model": "smollm2",
      "max_tokens": 16, "temperature": 0,
      "messages": [{"role": "user", "content": "Which city is the capital of Japan?"}]}'
}
code=$(ask)
[ "$code" = 401 ] || { echo "without a key the answer was $code, not 401"; exit 1; }
echo "ok  a request without the secret's key is refused with 401"
# podman 4.3 mounts a secret as it is written, later ones decode it first.
for key in play-key-of-this-test cGxheS1rZXktb2YtdGhpcy10ZXN0; do
  code=$(ask -H "Authorization: Bearer $key")
  [ "$code" = 401 ] || break
done
[ "$code" = 200 ] && grep -q Tokyo "$work/answer" ||
  { echo "with the key the answer was $code: $(cat "$work/answer")"; exit 1; }
echo "ok  the pod of the rendered Deployment answers a chat"
