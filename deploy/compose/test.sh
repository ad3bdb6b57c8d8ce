#!/usr/bin/env bash
# Starts the file's services, asks them through HAProxy, stops one server in the
# middle of 40 streams, and tells what holds. Says SKIPPED where podman or
# podman-compose is missing.
#
#   deploy/compose/test.sh ENV_FILE     (a filled copy of example.env)
set -uo pipefail

folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
env_file=$(realpath "${1:?name a filled copy of example.env}")
compose=${COMPOSE:-podman-compose}
for tool in podman "$compose" curl python3; do
  command -v "$tool" >/dev/null || { echo "SKIPPED: $tool is not installed"; exit 0; }
done
export CONTAINERS_CONF=${CONTAINERS_CONF:-$folder/../container/containers.conf}
key=$(sed -n 's/^MILLRACE_API_KEY=//p' "$env_file")
url=http://127.0.0.1:8000
work=$(mktemp -d)
cd "$folder" || exit 1
run() { "$compose" --env-file "$env_file" "$@" >"$work/log" 2>&1; }
cleanup() { run down -v; rm -rf "$work"; }
trap cleanup EXIT

failures=0
# expect SENTENCE WANTED FOUND
expect() {
  if [ "$2" = "$3" ]; then
    echo "ok      $1"
  else
    echo "FAILED  $1: $3 instead of $2"
    failures=$((failures + 1))
  fi
}
status() { curl -s -o /dev/null -w '%{http_code}' "$@"; }
post() {
  curl -sN "$url/v1/completions" -H "Authorization: Bearer $key" \
    -H 'Content-Type: application/json' "$@"
}

run up -d || { tail -n 5 "$work/log"; exit 1; }
tries=300
until [ "$(status -H "Authorization: Bearer $key" "$url/v1/models")" = 200 ] &&
  podman exec millrace_server-1_1 /usr/bin/millrace health 2>/dev/null &&
  podman exec millrace_server-2_1 /usr/bin/millrace health 2>/dev/null; do
  sleep 0.2
  [ $((tries -= 1)) -gt 0 ] || { echo "nothing answers at $url"; exit 1; }
done
model=$(curl -s -H "Authorization: Bearer $key" "$url/v1/models" |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["data"][0]["id"])')
expect "a request without a key is refused" 401 "$(status "$url/v1/models")"
expect "metrics are not for clients" 404 "$(status "$url/metrics")"

for i in $(seq 40); do
  post -o "$work/$i" -d "{\"model\": \"$model\", \"prompt\": \"Once\",
    \"max_tokens\": 60, \"ignore_eos\": true, \"stream\": true}" &
  clients+=($!)
  sleep 0.2
  if [ "$i" = 15 ]; then
    podman stop -t 40 millrace_server-1_1 >/dev/null 2>&1 &
  fi
done
wait "${clients[@]}"
expect "all of 40 streams end whole while a server stops" 40 \
  "$(cd "$work" && grep -l '^data: \[DONE\]' [0-9]* | wc -l)"
expect "the stopped server ended with 0" 0 \
  "$(podman inspect --format '{{.State.ExitCode}}' millrace_server-1_1)"

sleep 15 # one scrape
expect "Prometheus sees one server of two" 1 "$(
  curl -s 'http://127.0.0.1:9090/api/v1/query' --data-urlencode \
    'query=sum(up{job="millrace"})' |
    python3 -c 'import json, sys
print(json.load(sys.stdin)["data"]["result"][0]["value"][1])')"
echo "$failures failed"
[ "$failures" -eq 0 ]
