#!/usr/bin/env python3
"""Writes a tiny random RNN-T (torchaudio's Emformer, its LSTM predictor and its
joiner) as handlers/transducer/export_rnnt.py exports it, and rnnt.json: what
torchaudio makes of speech, segment by segment.

    python3 tests/data/transducer/make_rnnt.py     # torch, torchaudio, numpy

Features are those of torchaudio's EMFORMER_RNNT_BASE_LIBRISPEECH in streaming
mode, each segment of samples behind the last ones of the segment before. Beams
are those of torchaudio's RNNTBeamSearch; torchaudio has no greedy search, so
that is written out here: the best token of each frame until it is the blank.
"""
import json
import math
import pathlib
import sys

import numpy as np
import torch
import torchaudio

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "handlers" / "transducer"))
import export_rnnt  # noqa: E402

TOKENS, BLANK = 29, 28
MAX_SYMBOLS = 5
SEGMENT, RIGHT, HOP = 16, 4, 160
GAIN = 32767.0 ** 2
SPEECH = HERE.parent / "audio" / "silero.npz"
CLIPS = {"short": (0, 9000), "long": (16000, 16000 + 41234)}


def tokens():
    """Letters, some of which begin a word."""
    letters = [chr(ord("a") + i) for i in range(20)]
    return ["<unk>"] + letters + ["\u2581" + c for c in "stwinkl"]


def model():
    torch.manual_seed(5)
    rnnt = torchaudio.models.rnnt.emformer_rnnt_model(
        input_dim=80, encoding_dim=32, num_symbols=TOKENS,
        segment_length=SEGMENT, right_context_length=RIGHT,
        time_reduction_input_dim=8, time_reduction_stride=4,
        transformer_num_heads=4, transformer_ffn_dim=48,
        transformer_num_layers=2, transformer_dropout=0.1,
        transformer_activation="gelu", transformer_left_context_length=10,
        transformer_max_memory_size=0,
        transformer_weight_init_scale_strategy="depthwise",
        transformer_tanh_on_mem=True, symbol_embedding_dim=16,
        num_lstm_layers=2, lstm_layer_norm=True, lstm_layer_norm_epsilon=1e-3,
        lstm_dropout=0.3)
    with torch.no_grad():
        for parameter in rnnt.parameters():
            if parameter.dim() == 1:  # norms and biases that do something
                parameter.add_(torch.randn_like(parameter) * 0.1)
        rnnt.joiner.linear.weight.mul_(6)
        rnnt.joiner.linear.bias[BLANK] += 6.5
    return rnnt.eval()


def stats():
    rng = np.random.default_rng(5)
    return {"mean": [round(float(x), 4) for x in rng.normal(16, 1, 80)],
            "invstddev": [round(float(x), 4) for x in rng.uniform(.2, .4, 80)]}


def make_features(samples, stats):
    mel = torchaudio.transforms.MelSpectrogram(
        sample_rate=16000, n_fft=400, n_mels=80, hop_length=HOP)
    x = mel(samples).transpose(1, 0) * GAIN
    x = torch.where(x > math.e, torch.log(x.clamp_min(1e-9)), x / math.e)
    return (x - torch.tensor(stats["mean"])) * torch.tensor(stats["invstddev"])


def segments(samples, stats):
    """Features of each segment; the last ones hear silence behind the end."""
    size, context = SEGMENT * HOP, RIGHT * HOP
    count = math.ceil((len(samples) + context) / size)
    padded = torch.zeros(context + count * size)
    padded[context: context + len(samples)] = samples
    for i in range(count):
        part = padded[i * size: (i + 1) * size + context]
        yield make_features(part, stats)[:SEGMENT + RIGHT]


class Margin:
    """The least difference by which anything was decided."""
    least = math.inf

    @classmethod
    def of(cls, values):
        top = torch.topk(values, 2).values
        cls.least = min(cls.least, float(top[0] - top[1]))


def greedy(rnnt, encodings, state):
    one = torch.tensor([1])

    def predict(token, states):
        out, _, states = rnnt.predict(torch.tensor([[token]]), one, states)
        return out, states
    if state is None:
        state = ([], 0.0, *predict(BLANK, None))
    found, score, out, states = state
    for t in range(encodings.shape[1]):
        for symbol in range(MAX_SYMBOLS + 1):
            logits, _, _ = rnnt.join(encodings[:, t: t + 1], one, out, one)
            logs = torch.log_softmax(logits[0, 0, 0], 0)
            if symbol == MAX_SYMBOLS:
                score += float(logs[BLANK])
                break
            Margin.of(logs)
            token = int(logs.argmax())
            score += float(logs[token])
            if token == BLANK:
                break
            found = found + [token]
            out, states = predict(token, states)
    return found, score, out, states


@torch.no_grad()
def answers(rnnt, samples, stats):
    result = {"greedy": [], "beam1": [], "beam4": []}
    searches = {name: torchaudio.models.RNNTBeamSearch(
        rnnt, BLANK, step_max_tokens=MAX_SYMBOLS)
        for name in ("beam1", "beam4")}
    encoder_state, state = None, None
    kept = {name: (None, None) for name in searches}
    for features in segments(samples, stats):
        length = torch.tensor([features.shape[0]])
        encodings, _, encoder_state = rnnt.transcribe_streaming(
            features[None], length, encoder_state)
        state = greedy(rnnt, encodings, state)
        result["greedy"].append({"tokens": state[0], "score": state[1]})
        for name, search in searches.items():
            width = int(name[4:])
            hypotheses, states = search.infer(
                features, length, width, state=kept[name][1],
                hypothesis=kept[name][0])
            kept[name] = hypotheses, states
            result[name].append({"tokens": hypotheses[0][0][1:],
                                 "score": float(hypotheses[0][3])})
    return result


@torch.no_grad()
def check_export(rnnt, samples, stats):
    """The exported encoder is torchaudio's."""
    encoder = export_rnnt.Encoder(rnnt)
    past, states = encoder.initial()
    theirs = None
    for features in segments(samples, stats):
        out, past, states = encoder(features[None], past, states)
        wanted, _, theirs = rnnt.transcribe_streaming(
            features[None], torch.tensor([features.shape[0]]), theirs)
        torch.testing.assert_close(out, wanted, atol=1e-5, rtol=1e-5)


def main():
    rnnt, statistics = model(), stats()
    export_rnnt.write_folder(rnnt, HERE / "rnnt", tokens(), statistics, BLANK)
    speech = np.load(SPEECH)["speech/16000"]
    wanted = {"sample_rate": 16000, "max_symbols": MAX_SYMBOLS, "clips": {}}
    for name, (begin, end) in CLIPS.items():
        samples = torch.from_numpy(speech[begin:end].astype(np.float32)) / 32768
        check_export(rnnt, samples, statistics)
        first = next(segments(samples, statistics))
        wanted["clips"][name] = {
            "samples": [begin, end], "features": [
                [round(float(x), 5) for x in row] for row in first[:3]],
            **answers(rnnt, samples, statistics)}
    wanted["greedy_margin"] = Margin.least
    (HERE / "rnnt.json").write_text(json.dumps(wanted, indent=None) + "\n")
    for name, clip in wanted["clips"].items():
        for kind in ("greedy", "beam1", "beam4"):
            last = clip[kind][-1]
            print(name, kind, len(clip[kind]), last["tokens"], last["score"])
    print("margin", Margin.least)


if __name__ == "__main__":
    main()
