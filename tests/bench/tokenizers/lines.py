"""Lines of mixed scripts: half of them made by a seeded generator, half found
in texts that every Linux has (documentation, locales, source code)."""
import pathlib
import random
import sysconfig
import unicodedata as ucd

SCRIPTS = [
    "abcdefghijklmnopqrstuvwxyz ", "ABC XYZ.,;:!?'\"()-_~^`$ ", "0123456789 ",
    "\u00e4\u00f6\u00fc\u00df\u00e9\u00e8\u00c9\u1e9e\u0130\u0131 ",
    "\u0430\u0431\u0432\u0433\u0434\u0401\u0451\u0436 ",
    "\u6c34\u706b\u6728\u91d1\u571f\U0002f81a\U0002b8a0\u3006\u3400",
    "\u306e\u30ab\u309a\u3099\uff76\uff9e\u30fc ", "\ud55c\uae00\u1112\u1161\u11ab ",
    "\u0645\u0627\u0621\u064e\u0651\ufdfa\u0640\u06f4 ",
    "\u05e9\u05dc\u05d5\u05b9\u05dd ", "\u0915\u094d\u0937\u093f\u0903\u0967 ",
    "\u0e19\u0e49\u0e33\u0e40 ", "\u10d0\u1c90 ", "\u13a0\uab70 ",
    "\u03a3\u03c2\u03b1\u0386\u1f80 ",
    "\U0001f600\U0001f44d\U0001f3fd\u200d\U0001f469\ufe0f\U0001f1e9\U0001f1ea",
    " \t\n\r\v\f ", "\u00a0\u2003\u200b\ufeff\u0085\u2028\u2029\u3000\u180e\u1680",
    "\0\x01\x07\x1b\x7f\x80\x9f\u00ad\ue000\ufffd\ufffe",
    "e\u0301a\u0308\u0323\u0338\u20dd", "\u2581 ", "\u00bd\u2167\u2460\u00b2 ",
    "{}[]()<>=+-*/%&|#\\", "\u3002\u300c\u300d\u2014\u2026\u00a1\u00bf",
    "\U0001d49c\U0001d7d8\u210c\ufb01 ",
]
WORDS = ["it's", "WE'LL", "they\u2019re", "snake_case", "CamelCase", "HTTPServer2",
         "12345", "3.14", "1,000,000", "def f(x):\n    return x\n", "\n\n\n",
         "    ", "https://example.com/a?b=c&d=%20", "<b>bold</b>", "\r\n\t",
         "\u00dcber", "na\u00efve", "\u0437\u0434\u0440\u0430\u0432", "\u6c34\u8f66",
         "\u0645\u0631\u062d\u0628\u0627", "\u0928\u092e\u0938\u094d\u0924\u0947",
         "!!??...---", "a" * 70, "=" * 40, " " * 33, "\u00e9" * 40]


# Those of Unicode 14: regular expressions of ours cut letters that came later as
# signs, since PCRE2 10.42 does not know them.
CHARACTERS = [code for code in [*range(0xd800), *range(0xe000, 0x30000)]
              if ucd.category(chr(code)) != "Cn"]


def made(count, specials, seed=11):
    rng = random.Random(seed)
    out = ["", " ", "  ", "\n", "\0", "a ", " a", "  a  b  ", "\u2581", "\u2581a"]
    out += specials + [f"a{s}b" for s in specials] + [f" {s} " for s in specials]
    while len(out) < count:
        line = ""
        for _ in range(rng.randint(1, 14)):
            kind = rng.random()
            if kind < 0.35:
                line += rng.choice(WORDS)
            elif kind < 0.9:
                letters = rng.choice(SCRIPTS)
                line += "".join(rng.choice(letters)
                                for _ in range(rng.randint(1, 9)))
            elif kind < 0.95 and specials:
                line += rng.choice(specials)
            else:
                line += chr(rng.choice(CHARACTERS))
        out.append(line)
    return out[:count]


def found(count, seed=12):
    """Lines of files; other machines give others."""
    stdlib = pathlib.Path(sysconfig.get_paths()["stdlib"])
    folders = [("/usr/share/i18n/locales", "*"), ("/usr/share/doc", "**/*"),
               (stdlib, "*.py"), (stdlib / "test", "*.py"),
               ("/usr/share/perl", "**/*.p[lm]"), ("/usr/share/locale", "**/*")]
    rng = random.Random(seed)
    out, seen = [], set()
    for folder, pattern in folders:
        files = sorted(p for p in pathlib.Path(folder).glob(pattern)
                       if p.is_file() and p.stat().st_size < 1 << 20)
        rng.shuffle(files)
        part = []
        for path in files[:300]:
            try:
                lines = path.read_text(encoding="utf-8").split("\n")
            except (UnicodeDecodeError, OSError):
                continue
            lines = [x for x in lines if 0 < len(x) < 500 and x not in seen]
            # Lines beyond ASCII are few: all of them, and some of the others.
            some = [x for x in lines if not x.isascii()][:60]
            some += rng.sample(lines, min(len(lines), 25))
            seen.update(some)
            part += some
        rng.shuffle(part)
        out += part[:max(count // 3, 1)]
    rng.shuffle(out)
    return out[:count]
