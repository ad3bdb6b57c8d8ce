#!/usr/bin/env python3
"""Recordings as our server reads them, beside soundfile (samples), soxr (another
rate) and transformers (WhisperFeatureExtractor, and audio_utils with the options of
torchaudio's MelSpectrogram). recordings.sh runs it.

The files are made here: WAV of every kind that is read, RF64, WAVE_FORMAT_EXTENSIBLE
and FLAC, 1000 to 384000 Hz, 1 to 16 channels, of 1 sample to some seconds; and those
of SciPy's own tests, which are odd: chunks that are cut off, sizes that lie, samples
of 5 bits. What soundfile reads and we refuse, or the other way round, is listed.
"""
import argparse
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np
import scipy.io
import soundfile
import soxr
from transformers import WhisperFeatureExtractor
from transformers.audio_utils import (mel_filter_bank, spectrogram,
                                      window_function)

RATE = 16000
KINDS = [("WAV", kind) for kind in (
    "PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW")] + [
    ("WAVEX", "PCM_16"), ("WAVEX", "FLOAT"), ("RF64", "PCM_24"),
    ("FLAC", "PCM_S8"), ("FLAC", "PCM_16"), ("FLAC", "PCM_24")]
RATES = [8000, 11025, 16000, 22050, 24000, 32000, 44100, 48000, 96000, 192000]
ODD_RATES = [1000, 7919, 16001, 384000]
HTK = mel_filter_bank(201, 80, 0, RATE / 2, RATE, norm=None, mel_scale="htk")
HANN = window_function(400, "hann")


def sound(rng, rate, channels, kind, seconds):
    """Of voices, sweeps, noise, clicks, silence, and what is louder than full scale."""
    count = max(1, int(rate * seconds))
    t = np.arange(count) / rate
    columns = []
    for _ in range(channels):
        pitch = rng.uniform(60, 0.4 * min(rate, RATE))
        x = {
            "voice": lambda: sum(
                np.sin(2 * np.pi * pitch * k * t + k) / k for k in range(1, 12)) / 3
            * (0.5 + 0.5 * np.sin(2 * np.pi * 3 * t)),
            "sweep": lambda: 0.8 * np.sin(
                2 * np.pi * (50 * t + pitch / (2 * max(seconds, 1e-3)) * t * t)),
            "noise": lambda: rng.normal(0, 0.2, count),
            "clicks": lambda: (rng.random(count) > 0.999) * 0.9,
            "silence": lambda: np.zeros(count),
            "loud": lambda: 1.7 * np.sin(2 * np.pi * pitch * t),
        }[kind]()
        columns.append(x)
    return np.stack(columns, 1)


def write(folder, count):
    draw = random.Random(7)
    rng = np.random.default_rng(7)
    for n in range(count):
        form, subtype = KINDS[n % len(KINDS)]
        rate = (ODD_RATES if n % 9 == 8 else RATES)[
            draw.randrange(len(ODD_RATES if n % 9 == 8 else RATES))]
        channels = draw.choice([1, 1, 1, 2, 2, 3, 5, 6, 8, 16])
        if form == "FLAC":
            channels = min(channels, 8)
        what = draw.choice(["voice", "voice", "sweep", "noise", "clicks",
                            "silence", "loud"])
        seconds = draw.choice([0.0, 0.001, 0.03, 0.5, 1, 2.5])
        path = folder / f"{n:03}-{form}-{subtype}-{rate}-{channels}-{what}.snd"
        with soundfile.SoundFile(path, "w", rate, channels, subtype,
                                 format=form) as file:
            file.write(sound(rng, rate, channels, what, seconds))
        yield path


def odd():
    folder = pathlib.Path(scipy.io.__file__).parent / "tests" / "data"
    return sorted(folder.glob("*.wav"))


def ours(path, shape=None):
    values = np.fromfile(path, np.float32)
    return values if shape is None else values.reshape(shape, -1)


def reference(path):
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = samples.mean(1, dtype=np.float64).astype(np.float32)
    if rate != RATE:
        mono = soxr.resample(mono, rate, RATE, quality="HQ")
    return mono


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", required=True, help="the program audio_rows")
    parser.add_argument("--files", type=int, default=200)
    args = parser.parse_args()
    whisper = WhisperFeatureExtractor()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        strange = odd()
        paths = list(write(folder, args.files - len(strange))) + strange
        told = subprocess.run(
            [args.rows, folder], input="".join(f"{p}\n" for p in paths), text=True,
            check=True, capture_output=True).stdout.splitlines()
        assert len(told) == len(paths)
        worst = {"samples": 0.0, "whisper": 0.0, "power": 0.0}
        read, refused, wrong = 0, [], []
        for n, (path, status) in enumerate(zip(paths, told)):
            try:
                want = reference(path)
            except soundfile.LibsndfileError as error:
                if status == "ok":
                    wrong.append(f"{path.name}: read here, not by soundfile: {error}")
                else:
                    refused.append(f"{path.name}: neither reads it: {status}")
                continue
            if status != "ok":
                # An empty recording is refused; soundfile gives no samples.
                (refused if len(want) == 0 or path in strange else wrong).append(
                    f"{path.name}: {status} (soundfile: {len(want)} samples)")
                continue
            read += 1
            got = ours(folder / f"{n}.samples")
            if got.shape != want.shape:
                wrong.append(f"{path.name}: {got.shape} samples, {want.shape}")
                continue
            off = {"samples": np.abs(got - want).max(initial=0)}
            if len(got) > 400:  # what is mirrored at the ends must be there
                features = whisper(got, sampling_rate=RATE, padding="longest",
                                   truncation=False, return_tensors="np")
                rows = ours(folder / f"{n}.whisper", 80)
                off["whisper"] = np.abs(
                    rows - features["input_features"][0]).max()
                power = spectrogram(got.astype(np.float64), HANN, 400, 160,
                                    power=2.0, mel_filters=HTK, mel_floor=0.0)
                rows = ours(folder / f"{n}.power", 80)
                off["power"] = np.abs(rows - power).max() / max(power.max(), 1e-10)
            for key, value in off.items():
                worst[key] = max(worst[key], float(value))
                if not value <= 1e-3:
                    wrong.append(f"{path.name}: {key} differ by {value:.2g}")
    for line in refused:
        print("refused ", line)
    for line in wrong:
        print("WRONG   ", line)
    print(f"{len(paths)} files, {read} read, {len(refused)} refused, {len(wrong)} "
          "wrong; greatest differences: " + ", ".join(
              f"{key} {value:.1e}" for key, value in worst.items()))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
