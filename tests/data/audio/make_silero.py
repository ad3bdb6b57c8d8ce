"""Makes silero.npz: speech by espeak-ng, and what onnxruntime makes of it with
Silero VAD, chunk by chunk.

    apt install espeak-ng; pip install numpy soxr soundfile onnxruntime silero-vad
    python make_silero.py

speech/RATE  samples, INT16
probs/RATE   the probability of speech in each chunk: 512 samples at 16000 Hz,
             256 at 8000. The model is given the last 64 (32) samples of the
             chunk before, too, as silero_vad's OnnxWrapper does.
"""
import importlib.util
import pathlib
import subprocess
import tempfile

import numpy as np
import onnxruntime
import soundfile
import soxr

HERE = pathlib.Path(__file__).parent
TEXT = "The mill grinds slowly. [[pause]] It grinds exceedingly small."

with tempfile.NamedTemporaryFile(suffix=".wav") as file:
    subprocess.run(["espeak-ng", "-v", "en", "-s", "150", "-w", file.name,
                    TEXT.replace("[[pause]]", "")], check=True)
    samples, rate = soundfile.read(file.name, dtype="float32")
quiet = np.zeros(rate // 2, np.float32)
half = len(samples) // 2
samples = np.concatenate([quiet, samples[:half], quiet, samples[half:], quiet])
samples += 1e-3 * np.random.default_rng(3).standard_normal(len(samples))

folder = pathlib.Path(
    importlib.util.find_spec("silero_vad").submodule_search_locations[0])
session = onnxruntime.InferenceSession(folder / "data" / "silero_vad.onnx")
out = {}
for rate_out, chunk, context in [(16000, 512, 64), (8000, 256, 32)]:
    wave = soxr.resample(samples, rate, rate_out)
    wave = np.clip(np.round(wave * 32767), -32768, 32767).astype(np.int16)
    wave = wave[: len(wave) // chunk * chunk]
    before = np.zeros((1, context), np.float32)
    state = np.zeros((2, 1, 128), np.float32)
    probs = []
    for at in range(0, len(wave), chunk):
        x = wave[at: at + chunk].astype(np.float32)[None] / 32768
        x = np.concatenate([before, x], 1)
        prob, state = session.run(None, {
            "input": x, "state": state, "sr": np.array(rate_out, np.int64)})
        before = x[:, -context:]
        probs.append(prob[0, 0])
    out[f"speech/{rate_out}"] = wave
    out[f"probs/{rate_out}"] = np.array(probs, np.float32)
    print(rate_out, len(probs), min(probs), max(probs),
          np.mean(np.array(probs) > 0.5))
np.savez_compressed(HERE / "silero.npz", **out)
print((HERE / "silero.npz").stat().st_size)
