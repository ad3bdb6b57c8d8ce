#!/usr/bin/env bash
# Runs an image built by build.sh as a careful operator would, and tells what
# holds. Needs podman; says so and ends with 0 where it is missing.
#
#   deploy/container/test.sh [IMAGE] [--model FILE]
#
# IMAGE is the one without a model (default localhost/millrace:VERSION); FILE, by
# default the default model of the cache, is mounted into it read-only.
set -uo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
version=$(sed -n 's/^project(millrace VERSION \([0-9.]*\).*/\1/p' "$repo/CMakeLists.txt")
image=localhost/millrace:$version
cache=${MILLRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace}
model=$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf
while [ $# -gt 0 ]; do
  case $1 in
    --model) model=${2:?--model needs a file}; shift ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "test.sh: there is no option $1; see --help" >&2; exit 2 ;;
    *) image=$1 ;;
  esac
  shift
done
for tool in podman curl python3; do
  command -v "$tool" >/dev/null || { echo "SKIPPED: $tool is not installed"; exit 0; }
done
export CONTAINERS_CONF=${CONTAINERS_CONF:-$repo/deploy/container/containers.conf}

failures=0
name=millrace-test-$$
port=18800
careful=(--read-only --cap-drop=ALL --security-opt no-new-privileges --user 1000
  --volume "$model:/var/lib/millrace/models/$(basename "$model"):ro"
  --env "MILLRACE_HTTP_PORT=$port" --env MILLRACE_NO_AUTH=true)
work=$(mktemp -d)
cleanup() { podman rm -f -t 0 "$name" >/dev/null 2>&1; rm -rf "$work"; }
trap cleanup EXIT

# check SENTENCE COMMAND…
check() {
  local sentence=$1
  shift
  if "$@" >"$work/out" 2>&1; then
    echo "ok      $sentence"
  else
    echo "FAILED  $sentence"
    sed 's/^/        /' "$work/out" | tail -n 5
    failures=$((failures + 1))
  fi
}

inspect() { podman image inspect --format "$1" "$image"; }
at_most() { [ "$1" -le "$2" ] || { echo "$1 > $2"; return 1; }; }
equals() { [ "$1" = "$2" ] || { echo "'$1' is not '$2'"; return 1; }; }
says() { grep -qF -- "$1" <<<"$2" || { echo "no '$1' in: $2"; return 1; }; }
ready() {
  local tries=100
  until podman exec "$name" /usr/bin/millrace health; do
    sleep 0.1
    [ $((tries -= 1)) -gt 0 ] || { podman logs "$name" | tail -n 3; return 1; }
  done
}
now() { date +%s%3N; }

check "the image is at most 60 MB" at_most "$(inspect '{{.Size}}')" 60000000
check "its user is not root" equals "$(inspect '{{.User}}')" 1000:1000
check "its health check is the program" says "millrace health" \
  "$(inspect '{{.HealthCheck.Test}}')"
check "its labels tell the version" equals \
  "$(inspect '{{index .Labels "org.opencontainers.image.version"}}')" "$version"
check "there is no shell" equals 127 \
  "$(podman run --rm --entrypoint /bin/sh "$image" -c true >/dev/null 2>&1; echo $?)"
check "without a key it does not start, and says what to do" says "api_key" \
  "$(podman run --rm --network none \
    --volume "$model:/var/lib/millrace/models/$(basename "$model"):ro" "$image" 2>&1)"
check "it sees the memory and the cores of its container" \
  says "CPU limit 1, memory limit 512 MiB" \
  "$(podman run --rm --network none --memory 512m --cpus 1 "$image" topology 2>&1)"

for network in none host bridge slirp4netns; do
  podman rm -f -t 0 "$name" >/dev/null 2>&1
  began=$(now)
  check "starts on network $network" podman run -d --name "$name" \
    --network "$network" "${careful[@]}" "$image"
  check "  is ready" ready
  check "  passes its health check" podman healthcheck run "$name"
  check "  answers a chat" podman exec "$name" /usr/bin/millrace chat \
    --url "http://127.0.0.1:$port" --max-tokens 1 'Name a river.'
  echo "        $(($(now) - began)) ms from podman run to the first token"
done

# Five starts on the host's network, each to its first token.
times=()
for _ in 1 2 3 4 5; do
  podman rm -f -t 0 "$name" >/dev/null 2>&1
  began=$(now)
  podman run -d --name "$name" --network host "${careful[@]}" "$image" >/dev/null 2>&1
  until curl -fsN "http://127.0.0.1:$port/v1/completions" \
    -H 'Content-Type: application/json' -o "$work/first" \
    -d "{\"model\": \"$(basename "$model" .gguf)\", \"prompt\": \"Once\",
         \"max_tokens\": 1, \"stream\": true}" 2>/dev/null; do
    sleep 0.02
    [ $(($(now) - began)) -lt 20000 ] || break
  done
  times+=($(($(now) - began)))
done
mapfile -t sorted < <(printf '%s\n' "${times[@]}" | sort -n)
check "first token within 3 s of podman run (p50 of 5: ${sorted[2]} ms)" \
  at_most "${sorted[2]}" 3000

# A stream is under way when the container is told to stop.
curl -sN "http://127.0.0.1:$port/v1/completions" \
  -H 'Content-Type: application/json' -o "$work/stream" \
  -d "{\"model\": \"$(basename "$model" .gguf)\", \"prompt\": \"Once\",
       \"max_tokens\": 200, \"ignore_eos\": true, \"stream\": true}" &
client=$!
until [ -s "$work/stream" ]; do sleep 0.02; done
podman stop -t 40 "$name" >/dev/null 2>&1
wait "$client"
check "SIGTERM lets a running stream finish" grep -q '^data: \[DONE\]' "$work/stream"
check "  and the container ends with 0" equals \
  "$(podman inspect --format '{{.State.ExitCode}}' "$name")" 0

echo "$failures failed"
[ "$failures" -eq 0 ]
