"""Where Millrace answers otherwise than TorchServe, and why. What is not listed
here is the same."""


def ok(answer):
    return answer["status"] in (200, 202)


# Reason, and which cases: a name, or a function of name and both responses.
RULES = [
    ("what a request got wrong is 400; TorchServe's Python fails at it and "
     "answers 503, or 200 to an empty body",
     lambda name, theirs, ours: "predictions/" in name and
     ours["status"] == 400 and (theirs["status"] == 503 or
                                theirs.get("body") == [])),
    ("words that are no numbers, and numbers that mean nothing, are refused; "
     "TorchServe takes its defaults",
     lambda name, theirs, ours: name.startswith("management") and
     theirs["status"] in (200, 202, 500) and ours["status"] == 400 and
     any(word in name for word in ("=x", "=-1", "=0"))),
    ("what was refused is not there to be deleted or scaled",
     lambda name, theirs, ours: "(after url" in name and
     theirs["status"] == 200 and ours["status"] == 404),
]


def reason(name, theirs, ours):
    """Why the responses differ; none when nothing says so."""
    for why, covers in RULES:
        if covers(name, theirs, ours) if callable(covers) else name in covers:
            return why
    return None
