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

# Whether `millrace health` finds a server that is ready at one of the addresses
# (HEX:PORT of /proc) where the process listens, with TLS or without.
is_ready() {
    local inodes address bytes host port url
    inodes=$(readlink "/proc/$pid"/fd/* 2> /dev/null |
        sed -n 's/^socket:\[\([0-9]*\)\]$/\1/p' | tr '\n' ' ' || true)
    for address in $(cat "/proc/$pid"/net/tcp{,6} 2> /dev/null |
        awk -v inodes="$inodes" 'BEGIN { split(inodes, list)
                                         for (i in list) own[list[i]] = 1 }
                                 $4 == "0A" && $10 in own { print $2 }' || true); do
        port=$((16#${address#*:}))
        # Words of four bytes, the last byte first.
        bytes=$(sed 's/:.*//; s/\(..\)\(..\)\(..\)\(..\)/\4\3\2\1/g' <<< "$address")
        case $bytes in
        00000000) host=127.0.0.1 ;;
        00000000000000000000000000000000) host="[::1]" ;;
        ????????) host=$(printf '%d.%d.%d.%d' "0x${bytes:0:2}" "0x${bytes:2:2}" \
            "0x${bytes:4:2}" "0x${bytes:6:2}") ;;
        *) host="[$(sed 's/..../&:/g; s/:$//' <<< "$bytes")]" ;;
        esac
        for url in "http://$host:$port" "https://$host:$port"; do
            if "$millrace" health --url "$url" --insecure > /dev/null 2>&1; then
                return 0
            fi
        done
    done
    return 1
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
# The line is not written at every log level; a server that asks for certificates
# of clients says "ready" there alone. grep reads all, so that tail can write all.
until tail -c "+$((begin + 1))" "$log" | grep 'ready.*http_port' > /dev/null || is_ready; do
    if ! kill -0 "$pid" 2> /dev/null; then
        rm -f "$pid_file"
        tail -c "+$((begin + 1))" "$log" >&2
        exit 1
    fi
    sleep 0.1
done
