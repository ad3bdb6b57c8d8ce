#!/usr/bin/env python3
"""The real-time factor of a streaming recogniser on one core: compute time by
the time of the sound, and the time from a chunk of 160 ms to its answer.

  python3 handlers/transducer/export_rnnt.py /tmp/asr --random 4097
  tests/bench/recogniser.py /tmp/asr [build/release/bin/millrace]
      [--seconds 20] [--chunk-ms 160] [--beam-width 1 4 10] [--core 0]
      [--precision bf16]

Sends speech chunk by chunk over a WebSocket session, each when the answer to
the one before is there. Random weights cost what trained ones do but for the
search, which has more tokens to follow: how many it found is printed. Needs
numpy and websockets. The client has the other cores.
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request

import numpy as np
from websockets.sync.client import connect

SPEECH = pathlib.Path(__file__).parents[1] / "data" / "audio" / "silero.npz"
RATE = 16000


def put(source, folder, beam_width, precision):
    """The model with that beam and precision; its graphs are linked, not copied."""
    (folder / "asr").mkdir(parents=True)
    for path in source.iterdir():
        if path.is_file():
            shutil.copy(path, folder / "asr")
    (folder / "asr" / "1").symlink_to((source / "1").resolve())
    config = folder / "asr" / "config.yaml"
    text = re.sub(r"^(  beam_width|precision):.*\n", "", config.read_text(),
                  flags=re.M)
    text = text.replace(
        "task_options:\n", f"task_options:\n  beam_width: {beam_width}\n", 1)
    config.write_text(text + f"precision: {precision}\n")


def serve(binary, core, folder):
    process = subprocess.Popen(
        ["taskset", "-c", str(core), binary, "serve", "--model-repository",
         folder, "--http-port", "0", "--grpc-port", "-1", "--log-format",
         "json"], stderr=subprocess.PIPE, text=True)
    lines = []
    for line in process.stderr:
        lines.append(line)
        event = json.loads(line)
        if event.get("event") == "ready":
            return process, event["http_port"]
    raise SystemExit("the server did not start:\n" + "".join(lines))


def metric(port, name):
    url = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(url) as answer:
        text = answer.read().decode()
    return float(re.search(rf"^{name}\S* (\S+)$", text, re.M)[1])


def measure(port, sound, chunk):
    """Seconds of each chunk, and the text."""
    took = []
    url = f"ws://127.0.0.1:{port}/v2/models/asr/sessions"
    with connect(url, compression=None, open_timeout=60) as session:
        for at in range(0, len(sound) - chunk + 1, chunk):
            begin = time.perf_counter()
            session.send(sound[at: at + chunk].tobytes())
            answer = json.loads(session.recv())
            took.append(time.perf_counter() - begin)
            assert "outputs" in answer, answer
    return np.array(took), answer["outputs"][0]["data"][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("binary", nargs="?",
                        default="build/release/bin/millrace")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--chunk-ms", type=int, default=160)
    parser.add_argument("--beam-width", type=int, nargs="+", default=[1, 4, 10])
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--precision", default="auto")
    args = parser.parse_args()
    speech = np.load(SPEECH)["speech/16000"]
    sound = np.resize(speech, int(args.seconds * RATE))
    chunk = args.chunk_ms * RATE // 1000
    print(f"{'beam':>4} {'compute/sound':>13} {'wall/sound':>10} "
          f"{'median ms':>9} {'p99 ms':>7} {'words':>6}")
    for width in args.beam_width:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            put(args.model, folder, width, args.precision)
            process, port = serve(args.binary, args.core, folder)
            try:
                measure(port, sound[:RATE], chunk)  # plans and caches
                names = [f"millrace_transcribe_{kind}_seconds_total"
                         for kind in ("compute", "audio")]
                before = [metric(port, name) for name in names]
                took, text = measure(port, sound, chunk)
                compute, audio = [metric(port, name) - old
                                  for name, old in zip(names, before)]
            finally:
                process.terminate()
                process.wait()
        print(f"{width:4} {compute / audio:13.3f} "
              f"{took.sum() / (len(took) * chunk / RATE):10.3f} "
              f"{np.median(took) * 1e3:9.1f} "
              f"{np.percentile(took, 99) * 1e3:7.1f} "
              f"{len(text.split()):6}", flush=True)


if __name__ == "__main__":
    main()
