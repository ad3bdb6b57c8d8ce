"""Why our grammar and llguidance's may differ on a text: the list of reasons,
each with a test. A difference that none explains is an error of the run.

A reason is found by asking again with a text that differs in one thing only:
the same value in its plain spelling, with its keys in another order, with whole
numbers written as such.
"""
import itertools
import json
import re

MOST_ORDERS = 24

# Formats that are written narrower than they are (models/grammar/
# format_pattern.cc), and those that Python or llguidance reads otherwise.
NARROWED = {"date", "time", "date-time", "hostname", "ipv6"}

# Keywords that say something about values of one type only.
OF_ONE_TYPE = {"properties", "additionalProperties", "patternProperties",
               "required", "minProperties", "maxProperties", "items",
               "prefixItems", "minItems", "maxItems", "pattern", "format",
               "minLength", "maxLength", "minimum", "maximum",
               "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}


def orders(value):
    """The value with its objects' keys in every order, some at most."""
    if isinstance(value, list):
        parts = [list(orders(item)) for item in value]
        for chosen in itertools.islice(itertools.product(*parts), MOST_ORDERS):
            yield list(chosen)
    elif isinstance(value, dict):
        for keys in itertools.islice(itertools.permutations(value),
                                     MOST_ORDERS):
            parts = [list(orders(value[key])) for key in keys]
            for chosen in itertools.islice(itertools.product(*parts),
                                           MOST_ORDERS):
                yield dict(zip(keys, chosen))
    else:
        yield value


def plain(value):
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def texts_of(value):
    return list(dict.fromkeys(
        plain(v) for v in itertools.islice(orders(value), MOST_ORDERS)))


def whole(value):
    """Numbers without a fraction as integers."""
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    return value


def has(value, test):
    if test(value):
        return True
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list) and any(has(v, test) for v in value)


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def formats_of(schema):
    return set(re.findall(r'"format": "([^"]*)"', json.dumps(schema)))


def names_of(schema):
    return set(re.findall(r'"((?:[^"\\]|\\.)*)":', json.dumps(schema)))


def spelling(takes, value, text):
    """How `text` differs from a spelling of the value that is taken."""
    if takes(plain(value)):
        if plain(value) == text:
            return None
        return "another spelling: white space, escapes, a number's form"
    tight = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if tight != text and takes(tight):
        return "another spelling: white space, escapes, a number's form"
    if takes(plain(whole(value))):
        return "a whole number that is written with a fraction or exponent"
    if any(takes(t) for t in texts_of(value) + texts_of(whole(value))):
        return "another order of keys"
    return None


def narrower(schema, value, text, takes):
    """Why ours refuses a text that fits."""
    reason = spelling(takes, value, text)
    if reason:
        return reason
    if has(value, lambda v: is_number(v) and abs(v) >= 1e9
           or isinstance(v, float)):
        return "a number of more digits than are written, or an exponent"
    if formats_of(schema) & NARROWED:
        return "a format that is narrowed"
    if has(value, lambda v: isinstance(v, dict)
           and not set(map(str, v)) <= names_of(schema)):
        return "names that the schema does not list"
    if '"type"' not in json.dumps(schema):
        return "a value of another type, where the schema names none"
    if has(schema, lambda s: isinstance(s, dict) and "type" not in s
           and set(s) & OF_ONE_TYPE):
        return "a value of another type, where the schema names none"
    if re.search(r'"(anyOf|oneOf|allOf|\$ref)"', json.dumps(schema)):
        return "a combination that is narrowed"
    if "\\" in text and re.search(r'"(pattern|minLength|maxLength)',
                                  json.dumps(schema)):
        return "an escape in a string with a pattern or length"
    return None


def explain(schema, value, text, ours, theirs, fits):
    """`ours` and `theirs` say whether they take a text, `fits` whether this one
    does; they differ on it. (who is right, why), why None: unexplained."""
    if ours(text):
        if not fits:
            return "llguidance", None
        reason = spelling(theirs, value, text)
        if (reason is None and "\x7f" in text
                and theirs(text.replace("\x7f", "\\u007f"))):
            reason = "DEL, which llguidance takes as an escape only"
        if reason is None and formats_of(schema):
            reason = "a format that llguidance reads narrower"
        if reason is None and '"pattern' in json.dumps(schema):
            reason = "a pattern that llguidance reads narrower"
        return "we", reason
    if not fits:
        reason = "llguidance takes a value that does not fit"
        if formats_of(schema):
            reason += ": a format"
        elif '"pattern' in json.dumps(schema):
            reason += ": a pattern"
        return "we", reason
    return "both", narrower(schema, value, text, ours)
