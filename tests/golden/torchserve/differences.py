"""Where Millrace answers otherwise than TorchServe, and why. What is not listed
here is the same."""


def same_but(theirs, ours, key):
    """All but one key of the models that are described."""
    def rest(answer):
        return answer["status"], answer["headers"], [
            {k: v for k, v in model.items() if k != key}
            for model in answer["body"]]
    return all(isinstance(each.get("body"), list) and
               all(isinstance(model, dict) for model in each["body"])
               for each in (theirs, ours)) and rest(theirs) == rest(ours)


# Reason, and which cases: a name, or a function of name and both responses.
RULES = [
    ("what a request got wrong is 400; TorchServe's Python fails at it and "
     "answers 503, or 200 to an empty body",
     lambda name, theirs, ours: "predictions/" in name and
     ours["status"] == 400 and (theirs["status"] == 503 or
                                theirs.get("body") == [])),
    ("a negative number of workers is refused; TorchServe fails at it, and the "
     "model has lost its workers",
     {"management: PUT /models/other?min_worker=-1"}),
    ("fields of a query are inputs where there is no body; TorchServe's "
     "handlers get them, too, but not these",
     {"inference: GET /predictions/linear?data=%5B1%2C2%2C3%5D",
      "inference: POST /predictions/linear?data=%5B1%2C2%2C3%5D "
      "(in the query)"}),
    ("there is a page at the root", {"inference: GET /"}),
    ("OpenAI's list of models stands at /v1/models, with OpenAI's errors",
     {"inference: GET /v1/models/absent"}),
    ("metrics are on the port of management, too",
     {"management: GET /metrics"}),
    ("metrics are read by GET", {"metrics: POST /metrics"}),
    ("a model's description has the paths that there are",
     {"inference: OPTIONS /predictions/linear"}),
    ("an archive is named as it lies in the store; TorchServe takes the last "
     "part of a path", {"management: POST /models?url=store/linear.mar"}),
    ("a file: address is no archive of the store, whatever it leads to",
     {"management: POST /models?url=file%3A///etc/passwd"}),
    ("an archive whose handler is not one of ours is refused at once",
     {"management: POST /models?url=gone.mar"}),
    ("what a model takes and gives is its customized metadata",
     lambda name, theirs, ours: "customized=true" in name and
     same_but(theirs, ours, "customizedMetadata")),
    ("loadedAtStartup tells of each version when it was registered",
     lambda name, theirs, ours: same_but(theirs, ours, "loadedAtStartup")),
]


def reason(name, theirs, ours):
    """Why the responses differ; none when nothing says so."""
    for why, covers in RULES:
        if covers(name, theirs, ours) if callable(covers) else name in covers:
            return why
    return None
