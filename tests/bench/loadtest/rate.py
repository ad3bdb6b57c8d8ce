#!/usr/bin/env python3
"""How many requests one core of a client drives: millrace-loadtest and aiperf, in
turns, against nginx, which answers each chat with a constant.

    rate.py [--rounds 3] [--users 32] [--streaming]

Needs nginx, and aiperf in the Python that runs it. nginx has the first core, the
client the last one, with all its processes.
"""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import clients  # noqa: E402

ANSWER = ('{"id": "x", "object": "chat.completion", "created": 1, "model": '
          '"constant", "choices": [{"index": 0, "message": {"role": '
          '"assistant", "content": "yes"}, "finish_reason": "stop"}], "usage": '
          '{"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}}')
CHUNK = ('data: {"id": "x", "object": "chat.completion.chunk", "created": 1, '
         '"model": "constant", "choices": [{"index": 0, "delta": {"content": '
         '"yes "}, "finish_reason": null}]}\n\n')
USAGE = ('data: {"id": "x", "object": "chat.completion.chunk", "created": 1, '
         '"model": "constant", "choices": [], "usage": {"prompt_tokens": 5, '
         '"completion_tokens": 8, "total_tokens": 13}}\n\ndata: [DONE]\n\n')
CONFIG = """
worker_processes 1;
error_log stderr crit;
events { worker_connections 4096; }
http {
  access_log off;
  keepalive_requests 1000000000;
  TEMP
  server {
    listen 127.0.0.1:8096 reuseport;
    default_type TYPE;
    location / { return 200 'BODY'; }
  }
}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--users", type=int, default=32)
    parser.add_argument("--ours", type=int, default=200_000)
    parser.add_argument("--theirs", type=int, default=3000)
    parser.add_argument("--streaming", action="store_true")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    body = CHUNK * 8 + USAGE if options.streaming else ANSWER
    kind = "text/event-stream" if options.streaming else "application/json"
    rates = {"loadtest": [], "aiperf": []}
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        temp = "\n".join(f"  {part}_temp_path {folder}/{part};" for part in
                         ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (work / "nginx.conf").write_text(
            CONFIG.replace("TEMP", temp).replace("TYPE", kind)
            .replace("BODY", body))
        nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
        server = subprocess.Popen(
            ["taskset", "-c", str(cores[0]), nginx, "-p", folder, "-c",
             work / "nginx.conf", "-g", f"daemon off; pid {folder}/pid;"])
        try:
            time.sleep(1)
            url = "http://127.0.0.1:8096"
            urllib.request.urlopen(url).read()
            dataset = work / "prompts.jsonl"
            clients.write_dataset(dataset, ["What is the water cycle?"] * 100)
            for _ in range(options.rounds):
                for name, count in (("loadtest", options.ours),
                                    ("aiperf", options.theirs)):
                    got = getattr(clients, name)(
                        url, "constant", dataset, work, options.users, count,
                        None, cores[-1], streaming=options.streaming)
                    rates[name].append(got["requests/s"])
                    print(name, f"{got['requests/s']:.0f} requests/s",
                          flush=True)
        finally:
            server.terminate()
            server.wait()
    ours, theirs = (statistics.median(values) for values in rates.values())
    print(f"medians: millrace-loadtest {ours:.0f}, aiperf {theirs:.0f} "
          f"requests/s: {ours / theirs:.1f} times")


if __name__ == "__main__":
    main()
