#!/usr/bin/env python3
"""Writes tests/golden/text/sentence_pieces.json: small tokenizers of
SentencePiece's kind as tokenizer.json and as keys of GGUF, and the ids that the
packages tokenizers and sentencepiece give for lines of mixed scripts.

    python3 tests/golden/text/make_sentence_pieces.py [LINES]

Made with tokenizers 0.23.3, sentencepiece 0.2.3. With LINES, so many of them
(default 150).
"""
import base64
import io
import json
import pathlib
import random
import sys

import sentencepiece
from tokenizers import (AddedToken, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers)

HERE = pathlib.Path(__file__).parent
SPACE = "\u2581"
CORPUS = [
    "the mill turns the water and the water turns the mill",
    "Hello world, hello there; it's what they're here for, isn't it?",
    "In 2024 there were 12345 requests, 678 of them at night.",
    "\u00dcber allen Gipfeln ist Ruh, in allen Wipfeln sp\u00fcrest du kaum",
    "\u041c\u0435\u043b\u044c\u043d\u0438\u0446\u0430 \u043a\u0440\u0443\u0442"
    "\u0438\u0442\u0441\u044f, \u0432\u043e\u0434\u0430 \u0442\u0435\u0447"
    "\u0451\u0442",
    "\u6c34\u8f66\u306f\u56de\u308b \u6c34\u306f\u6d41\u308c\u308b",
    "def f(x):\n    return x * 2  # twice",
] * 5
ALPHABETS = ["abcdefghijklmnopqrstuvwxyz ", "ABC xyz.,;:!?'\"()-", "0123456789 ",
             "\u00e4\u00f6\u00fc\u00df\u00e9\u00e8 ", "\u0430\u0431\u0432\u0433"
             "\u0434 ", "\u6c34\u706b\u6728\u91d1\u571f", "\u0645\u0627\u0621 ",
             "\U0001f600\U0001f44d\U0001f3fd", " \t\n\r  ", "\u2581 ",
             "\u00a0\u2003\u200b\ufeff", "e\u0301a\u0308", "<>s/|"]


def lines(count):
    rng = random.Random(5)
    # No text like "<0x0A>": Unigram of the package tokenizers takes it for the
    # byte's token, sentencepiece and we do not.
    out = ["", " ", "  ", " a", "a ", "  a  b  ", "\u2581a", "<s>",
           "a<|end|>  b", "a <|left|> b", "\n", "\u0000x"] + CORPUS[:7]
    while len(out) < count:
        line = ""
        for _ in range(rng.randint(1, 12)):
            if rng.random() < 0.4:
                text = rng.choice(CORPUS)
                at = rng.randrange(len(text))
                line += text[at:at + rng.randint(1, 12)]
            else:
                letters = rng.choice(ALPHABETS)
                line += "".join(rng.choice(letters)
                                for _ in range(rng.randint(1, 8)))
            if rng.random() < 0.1:
                line += rng.choice(["<|end|>", "<|left|>", "<s>"])
        out.append(line)
    return out


def train(kind, size):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=model, model_type=kind,
        vocab_size=size, byte_fallback=True, character_coverage=0.99,
        normalization_rule_name="identity", remove_extra_whitespaces=False,
        split_digits=True, add_dummy_prefix=True, minloglevel=2,
        hard_vocab_limit=False, allow_whitespace_only_pieces=True)
    return sentencepiece.SentencePieceProcessor(
        model_proto=model.getvalue())


def encoded(sp):
    return base64.b64encode(sp.serialized_model_proto()).decode()


def vocabulary(sp):
    pieces, scores, types = [], [], []
    for i in range(sp.vocab_size()):
        pieces.append(sp.id_to_piece(i))
        scores.append(sp.get_score(i))
        types.append(2 if sp.is_unknown(i) else 3 if sp.is_control(i) else
                     6 if sp.is_byte(i) else 1)
    return pieces, scores, types


def merges(pieces, scores, types):
    """As transformers converts them: by the score of what they become."""
    vocab = {p: i for i, p in enumerate(pieces) if types[i] == 1}
    out = []
    for piece, index in vocab.items():
        local = [(piece[:i], piece[i:], index) for i in range(1, len(piece))
                 if piece[:i] in vocab and piece[i:] in vocab]
        out += sorted(local, key=lambda m: (vocab[m[0]], vocab[m[1]]))
    out.sort(key=lambda m: scores[m[2]], reverse=True)
    return [(m[0], m[1]) for m in out]


def finish(tok, style):
    if style == "prepend":
        tok.normalizer = normalizers.Sequence([
            normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    elif style == "gemma":
        tok.normalizer = normalizers.Replace(" ", SPACE)
        tok.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    elif style == "first":
        tok.pre_tokenizer = pre_tokenizers.Metaspace(
            prepend_scheme="first", split=False)
    else:
        tok.pre_tokenizer = pre_tokenizers.Metaspace(
            prepend_scheme="always", split=True)
    tok.decoder = decoders.Sequence([
        decoders.Replace(SPACE, " "), decoders.ByteFallback(),
        decoders.Fuse()])
    tok.add_special_tokens([
        AddedToken(t, special=True, normalized=False)
        for t in ("<unk>", "<s>", "</s>")])
    tok.add_special_tokens([
        AddedToken("<|end|>", special=True, normalized=False, rstrip=True),
        AddedToken("<|left|>", special=True, normalized=False, lstrip=True)])
    return tok


def main():
    texts = lines(int(sys.argv[1]) if len(sys.argv) > 1 else 150)
    cases = []
    bpe = train("bpe", 520)
    pieces, scores, types = vocabulary(bpe)
    vocab = {p: i for i, p in enumerate(pieces)}
    for style in ("prepend", "gemma", "first", "always"):
        tok = finish(Tokenizer(models.BPE(
            vocab, merges(pieces, scores, types), unk_token="<unk>",
            fuse_unk=True, byte_fallback=True)), style)
        cases.append((f"bpe {style}", json.loads(tok.to_str()), None,
                      [tok.encode(t).ids for t in texts]))
    unigram = train("unigram", 460)
    upieces, uscores, utypes = vocabulary(unigram)
    tok = finish(Tokenizer(models.Unigram(
        list(zip(upieces, uscores)), unk_id=0, byte_fallback=True)), "always")
    cases.append(("unigram", json.loads(tok.to_str()), None,
                  [tok.encode(t).ids for t in texts]))
    # SentencePiece itself, which knows no special tokens in a text and drops
    # the character 0.
    plain = [t if "<" not in t and "\0" not in t else "plain" for t in texts]
    cases.append(("gguf", None, {"tokens": pieces, "scores": scores,
                                 "types": types},
                  [bpe.encode(t) if t else [] for t in plain]))
    # Their own files, tokenizer.model.
    models_of = {"bpe": {"file": encoded(bpe), "ids": cases[-1][3]},
                 "unigram": {"file": encoded(unigram), "ids": [
                     unigram.encode(t) if t else [] for t in plain]}}
    out = {"texts": texts, "plain": plain, "models": models_of, "cases": [
        {"name": n, "tokenizer": t, "gguf": g, "ids": i}
        for n, t, g, i in cases]}
    (HERE / "sentence_pieces.json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
