#!/usr/bin/env bash
# From a bare Debian 12 to a streaming chat: installs what is missing, builds,
# starts the server with the default model, streams a first answer, and stays.
#
#   deploy/quickstart.sh [--once] [--port N] [MODEL.gguf]
#
# --once ends the server after the first answer. A second run needs no network.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
port=8000
once=false
model=()
while [ $# -gt 0 ]; do
  case $1 in
    --once) once=true ;;
    --port) port=${2:?--port needs a number}; shift ;;
    -h|--help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "quickstart: there is no option $1; see --help" >&2; exit 2 ;;
    *) model=("$1") ;;
  esac
  shift
done

"$repo/deploy/install_deps.sh" --no-tests

cd "$repo"
export CCACHE_BASEDIR=$repo CCACHE_NOHASHDIR=1
if [ ! -f build/release/build.ninja ]; then
  echo "Configuring (build/release)"
  cmake --preset release >/dev/null
fi
cmake --build build/release --target millrace
bin=$repo/build/release/bin/millrace

url=http://127.0.0.1:$port
"$bin" serve --http-port "$port" "${model[@]}" &
server=$!
stop() { kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
trap stop EXIT
tries=600
until curl -fs "$url/health" >/dev/null 2>&1; do
  kill -0 "$server" 2>/dev/null || { echo "quickstart: the server ended, see above" >&2; exit 1; }
  [ $((tries -= 1)) -gt 0 ] || { echo "quickstart: $url/health did not answer within a minute" >&2; exit 1; }
  sleep 0.1
done
id=$(curl -fs "$url/v1/models" | python3 -c 'import json,sys; print(json.load(sys.stdin)["data"][0]["id"])')

# One that so small a model answers truly.
question="What is the water cycle? Answer in one sentence."
printf '\n> %s\n' "$question"
"$bin" chat --url "$url" --model "$id" --max-tokens 120 "$question"

cat <<EOF

Ask it yourself:

  $bin chat --url $url

  curl -N $url/v1/chat/completions -H 'Content-Type: application/json' -d '{
    "model": "$id", "stream": true,
    "messages": [{"role": "user", "content": "What is photosynthesis?"}]}'

  from openai import OpenAI
  client = OpenAI(base_url="$url/v1", api_key="none")
  print(client.chat.completions.create(model="$id",
        messages=[{"role": "user", "content": "What is photosynthesis?"}]
        ).choices[0].message.content)

Metrics: $url/metrics
EOF
if $once; then exit 0; fi
echo "Serving on $url; Ctrl-C ends it."
wait "$server"
