"""Where Millrace answers otherwise than Triton, and why. What is not listed
here is the same."""

# Reason, and which cases: a name, or a function of name and both responses.
RULES = [
    ("what a request got wrong is 400, with the field's name; Triton answers "
     "500 to JSON that does not parse or is of other types",
     lambda name, theirs, ours: theirs["status"] in (500, 501, 503) and
     ours["status"] == 400),
    ("what is not there is 404 for every question about it; Triton answers 400 "
     "to some",
     lambda name, theirs, ours: theirs["status"] in (400, 500) and
     ours["status"] == 404),
    ("health and readiness tell in JSON what the status says, as KServe's "
     "specification does; Triton's body is empty",
     lambda name, theirs, ours: ("ready" in name or "health" in name) and
     theirs["status"] == ours["status"] == 200 and theirs["body"] == ""),
    ("versions are names here: 01 is not 1",
     lambda name, theirs, ours: name.startswith("get version 01")),
    ("metadata and configuration name our platform, the precision, and only "
     "what our models have",
     lambda name, theirs, ours: theirs["status"] == ours["status"] == 200 and
     name.startswith("get /v2") and same_core(theirs["body"], ours["body"])),
    ("numbers that do not fit the type are 400; Triton wraps or overflows them",
     {"simple with beyond INT32", "simple with below INT32",
      "an input with data beyond FP32"}),
    ("JSON knows no NaN and no Infinity (RFC 8259); binary data carries them",
     {"data with NaN", "data with infinity"}),
    ("nested data must be nested as the shape says: a transposed list is a "
     "frequent mistake",
     {"an input with data nested otherwise",
      "an input with data nested too deep"}),
    ("parameters must be an object",
     {"an input with parameters that are a list"}),
    ("a body must be whole", {"infer in gzip, broken"}),
    ("a body must be there; a raw tensor says so by its header",
     {"infer of no body", "logging with no json"}),
    ("an encoding that is not known is 415, as HTTP says",
     {"infer in an unknown encoding"}),
    ("an output may be named once", {"infer with an output twice"}),
    ("outputs come in the order in which they were asked for",
     {"simple, outputs in another order"}),
    ("null is as if it were left out", {"infer with id null"}),
    ("whole numbers may be written as 1.0",
     {"an input with a shape of fractions",
      "simple with fractions that are whole"}),
    ("an empty batch is computed, to empty results",
     {"an input with a shape of zero rows"}),
    ("a shape that no memory holds is refused; Triton 2.51 ends",
     {"an input with a huge shape"}),
    ("paths beyond our protocols get OpenAI's form of errors",
     {"get path /v3"}),
    ("there is a page at the root", {"get path /"}),
    ("names of models may hold slashes, so these are paths of models that take "
     "GET",
     {"infer at /v2/models//infer", "infer at /v2/models/identity/infer/",
      "infer at /v2/models/identity/infers"}),
    ("traces are not offered: their settings are told and do not change",
     {"trace with a rate", "trace with a number",
      "trace with an unknown setting"}),
]


# The same for gRPC.
RULES_GRPC = [
    ("what is not there is NOT_FOUND for every question about it; Triton "
     "answers INVALID_ARGUMENT or INTERNAL to some",
     lambda name, theirs, ours: ours["status"] == "NOT_FOUND" and
     theirs["status"] in ("INVALID_ARGUMENT", "INTERNAL")),
    ("what a request got wrong is INVALID_ARGUMENT",
     lambda name, theirs, ours: ours["status"] == "INVALID_ARGUMENT" and
     theirs["status"] in ("INTERNAL", "UNIMPLEMENTED")),
    ("versions are names here, and one that is not there is not ready",
     lambda name, theirs, ours: name.endswith("version 'x'") and
     theirs["status"] == "INVALID_ARGUMENT"),
    ("metadata and configuration name our platform, the precision, and only "
     "what our models have",
     lambda name, theirs, ours: theirs["status"] == ours["status"] == "OK" and
     name.startswith(("server meta", "metadata", "config", "statistics of 'i",
                      "statistics of 's")) and
     same_core(theirs["response"], ours["response"])),
    ("statistics of no model are those of all, of this version if one is named",
     lambda name, theirs, ours: name.startswith("statistics of ''") and
     same_core(theirs["response"], ours["response"])),
    ("the response has the form of the request: typed values for typed ones",
     lambda name, theirs, ours: name.startswith("typed") and
     theirs["status"] == ours["status"] == "OK" and
     same_but_form(theirs["response"], ours["response"])),
    ("numbers that do not fit the type are refused; Triton wraps them",
     {"infer with INT8 out of range", "infer with UINT16 out of range"}),
    ("raw contents that belong to no input are refused",
     {"infer with raw contents left over"}),
    ("an empty batch is computed, to empty results",
     {"infer with zero rows"}),
    ("no classes means the values, as over REST", {"classification of 0"}),
    ("numbers may come as text", {"a timeout as text"}),
    ("there is no CUDA memory, and no region of it",
     {"cuda regions 'absent'"}),
]


def same_core(theirs, ours):
    """The fields that clients use are the same."""
    if "inputs" in theirs and "versions" in theirs:
        keys = ("name", "versions", "inputs", "outputs")
    elif "config" in theirs:
        return same_core(theirs["config"], ours["config"])
    elif "max_batch_size" in theirs:
        keys = ("name", "max_batch_size")
    elif "extensions" in theirs:
        return set(ours["extensions"]) <= set(theirs["extensions"])
    elif "model_stats" in theirs:
        return all(set(a) >= set(b) - {"response_stats"} for a, b in
                   zip(ours["model_stats"], theirs["model_stats"]))
    else:
        return False
    return all(theirs[key] == ours[key] for key in keys)


def same_but_form(theirs, ours):
    """All but where the values stand."""
    def head(response):
        return [{k: v for k, v in output.items() if k != "contents"}
                for output in response["outputs"]]
    rest = ("id", "model_name", "model_version", "parameters")
    return head(theirs) == head(ours) and all(
        theirs[key] == ours[key] for key in rest)


def reason(rules, name, theirs, ours):
    """Why the responses differ; none when nothing says so."""
    for why, covers in rules:
        if covers(name, theirs, ours) if callable(covers) else name in covers:
            return why
    return None
