"""Makes jinja_cases.json: small templates and what Jinja itself makes of them.

Needs jinja2 3.1 and nothing else: python3 make_jinja_cases.py
The environment is the one that transformers renders chat templates in. Errors
are kept as their type and text; the tests only want that there is one, and
raise_exception's words exactly."""
import datetime
import json
import os

import jinja2
from jinja2 import ext, nodes, sandbox

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(HERE, "jinja_cases.json")
NOW = datetime.datetime(2026, 3, 9, 14, 5, 7)


class Generation(ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_render")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent,
                      separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


environment = sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = NOW.strftime

with open(PATH, encoding="utf-8") as file:
    golden = json.load(file)
for case in golden["cases"]:
    source = case["template"]
    case.clear()
    case["template"] = source
    try:
        case["rendered"] = environment.from_string(source).render(
            documents=None, add_generation_prompt=True, bos_token="<s>",
            eos_token="</s>", **golden["context"])
    except Exception as error:
        case["error"] = f"{type(error).__name__}: {error}"
golden["meta"] = {"jinja2": jinja2.__version__, "now": NOW.isoformat()}
with open(PATH, "w", encoding="utf-8") as file:
    json.dump(golden, file, ensure_ascii=False, indent=1)
    file.write("\n")
