#!/usr/bin/env bash
# TorchServe's command line for scripts that call it: `torchserve.sh --start …` runs
# `millrace serve --profile torchserve …` in the background until /ping answers,
# `torchserve.sh --stop` ends it when the running requests have ended, --foreground
# stays. MILLRACE names the program, MILLRACE_PID_FILE and LOG_LOCATION (a folder)
# the files that are written.
set -euo pipefail

millrace=${MILLRACE:-millrace}
pid_file=${MILLRACE_PID_FILE:-${TMPDIR:-/tmp}/.model_server.pid}
log=${LOG_LOCATION:-logs}/millrace.log

running() {
    [[ -s $pid_file ]] && pid=$(<"$pid_file") && kill -0 "$pid" 2> /dev/null
}

background=true
for word in "$@"; do
    case $word in
    --stop)
        if ! running; then
            echo "No server is running."
            rm -f "$pid_file"
            exit 0
        fi
        kill "$pid"
        while kill -0 "$pid" 2> /dev/null; do sleep 0.1; done
        rm -f "$pid_file"
        echo "The server has stopped."
        exit 0
        ;;
    -v | --version) exec "$millrace" --version ;;
    -h | --help) exec "$millrace" serve --help ;;
    --foreground) background=false ;;
    esac
done
if running; then
    echo "A server runs already (process $pid); --stop ends it." >&2
    exit 1
fi
if ! $background; then
    exec "$millrace" serve --profile torchserve "$@"
fi
mkdir -p "$(dirname "$log")"
begin=$( (wc -c < "$log") 2> /dev/null || echo 0)
nohup "$millrace" serve --profile torchserve "$@" >> "$log" 2>&1 < /dev/null &
pid=$!
echo "$pid" > "$pid_file"
until tail -c "+$((begin + 1))" "$log" | grep -q 'ready.*http_port'; do
    if ! kill -0 "$pid" 2> /dev/null; then
        rm -f "$pid_file"
        tail -c "+$((begin + 1))" "$log" >&2
        exit 1
    fi
    sleep 0.1
done
