"""Makes ctc_wave.onnx and ctc_mel.onnx, two small CTC models of random weights,
vocab.json, and ctc.json: what onnxruntime and transformers make of recordings
of audio.npz.

    pip install numpy soundfile soxr transformers onnx onnxruntime
    python make_audio.py && python make_ctc.py

Of each model and recording ctc.json has the text, the words with their times
and the length in seconds. Samples are those of soundfile and soxr, features
those of WhisperFeatureExtractor and Wav2Vec2FeatureExtractor, the text that of
Wav2Vec2CTCTokenizer.
"""
import io
import json
import pathlib

import numpy as np
import onnx
import onnxruntime
import soundfile
import soxr
from onnx import TensorProto, helper, numpy_helper
from transformers import (Wav2Vec2CTCTokenizer, Wav2Vec2FeatureExtractor,
                          WhisperFeatureExtractor)

HERE = pathlib.Path(__file__).parent
LABELS = ["<pad>", "<s>", "</s>", "<unk>", "|", *"EATONIHSRDLUMWCFGYPBVK'XJQZ"]
VOCAB = {label: i for i, label in enumerate(LABELS)}
rng = np.random.default_rng(11)


def weights(*shape, scale):
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def save(name, nodes, inputs, tensors):
    frames = helper.make_tensor_value_info(
        "logits", TensorProto.FLOAT, [1, "frames", len(LABELS)])
    graph = helper.make_graph(
        nodes, name, inputs, [frames],
        [numpy_helper.from_array(v, k) for k, v in tensors.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    onnx.save(model, HERE / f"{name}.onnx")


def bias():
    """The blank is likely, special labels are not."""
    b = np.zeros(len(LABELS), np.float32)
    b[0], b[1:4], b[4] = 1.5, -9, 1
    return b


save("ctc_wave", [
    helper.make_node("Unsqueeze", ["input_values", "one"], ["x"]),
    helper.make_node("Conv", ["x", "w0"], ["c"], kernel_shape=[400],
                     strides=[160]),
    helper.make_node("Tanh", ["c"], ["t"]),
    helper.make_node("Transpose", ["t"], ["f"], perm=[0, 2, 1]),
    helper.make_node("MatMul", ["f", "w1"], ["m"]),
    helper.make_node("Add", ["m", "b1"], ["logits"])],
    [helper.make_tensor_value_info("input_values", TensorProto.FLOAT,
                                   [1, "samples"])],
    {"one": np.array([1], np.int64), "w0": weights(16, 1, 400, scale=0.1),
     "w1": weights(16, len(LABELS), scale=2), "b1": bias()})
save("ctc_mel", [
    helper.make_node("Conv", ["features", "w0"], ["c"], kernel_shape=[3],
                     strides=[2], pads=[1, 1]),
    helper.make_node("Tanh", ["c"], ["t"]),
    helper.make_node("Transpose", ["t"], ["f"], perm=[0, 2, 1]),
    helper.make_node("MatMul", ["f", "w1"], ["m"]),
    helper.make_node("Add", ["m", "b1"], ["logits"])],
    [helper.make_tensor_value_info("features", TensorProto.FLOAT,
                                   [1, 80, "frames_in"])],
    {"w0": weights(16, 80, 3, scale=0.3), "w1": weights(16, len(LABELS), scale=2),
     "b1": bias()})
(HERE / "vocab.json").write_text(json.dumps(VOCAB))

tokenizer = Wav2Vec2CTCTokenizer(HERE / "vocab.json", pad_token="<pad>",
                                 word_delimiter_token="|")
wave_features = Wav2Vec2FeatureExtractor(do_normalize=True)
mel_features = WhisperFeatureExtractor(feature_size=80)
files = np.load(HERE / "audio.npz")
golden = {}
for model in ("ctc_wave", "ctc_mel"):
    session = onnxruntime.InferenceSession(HERE / f"{model}.onnx")
    for key in files:
        name = key.removeprefix("file/")
        if key == name:
            continue
        samples, rate = soundfile.read(io.BytesIO(files[key].tobytes()),
                                       dtype="float32", always_2d=True)
        mono = samples.astype(np.float64).mean(1).astype(np.float32)
        if rate != 16000:
            mono = soxr.resample(mono, rate, 16000)
        if model == "ctc_wave":
            x = wave_features(mono, sampling_rate=16000,
                              return_tensors="np")["input_values"]
        else:
            x = mel_features._np_extract_fbank_features(mono[None], "cpu")
        logits, = session.run(None, {session.get_inputs()[0].name:
                                     x.astype(np.float32)})
        decoded = tokenizer.decode(logits[0].argmax(-1),
                                   output_word_offsets=True)
        seconds = len(mono) / 16000
        frame = seconds / logits.shape[1]
        # How far the best label of each frame is from the next one.
        best = np.sort(logits[0], -1)
        golden[f"{model}/{name}"] = {
            "text": decoded.text, "seconds": seconds,
            "margin": float((best[:, -1] - best[:, -2]).min()),
            "words": [[w["word"], w["start_offset"] * frame,
                       w["end_offset"] * frame]
                      for w in decoded.word_offsets]}
(HERE / "ctc.json").write_text(json.dumps(golden, indent=1))
for name, each in golden.items():
    print(name, round(each["margin"], 5), repr(each["text"]))
