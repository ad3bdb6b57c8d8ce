#!/usr/bin/env python3
"""How many live streams of Silero VAD keep real time through WebSocket sessions
of a server on one core.

  pip install numpy websockets silero-vad     (the last one without its torch)
  tests/bench/sessions.py [build/release/bin/millrace]
      [--streams 25 50 100 ...] [--seconds 10] [--core 0] [--client-core 1]

Each stream sends 512 samples of 16 bits every 32 ms, as a microphone does, at a
phase of its own; a chunk is sent when its time has come, whether or not the one
before was answered. A stream keeps real time where each answer is there before
the next chunk is due. Prints, for each number of streams, the time from a
chunk's due time to its answer, the share of answers that took longer than
32 ms, how busy the server's core was, and compute time by sound from the
server's metrics. The client has a core of its own; where it is late itself,
that counts against the server.
"""
import argparse
import asyncio
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import urllib.request

import numpy as np
from websockets.asyncio.client import connect

CONFIG = """
sequence_batching:
  max_sequence_idle_microseconds: 60000000
  oldest: {max_candidate_sequences: 4096}
  state:
    - {input_name: state, output_name: stateN, data_type: TYPE_FP32, dims: [2, 1, 128]}
session: {input: input, encoding: pcm16, context: 64, sample_rate: 16000}
"""
RATE = json.dumps({"type": "session.update", "inputs": [
    {"name": "sr", "datatype": "INT64", "shape": [], "data": [16000]}]})
CHUNK, PERIOD = 512, 0.032
SPEECH = pathlib.Path(__file__).parents[1] / "data" / "audio" / "silero.npz"


class Server:
    def __init__(self, binary, core, folder):
        model = folder / "vad"
        (model / "1").mkdir(parents=True)
        (model / "config.yaml").write_text(CONFIG)
        silero = pathlib.Path(importlib.util.find_spec(
            "silero_vad").submodule_search_locations[0])
        (model / "1" / "model.onnx").write_bytes(
            (silero / "data" / "silero_vad.onnx").read_bytes())
        self.process = subprocess.Popen(
            ["taskset", "-c", str(core), binary, "serve", "--model-repository",
             folder, "--http-port", "0", "--grpc-port", "-1", "--log-format",
             "json", "--max-sessions", "4096"],
            stderr=subprocess.PIPE, text=True)
        self.port = None
        for line in self.process.stderr:
            event = json.loads(line)
            if event.get("event") == "ready":
                self.port = event["http_port"]
                break
        assert self.port is not None, "the server did not start"

    def metric(self, name):
        url = f"http://127.0.0.1:{self.port}/metrics"
        with urllib.request.urlopen(url) as answer:
            text = answer.read().decode()
        found = re.search(rf"^{name}\S* (\S+)$", text, re.M)
        return float(found[1]) if found else 0.0

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text()
        ticks = fields.rsplit(")", 1)[1].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


async def stream(port, speech, begin, end, late):
    """Adds the seconds from each chunk's due time to its answer."""
    url = f"ws://127.0.0.1:{port}/v2/models/vad/sessions"
    async with connect(url, compression=None, open_timeout=60) as session:
        await session.send(RATE)
        await session.recv()
        due = []

        async def hear():
            async for answer in session:
                assert "outputs" in answer, answer
                late.append(time.monotonic() - due[len(late)])

        late = late.setdefault(begin, [])
        hearing = asyncio.create_task(hear())
        at = begin
        while at < end:
            await asyncio.sleep(max(0, at - time.monotonic()))
            i = len(due) % (len(speech) // CHUNK)
            due.append(at)
            await session.send(speech[CHUNK * i: CHUNK * (i + 1)].tobytes())
            at += PERIOD
        while len(late) < len(due) and not hearing.done():
            await asyncio.sleep(0.01)
        hearing.cancel()


async def run(server, speech, num_streams, seconds):
    begin = time.monotonic() + 1 + num_streams / 200
    late = {}
    streams = [asyncio.create_task(stream(
        server.port, speech, begin + PERIOD * i / num_streams,
        begin + seconds, late)) for i in range(num_streams)]
    await asyncio.sleep(begin - time.monotonic())
    cpu = server.cpu_seconds()
    await asyncio.sleep(seconds)
    cpu = server.cpu_seconds() - cpu
    await asyncio.gather(*streams)
    return np.concatenate([late[key] for key in late]), cpu / seconds


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("binary", nargs="?",
                        default="build/release/bin/millrace")
    parser.add_argument("--streams", type=int, nargs="+",
                        default=[25, 50, 100, 150, 200])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.client_core})
    speech = np.load(SPEECH)["speech/16000"]
    with tempfile.TemporaryDirectory() as folder:
        server = Server(args.binary, args.core, pathlib.Path(folder))
        try:
            print("streams  p50 ms  p99 ms  max ms  over 32 ms  core busy  "
                  "compute/sound")
            for num_streams in args.streams:
                names = ("millrace_session_compute_seconds_total",
                         "millrace_session_audio_seconds_total")
                before = [server.metric(name) for name in names]
                late, busy = asyncio.run(run(server, speech, num_streams,
                                             args.seconds))
                compute, sound = (server.metric(name) - b
                                  for name, b in zip(names, before))
                p50, p99 = np.percentile(late, [50, 99]) * 1e3
                print(f"{num_streams:7d} {p50:7.2f} {p99:7.2f} "
                      f"{late.max() * 1e3:7.2f} {np.mean(late > PERIOD):10.3%} "
                      f"{busy:10.0%} {compute / sound:14.4f}", flush=True)
        finally:
            server.process.terminate()
            server.process.wait()


if __name__ == "__main__":
    main()
