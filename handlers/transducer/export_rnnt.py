#!/usr/bin/env python3
"""Writes a streaming RNN-T of torchaudio as a folder that Millrace serves:

    python3 export_rnnt.py models/asr                 # EMFORMER_RNNT_BASE_LIBRISPEECH
    python3 export_rnnt.py models/asr --random 4097   # its size, random weights

It needs torch and a torchaudio of the same version (and sentencepiece for a
bundle, whose weights are downloaded by torchaudio). The folder gets config.yaml,
tokens.txt, global_stats.json and the graphs 1/{encoder,predictor,joiner}.pt2.
README.md of `handlers` says what the graphs take and give.
"""
import argparse
import json
import pathlib

import torch


class Encoder(torch.nn.Module):
    """torchaudio's Emformer encoder in streaming mode, with a state of fixed
    size: keys and values of the left context that has not come yet are masked,
    where torchaudio cuts them off. No memory vectors (max_memory_size 0).

    features [1, segment + right context, mels], past [1] frames so far,
    states: key and value [left context, 1, width] of each layer
    """

    def __init__(self, rnnt):
        super().__init__()
        self.encoder = rnnt.transcriber
        self.emformer = self.encoder.transformer
        if self.emformer.max_memory_size != 0:
            raise ValueError("an Emformer with memory vectors is not exported")

    def initial(self):
        left = self.emformer.left_context_length
        width = self.encoder.output_linear.in_features
        states = [torch.zeros(left, 1, width)
                  for _ in range(2 * len(self.emformer.emformer_layers))]
        return torch.zeros(1, dtype=torch.int64), states

    def attend(self, attention, x, key_past, value_past, right, hidden):
        heads, size = attention.num_heads, x.shape[-1] // attention.num_heads
        query = attention.emb_to_query(x)
        key, value = attention.emb_to_key_value(x).chunk(2, dim=2)
        keys = torch.cat([key[:right], key_past, key[right:]])
        values = torch.cat([value[:right], value_past, value[right:]])
        q, k, v = [t.reshape(-1, heads, size).transpose(0, 1)
                   for t in (query, keys, values)]
        weights = torch.bmm(q * attention.scaling, k.transpose(1, 2))
        weights = weights.masked_fill(hidden, attention.negative_inf)
        out = torch.bmm(torch.softmax(weights, dim=-1), v)
        out = out.transpose(0, 1).reshape(x.shape)
        left = key_past.shape[0]
        return (attention.out_proj(out),
                torch.cat([key_past, key[right:]])[-left:],
                torch.cat([value_past, value[right:]])[-left:])

    def forward(self, features, past, states):
        x = self.encoder.input_linear(features)
        stride = self.encoder.time_reduction.stride
        x = x.reshape(1, x.shape[1] // stride, x.shape[2] * stride)
        x = x.permute(1, 0, 2)
        right = self.emformer.right_context_length
        left = self.emformer.left_context_length
        x = torch.cat([x[x.shape[0] - right:], x[:x.shape[0] - right]])
        not_yet = torch.arange(left) < left - past
        hidden = torch.cat([torch.zeros(right, dtype=torch.bool), not_yet,
                            torch.zeros(x.shape[0] - right, dtype=torch.bool)])
        kept = []
        for i, layer in enumerate(self.emformer.emformer_layers):
            attended, key, value = self.attend(
                layer.attention, layer.layer_norm_input(x), states[2 * i],
                states[2 * i + 1], right, hidden)
            x = attended + x
            x = layer.layer_norm_output(layer.pos_ff(x) + x)
            kept += [key, value]
        out = self.encoder.layer_norm(self.encoder.output_linear(
            x[right:].permute(1, 0, 2)))
        return out, past + (x.shape[0] - right), kept


class Predictor(torch.nn.Module):
    """token [n], states: h and c [n, width] of each layer"""

    def __init__(self, rnnt):
        super().__init__()
        self.predictor = rnnt.predictor

    def initial(self, rows):
        return [torch.zeros(rows, layer.hidden_dim)
                for layer in self.predictor.lstm_layers for _ in range(2)]

    def forward(self, token, states):
        pairs = [states[i: i + 2] for i in range(0, len(states), 2)]
        out, _, pairs = self.predictor(token.unsqueeze(1),
                                       torch.ones_like(token), pairs)
        return out[:, 0], [state for pair in pairs for state in pair]


class Joiner(torch.nn.Module):
    """encoding [n, width], prediction [n, width] -> logits [n, tokens]"""

    def __init__(self, rnnt):
        super().__init__()
        self.joiner = rnnt.joiner

    def forward(self, encoding, prediction):
        return self.joiner.linear(self.joiner.activation(encoding + prediction))


def frames_of(rnnt):
    """Mel frames of a segment and of its right context."""
    stride = rnnt.transcriber.time_reduction.stride
    emformer = rnnt.transcriber.transformer
    return (emformer.segment_length * stride,
            emformer.right_context_length * stride)


@torch.no_grad()
def export_graphs(rnnt, folder):
    rnnt.eval()
    folder.mkdir(parents=True, exist_ok=True)
    encoder, predictor, joiner = Encoder(rnnt), Predictor(rnnt), Joiner(rnnt)
    mels = rnnt.transcriber.input_linear.in_features
    width = rnnt.joiner.linear.in_features
    rows = torch.export.Dim("n", min=1, max=1024)
    row = {0: rows}
    states = predictor.initial(2)
    programs = {
        "encoder": torch.export.export(
            encoder, (torch.zeros(1, sum(frames_of(rnnt)), mels),
                      *encoder.initial())),
        "predictor": torch.export.export(
            predictor, (torch.zeros(2, dtype=torch.int64), states),
            dynamic_shapes=(row, [row for _ in states])),
        "joiner": torch.export.export(
            joiner, (torch.zeros(2, width), torch.zeros(2, width)),
            dynamic_shapes=(row, row))}
    for name, program in programs.items():
        for node in program.graph.nodes:  # where in Python it came from
            for key in ("stack_trace", "nn_module_stack", "source_fn_stack"):
                node.meta.pop(key, None)
        torch.export.save(program, folder / f"{name}.pt2")


def config(rnnt, blank, rate=16000, mels=80):
    segment, right = frames_of(rnnt)
    return f"""default_model_filename: encoder.pt2
task: transcribe
task_options:
  labels: tokens.txt
  blank: "{blank}"
  sample_rate: {rate}
  mel: torchaudio
  mel_log: piecewise
  n_mels: {mels}
transducer:
  predictor: predictor.pt2
  joiner: joiner.pt2
  segment_length: {segment}
  right_context_length: {right}
  feature_stats: global_stats.json
"""


def write_folder(rnnt, folder, tokens, stats, blank):
    export_graphs(rnnt, folder / "1")
    (folder / "tokens.txt").write_text("\n".join(tokens) + "\n")
    (folder / "global_stats.json").write_text(json.dumps(stats))
    (folder / "config.yaml").write_text(config(rnnt, blank))


def main():
    import torchaudio
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--bundle", default="EMFORMER_RNNT_BASE_LIBRISPEECH",
                        help="of torchaudio.pipelines")
    parser.add_argument("--random", type=int, metavar="TOKENS",
                        help="random weights, so many tokens; the last one is "
                             "the blank")
    args = parser.parse_args()
    if args.random:
        torch.manual_seed(0)
        rnnt = torchaudio.models.emformer_rnnt_base(args.random)
        blank = args.random - 1
        with torch.no_grad():  # some tokens a second, as in speech
            rnnt.joiner.linear.bias[blank] += 1.8
        tokens = [f"\u2581t{i}" for i in range(blank)]
        stats = {"mean": [12.0] * 80, "invstddev": [0.25] * 80}
    else:
        bundle = getattr(torchaudio.pipelines, args.bundle)
        decoder = bundle.get_decoder()
        rnnt, blank = decoder.model, decoder.blank
        pieces = bundle.get_token_processor().sp_model
        tokens = [pieces.id_to_piece(i) for i in range(blank)]
        norm = bundle.get_streaming_feature_extractor().pipeline[-1]
        stats = {"mean": norm.mean.tolist(),
                 "invstddev": norm.invstddev.tolist()}
    write_folder(rnnt, args.folder, tokens, stats, blank)


if __name__ == "__main__":
    main()
