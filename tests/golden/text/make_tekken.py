#!/usr/bin/env python3
"""Writes tests/golden/text/tekken.json: a small tokenizer as Mistral's files
tekken.json hold it, and the ids that the package tiktoken gives for lines of
mixed scripts.

    python3 tests/golden/text/make_tekken.py [LINES]

Made with tiktoken 0.14.0, tokenizers 0.23.3. With LINES, so many of them
(default 150).
"""
import base64
import json
import pathlib
import sys

import tiktoken
from make_sentence_pieces import CORPUS, lines
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?"
    r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIALS = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
ROOM = 8  # for special tokens, some without a name


def ranks(size):
    """Bytes of tokens by rank: all bytes, then what a training merges."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    letters = [b for b in range(33, 127)] + [b for b in range(161, 173)] + [
        b for b in range(174, 256)]
    byte_of = {chr(b): b for b in letters}
    rest = [b for b in range(256) if b not in letters]
    byte_of.update({chr(256 + i): b for i, b in enumerate(rest)})
    out = [bytes([b]) for b in range(256)]
    by_id = sorted(tok.get_vocab().items(), key=lambda item: item[1])
    out += [bytes(byte_of[c] for c in token) for token, _ in by_id
            if len(token) > 1]
    return out


def main():
    texts = lines(int(sys.argv[1]) if len(sys.argv) > 1 else 150)
    tokens = ranks(420)
    oracle = tiktoken.Encoding(
        "tiny", pat_str=PATTERN, special_tokens={},
        mergeable_ranks={t: i for i, t in enumerate(tokens)})
    tekken = {
        "config": {"pattern": PATTERN, "num_vocab_tokens": len(tokens),
                   "default_vocab_size": len(tokens) + ROOM,
                   "default_num_special_tokens": ROOM, "version": "v7"},
        "vocab": [{"rank": i, "token_bytes": base64.b64encode(t).decode(),
                   "token_str": None} for i, t in enumerate(tokens)],
        "special_tokens": [{"rank": i, "token_str": t, "is_control": True}
                           for i, t in enumerate(SPECIALS)]}
    ids = [[ROOM + i for i in oracle.encode(t, disallowed_special=())]
           for t in texts]
    (HERE / "tekken.json").write_text(json.dumps(
        {"tekken": tekken, "texts": texts, "ids": ids}) + "\n")


if __name__ == "__main__":
    main()
