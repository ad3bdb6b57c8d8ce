#!/usr/bin/env python3
"""Restarts three replicas behind a proxy, one after the other, again and again,
under so many streams for so long, and tells how the streams ended. Ends with 1
when a stream that was answered broke off, or a refusal was not retryable.

    tests/bench/replicas.py haproxy|nginx [--streams 50] [--seconds 60]

Needs the packages of tests/requirements.txt, and the proxy.
"""
import argparse
import collections
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from replicas import PROXIES, Clients, Fleet, until  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("proxy", choices=PROXIES)
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--tokens", type=int, default=32)
    options = parser.parse_args()
    restarts = 0
    with tempfile.TemporaryDirectory() as folder, \
            Fleet(options.proxy, folder) as fleet:
        began = time.monotonic()
        with Clients(fleet, options.streams, options.tokens) as clients:
            while time.monotonic() - began < options.seconds or restarts < 3:
                since = len(clients.ended)
                until(lambda: clients.done_by(restarts % 3, since) > 0)
                fleet.restart(restarts % 3)
                restarts += 1
        seconds = time.monotonic() - began
    ends = collections.Counter(stream.end for stream in clients.ended)
    print(f"{options.proxy}: {options.streams} streams, {restarts} restarts in "
          f"{seconds:.0f} s: " +
          ", ".join(f"{count} {end}" for end, count in ends.most_common()))
    for stream in clients.ended:
        if stream.end not in ("done", 429, 503):
            print(f"  {stream.end} after {stream.chunks} chunks of replica "
                  f"{stream.replica}: {stream.why}")
    return 0 if set(ends) <= {"done", 429, 503} else 1


if __name__ == "__main__":
    sys.exit(main())
