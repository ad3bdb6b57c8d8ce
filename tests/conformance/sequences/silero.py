#!/usr/bin/env python3
"""Speech through Silero VAD, chunk by chunk as one sequence each, beside ONNX
Runtime: the probabilities must agree.

    silero.py MILLRACE MODEL.onnx SPEECH.wav [--minutes 60] [--streams 4]

The model is silero_vad.onnx of the package silero-vad, the speech 16 kHz mono
(espeak-ng -f TEXT -w SPEECH.wav, resampled). Needs numpy, onnxruntime and
tritonclient[grpc].
"""
import argparse
import pathlib
import queue
import shutil
import subprocess
import tempfile
import threading
import time
import wave

import numpy as np
import onnxruntime
import tritonclient.grpc as triton

CHUNK, CONTEXT, RATE = 512, 64, 16000
CONFIG = """
max_batch_size: 0
sequence_batching {
  max_sequence_idle_microseconds: 600000000
  oldest { max_candidate_sequences: 1000 }
  state { input_name: "state" output_name: "stateN" data_type: TYPE_FP32
          dims: [ 2, 1, 128 ] }
}
"""


def chunks_of(path, minutes):
    with wave.open(str(path)) as speech:
        assert speech.getframerate() == RATE and speech.getnchannels() == 1
        samples = np.frombuffer(speech.readframes(speech.getnframes()), "<i2")
    samples = samples.astype(np.float32) / 32768
    wanted = int(minutes * 60 * RATE) // CHUNK * CHUNK
    samples = np.resize(samples, wanted)  # repeated where it is shorter
    padded = np.concatenate([np.zeros(CONTEXT, np.float32), samples])
    return np.stack([padded[i:i + CONTEXT + CHUNK]
                     for i in range(0, wanted, CHUNK)])


def reference(model, chunks):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options)
    state, sr = np.zeros((2, 1, 128), np.float32), np.array(RATE, np.int64)
    out = []
    for chunk in chunks:
        probability, state = session.run(
            None, {"input": chunk[None], "state": state, "sr": sr})
        out.append(probability[0, 0])
    return np.array(out), state


def stream(port, chunks, streams):
    """The same chunks as so many sequences, each behind the last answer."""
    client = triton.InferenceServerClient(f"127.0.0.1:{port}")
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    sr = triton.InferInput("sr", [], "INT64")
    sr.set_data_from_numpy(np.array(RATE, np.int64))
    out = np.zeros((streams, len(chunks)), np.float32)

    def send(sequence, i):
        given = triton.InferInput("input", [1, CONTEXT + CHUNK], "FP32")
        given.set_data_from_numpy(chunks[i][None])
        client.async_stream_infer(
            "silero", [given, sr], sequence_id=sequence + 1,
            sequence_start=i == 0, sequence_end=i == len(chunks) - 1,
            request_id=f"{sequence}/{i}")

    begun = time.monotonic()
    for sequence in range(streams):
        send(sequence, 0)
    for _ in range(streams * len(chunks)):
        result, error = answers.get(timeout=60)
        if error is not None:
            raise SystemExit(error)
        sequence, i = map(int, result.get_response().id.split("/"))
        out[sequence, i] = result.as_numpy("output")[0, 0]
        if i + 1 < len(chunks):
            send(sequence, i + 1)
    client.stop_stream()
    return out, time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("millrace")
    parser.add_argument("model")
    parser.add_argument("speech")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--streams", type=int, default=1)
    args = parser.parse_args()
    chunks = chunks_of(args.speech, args.minutes)
    with tempfile.TemporaryDirectory() as root:
        folder = pathlib.Path(root) / "silero" / "1"
        folder.mkdir(parents=True)
        shutil.copy(args.model, folder / "model.onnx")
        (folder.parent / "config.pbtxt").write_text(CONFIG)
        server = subprocess.Popen(
            [args.millrace, "serve", "--http-port", "0", "--grpc-port", "18788",
             "--model-repository", root, "--log-format", "json"],
            stderr=subprocess.PIPE, text=True)
        try:
            for line in server.stderr:
                if '"event":"ready"' in line.replace(" ", ""):
                    break
            else:
                raise SystemExit("the server did not start")
            threading.Thread(target=server.stderr.read, daemon=True).start()
            got, seconds = stream(18788, chunks, args.streams)
        finally:
            server.kill()
            server.wait()
    want, _ = reference(args.model, chunks)
    worst = float(np.abs(got - want).max())
    speech = float((want > 0.5).mean())
    print(f"{args.streams} x {args.minutes:g} minutes, {len(chunks)} chunks "
          f"each, {100 * speech:.0f} % speech: largest difference {worst:.2e}; "
          f"{seconds:.1f} s, real-time factor "
          f"{seconds / (args.streams * args.minutes * 60):.5f}")
    if worst > 1e-3:
        raise SystemExit("the probabilities differ")


if __name__ == "__main__":
    main()
