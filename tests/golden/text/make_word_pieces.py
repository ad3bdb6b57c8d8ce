#!/usr/bin/env python3
"""Writes tests/golden/text/word_pieces.json: a small WordPiece tokenizer in the
forms that encoders have, and what the package tokenizers gives for lines of
mixed scripts: ids, pairs with type ids, truncated pairs.

    python3 tests/golden/text/make_word_pieces.py [LINES]

Made with tokenizers 0.23.3. With LINES, so many of them (default 150).
"""
import json
import pathlib
import random
import sys

from tokenizers import (AddedToken, Tokenizer, models, normalizers,
                        pre_tokenizers, processors, trainers)

HERE = pathlib.Path(__file__).parent
CORPUS = [
    "The mill turns the water and the water turns the mill, unaffable as ever",
    "Hello world, hello there; it's what they're here for, isn't it?",
    "In 2024 there were 12345 requests, 678 of them at night.",
    "\u00dcber allen Gipfeln ist Ruh, in allen Wipfeln sp\u00fcrest du kaum",
    "\u041c\u0435\u043b\u044c\u043d\u0438\u0446\u0430 \u043a\u0440\u0443\u0442"
    "\u0438\u0442\u0441\u044f, \u0432\u043e\u0434\u0430 \u0442\u0435\u0447"
    "\u0451\u0442",
    "\u6c34\u8f66\u306f\u56de\u308b \u6c34\u306f\u6d41\u308c\u308b",
    "\u0627\u0644\u0645\u0627\u0621 \u064a\u064e\u062c\u0652\u0631\u064a",
    "\ubb3c\ub808\ubc29\uc544 \ubb3c",
] * 4
ALPHABETS = ["abcdefghijklmnopqrstuvwxyz ", "ABC XYZ.,;:!?'\"()-_~^`$", "0123456789 ",
             "\u00e4\u00f6\u00fc\u00df\u00e9\u00e8\u00c9\u1e9e\u0130\u0131 ",
             "\u0430\u0431\u0432\u0433\u0401\u0451 ", "\u6c34\u706b\u6728\u91d1\u571f"
             "\U0002f81a\U0002b8a0", "\u0645\u0627\u0621\u064e ", "\U0001f600\U0001f44d"
             "\U0001f3fd\u200d", " \t\n\r\v\f ", "\u00a0\u2003\u200b\ufeff\u0085\u2028",
             "e\u0301a\u0308\u0323", "\u3002\u300c\u300d\u2014\u2026\u00a1\u00bf",
             "\ufffd\0\u0007\u00ad\ue000", "\u03a3\u03c2\u03b1\u0386",
             "\ud55c\uae00 ", "\u0e19\u0e49\u0e33 ", "\u1734\u166d\u2e4a\U0001e944",
             "\u0915\u094d\u0937 \u0903"]


def lines(count):
    rng = random.Random(7)
    out = ["", " ", "  a  b  ", "[CLS]", "a [SEP] b", "a[MASK]b", "x [MASK] y",
           "[cls] [UNK]", "a" * 99, "a" * 100, "a" * 101, "\u00e9" * 100,
           "##ing", "don't", "\u0130stanbul", "\u00c5ngstr\u00f6m"] + CORPUS[:8]
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
            if rng.random() < 0.05:
                line += rng.choice(["[SEP]", "[MASK]", "[UNK]"])
        out.append(line)
    return out


def vocabulary():
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer(lowercase=False)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    lower = [t.lower() for t in CORPUS]
    tok.train_from_iterator(CORPUS + lower, trainers.WordPieceTrainer(
        vocab_size=420, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]",
                                        "[MASK]"]))
    return tok.get_vocab()


def build(vocab, normalizer, processor):
    tok = Tokenizer(models.WordPiece(
        vocab, unk_token="[UNK]", max_input_chars_per_word=100,
        continuing_subword_prefix="##"))
    tok.normalizer = normalizer
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False)
                            for t in ("[PAD]", "[UNK]", "[CLS]", "[SEP]")])
    tok.add_special_tokens([AddedToken("[MASK]", special=True,
                                       normalized=False, lstrip=True)])
    tok.post_processor = processor
    return tok


def main():
    texts = lines(int(sys.argv[1]) if len(sys.argv) > 1 else 150)
    vocab = vocabulary()
    cls, sep = vocab["[CLS]"], vocab["[SEP]"]
    template = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", cls), ("[SEP]", sep)])
    bert = normalizers.BertNormalizer
    forms = [
        ("uncased", bert(lowercase=True), template),
        ("cased", bert(lowercase=False),
         processors.BertProcessing(("[SEP]", sep), ("[CLS]", cls))),
        ("accents kept", bert(lowercase=True, strip_accents=False,
                              handle_chinese_chars=False, clean_text=False),
         processors.RobertaProcessing(("[SEP]", sep), ("[CLS]", cls))),
        ("accents gone", bert(lowercase=False, strip_accents=True), template),
    ]
    cases = []
    for name, normalizer, processor in forms:
        tok = build(vocab, normalizer, processor)
        pairs = []
        for i in range(0, len(texts) - 1, 3):
            limit = 4 + i % 40
            tok.no_truncation()
            whole = tok.encode(texts[i], texts[i + 1])
            tok.enable_truncation(limit, strategy="longest_first")
            cut = tok.encode(texts[i], texts[i + 1])
            one = tok.encode(texts[i])
            pairs.append({"first": i, "ids": whole.ids,
                          "types": whole.type_ids, "limit": limit,
                          "cut": cut.ids, "one": one.ids})
        tok.no_truncation()
        cases.append({"name": name, "tokenizer": json.loads(tok.to_str()),
                      "ids": [tok.encode(t).ids for t in texts],
                      "pairs": pairs})
    for case in cases[1:]:  # the same vocabulary
        case["tokenizer"]["model"]["vocab"] = None
    (HERE / "word_pieces.json").write_text(
        json.dumps({"texts": texts, "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
