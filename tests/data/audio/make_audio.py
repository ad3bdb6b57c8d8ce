"""Makes audio.npz: recordings, and what soundfile, soxr, transformers and
torchaudio make of them.

    pip install numpy soundfile soxr transformers torch torchaudio
    python make_audio.py

file/NAME      bytes of a WAV or FLAC
rate/NAME      its samples a second
mono/NAME      soundfile's samples, the mean over channels
resampled/NAME what soxr (HQ) makes of them at 16000 Hz
signal         0.4 s at 16000 Hz, which spectrograms are made of
whisper/...    transformers' WhisperFeatureExtractor: mels and seconds
torchaudio/... torchaudio's MelSpectrogram, and AmplitudeToDB
normalized     transformers' Wav2Vec2FeatureExtractor of the signal, its beginning
"""
import io
import pathlib

import numpy as np
import soundfile
import soxr
import torch
import torchaudio
from transformers import Wav2Vec2FeatureExtractor, WhisperFeatureExtractor

OUT = pathlib.Path(__file__).parent / "audio.npz"
rng = np.random.default_rng(7)


def voice(seconds, rate):
    """A gliding tone with overtones, a pause, a little noise."""
    t = np.arange(int(seconds * rate)) / rate
    pitch = 2 * np.pi * (140 * t + 60 * t * t)
    x = sum(np.sin(k * pitch) / k for k in range(1, 12)
            if k * (140 + 120 * seconds) < rate / 2)
    x *= np.minimum(1, np.abs(np.sin(2 * np.pi * 1.5 * t)) * 2)
    x[len(x) // 2: len(x) * 5 // 8] = 0
    return 0.3 * x + 1e-3 * rng.standard_normal(len(x))


def channels(seconds, rate, count):
    one = voice(seconds, rate)
    return np.stack([np.roll(one, 5 * i) * (1 - 0.1 * i)
                     for i in range(count)], 1)


FILES = {  # rate, channels, format, encoding
    "pcm16.wav": (16000, 1, "WAV", "PCM_16"),
    "pcm8_8k.wav": (8000, 1, "WAV", "PCM_U8"),
    "pcm24_stereo_44k.wav": (44100, 2, "WAV", "PCM_24"),
    "pcm32_odd_rate.wav": (11127, 1, "WAV", "PCM_32"),
    "float_48k.wav": (48000, 1, "WAV", "FLOAT"),
    "double_stereo.wav": (16000, 2, "WAV", "DOUBLE"),
    "six_channels.wav": (16000, 6, "WAVEX", "PCM_16"),
    "rf64.wav": (16000, 1, "RF64", "PCM_16"),
    "ulaw_8k.wav": (8000, 1, "WAV", "ULAW"),
    "alaw_8k.wav": (8000, 1, "WAV", "ALAW"),
    "flac16_22k.flac": (22050, 1, "FLAC", "PCM_16"),
    "voice.flac": (22050, 2, "FLAC", "PCM_16"),
    "flac24_stereo_96k.flac": (96000, 2, "FLAC", "PCM_24"),
}

out = {}
for name, (rate, count, kind, encoding) in FILES.items():
    file = io.BytesIO()
    seconds = {"voice.flac": 0.4, "pcm16.wav": 0.12}.get(
        name, 0.04 if rate > 20000 else 0.08)
    soundfile.write(file, channels(seconds, rate, count), rate, encoding,
                    format=kind)
    data = file.getvalue()
    samples, found = soundfile.read(io.BytesIO(data), dtype="float32",
                                    always_2d=True)
    assert found == rate
    mono = samples.astype(np.float64).mean(1).astype(np.float32)
    out["file/" + name] = np.frombuffer(data, np.uint8)
    out["rate/" + name] = np.array([rate], np.int64)
    out["mono/" + name] = mono
    if rate != 16000 and name != "voice.flac":
        out["resampled/" + name] = soxr.resample(mono, rate, 16000)

signal = voice(0.4, 16000).astype(np.float32)
out["signal"] = signal
for mels, seconds in [(80, 0), (80, 1)]:
    extractor = WhisperFeatureExtractor(feature_size=mels,
                                        chunk_length=max(seconds, 1))
    features = extractor._np_extract_fbank_features(
        np.pad(signal, (0, max(0, seconds * 16000 - len(signal))))[None],
        "cpu")[0]
    if seconds == 1:
        whole = extractor(signal, sampling_rate=16000, return_tensors="np",
                          device="cpu")
        np.testing.assert_allclose(whole["input_features"][0], features,
                                   atol=1e-4)
    out[f"whisper/{mels}_{seconds}"] = features.astype(np.float32)

tensor = torch.from_numpy(signal)
for name, options in {
        "usual": dict(n_fft=400, n_mels=64),
        "short_window": dict(n_fft=512, win_length=320, hop_length=160,
                             n_mels=40, f_min=20.0, f_max=7600.0),
        "slaney": dict(n_fft=1024, hop_length=256, n_mels=80, norm="slaney",
                       mel_scale="slaney"),
}.items():
    mel = torchaudio.transforms.MelSpectrogram(16000, **options)(tensor)
    out["torchaudio/" + name] = mel.numpy()
    if name == "usual":
        out["torchaudio/db"] = torchaudio.transforms.AmplitudeToDB(
            "power", 80)(mel).numpy()

out["normalized"] = Wav2Vec2FeatureExtractor(do_normalize=True)(
    signal, sampling_rate=16000, return_tensors="np")["input_values"][0, :500]
np.savez_compressed(OUT, **out)
print(OUT, OUT.stat().st_size)
