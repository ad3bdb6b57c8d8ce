#!/usr/bin/env python3
"""Writes tests/golden/text/nfc.json: texts and what Python's normalisation makes
of them.

    python3 tests/data/make_nfc.py     (Python 3.11: Unicode 14.0)
"""
import json
import pathlib
import random
import unicodedata as u

REPO = pathlib.Path(__file__).parents[2]
GOLDEN = REPO / "tests" / "golden" / "text" / "nfc.json"


def texts():
    yield from ["", "plain", "e\u0301\u0301", "\u0301e", "a\u0323\u0307",
                "a\u0307\u0323", "q\u0307\u0323x", "\u1e9b\u0323",
                "\u1100\u1161\u11a8", "\uac00\u11a8", "\uac01\u11a8",
                "\u1100\u1161\u11a7", "\u0344", "\u0958", "\uf900\u2f800",
                "\u212b\u2126\u212a", "\U0001d15e", "\u0b47\u0b3e",
                "\u0b47\u0300\u0b3e", "\u09c7\u0334\u09be"]
    random.seed(5)
    made = [chr(c) for c in range(0x110000)
            if u.decomposition(chr(c)) and u.decomposition(chr(c))[0] != "<"]
    marks = [chr(c) for c in range(0x110000) if u.combining(chr(c))]
    for _ in range(200):
        text = "".join(random.choice((random.choice(made),
                                      random.choice(marks),
                                      random.choice("aeio\uac00\u1100\u1161"
                                                    "\u11a8\u0301\u0323")))
                       for _ in range(random.randint(1, 9)))
        yield text if random.random() < 0.5 else u.normalize("NFD", text)


GOLDEN.write_text(json.dumps(
    [[t, u.normalize("NFC", t)] for t in texts()], indent=0) + "\n")
