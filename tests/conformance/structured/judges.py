"""Who takes a text for a schema: our grammars over single bytes, llguidance's,
and jsonschema, which reads the value."""
import ctypes
import json
import pathlib
import struct
import subprocess

import jsonschema

try:
    import llguidance
except ImportError:
    llguidance = None
try:
    import tvm_ffi
except ImportError:
    tvm_ffi = None

SCHEMA, END = 2, 256  # ConstraintKind::kJsonSchema; the id that ends a text
TOKENS = [bytes([i]) for i in range(END)] + [b""]
MOST_BYTES = 400  # of a walk's text
# A walk takes these first where it could go on for long.
CLOSING = b'"}]'


def register(name):
    return tvm_ffi.register_object("xgrammar.tvm_ffi_binding." + name)(
        type(name, (tvm_ffi.Object,), {}))


def made(kind, *arguments):
    value = kind.__new__(kind)
    value.__ffi_init__(*arguments)
    return value


def weighed(rng, allowed, length):
    """One of the bytes (or END) that may come next."""
    close = [i for i in (END, *CLOSING) if allowed(i)]
    if close and rng.random() < (0.25 if length < MOST_BYTES / 4 else 0.95):
        return close[0] if length >= MOST_BYTES / 4 else rng.choice(close)
    printable = list(range(32, 127))
    rng.shuffle(printable)
    odd = list(range(127, 256)) + [9, 10]
    rng.shuffle(odd)
    order = odd + printable if rng.random() < 0.03 else printable + odd
    return next((i for i in order if allowed(i)), close[0] if close else None)


def walk(rng, allowed, accept):
    """A random text that a grammar takes; None: it did not end."""
    text = b""
    while len(text) < MOST_BYTES:
        byte = weighed(rng, allowed, len(text))
        if byte is None:
            return None
        if byte == END:
            try:
                return text.decode()
            except UnicodeDecodeError:
                return None
        accept(byte)
        text += bytes([byte])
    return None


class Ours:
    """`millrace compile-grammar`, as for a request, and the library that the
    server opens."""

    def __init__(self, binary, library):
        self.binary = binary
        ctypes.CDLL(str(pathlib.Path(library) / "libxgrammar_bindings.so"))
        self.grammar = register("CompiledGrammar")
        self.matcher = register("GrammarMatcher")
        self.tokens = made(register("TokenizerInfo"), TOKENS, 0, len(TOKENS),
                           [END], False)

    def compile(self, schema):
        """The grammar, and None; or None and why the schema is refused."""
        def text(value):
            return struct.pack("<I", len(value)) + value

        job = (struct.pack("<I", SCHEMA) + text(json.dumps(schema).encode())
               + struct.pack("<IIII", len(TOKENS), 1, END, len(TOKENS))
               + b"".join(map(text, TOKENS)))
        done = subprocess.run([self.binary, "compile-grammar"], input=job,
                              capture_output=True)
        if done.returncode != 0:
            return None, f"the child ended with {done.returncode}"
        answer = done.stdout[1:].decode()
        if done.stdout[:1] != b"K":
            return None, answer
        return self.grammar.deserialize_json(answer, self.tokens), None

    def new(self, grammar):
        return made(self.matcher, grammar, None, False, -1, None)

    def takes(self, grammar, text):
        matcher = self.new(grammar)
        return bool(all(matcher.accept_token(byte, False)
                        for byte in text.encode())
                    and matcher.accept_token(END, False))

    def walk(self, grammar, rng):
        matcher = self.new(grammar)

        def allowed(byte):
            if not matcher.accept_token(byte, False):
                return False
            matcher.rollback(1)
            return True

        return walk(rng, allowed, lambda byte: matcher.accept_token(byte,
                                                                    False))


class Second:
    """llguidance."""

    def __init__(self):
        self.tokens = llguidance.LLTokenizer("byte")

    def compile(self, schema):
        """The grammar; None: it does not take the schema."""
        return self.compile_or_why(schema)[0]

    def compile_or_why(self, schema):
        """The grammar, and None; or None and why the schema is refused."""
        grammar = llguidance.LLMatcher.grammar_from_json_schema(
            json.dumps(schema))
        made = self.new(grammar)
        if made.is_error():
            return None, made.get_error().split("\n")[0]
        return grammar, None

    def new(self, grammar):
        return llguidance.LLMatcher(self.tokens, grammar, log_level=0)

    def takes(self, grammar, text):
        matcher = self.new(grammar)
        taken = matcher.consume_tokens(
            self.tokens.tokenize_bytes(text.encode()))
        return bool(taken and matcher.is_accepting())

    def walk(self, grammar, rng):
        matcher = self.new(grammar)

        def allowed(byte):
            if byte == END:
                return matcher.is_accepting()
            return matcher.validate_tokens([byte]) == 1

        return walk(rng, allowed, lambda byte: matcher.consume_token(byte))


def no_constant(word):
    raise ValueError(f"{word} is no JSON")


def why_not(text, schema):
    """None: the text is JSON and fits, its formats included as far as Python
    can tell (`pip install jsonschema[format]`)."""
    try:
        value = json.loads(text, parse_constant=no_constant)
    except ValueError as error:
        return f"does not parse: {error}"
    kind = jsonschema.validators.validator_for(
        schema, default=jsonschema.Draft202012Validator)
    judge = kind(schema, format_checker=kind.FORMAT_CHECKER)
    return next((e.message for e in judge.iter_errors(value)), None)
