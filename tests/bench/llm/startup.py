"""Cold start and memory of a server process."""
import json
import os
import subprocess
import sys

from report import Row
from servers import commands

HERE = os.path.dirname(os.path.abspath(__file__))
COLD = os.path.join(HERE, "..", "peers", "cold_start.py")


def section(args, model):
    packed = os.path.join(args.out, os.path.basename(model) + ".packed")
    subprocess.run([args.millrace, "convert", model, packed], check=True, stdout=subprocess.DEVNULL)
    first = {"millrace": [], "llama.cpp": []}
    rss = {"millrace": [], "llama.cpp": []}
    for turn in range(args.rounds):
        order = list(first) if turn % 2 == 0 else list(first)[::-1]
        for name in order:
            command, url, _ = commands(args, packed if name == "millrace" else model, 16)[name]
            served = "model" if name == "llama.cpp" else os.path.splitext(os.path.basename(packed))[0]
            out = subprocess.check_output([sys.executable, COLD, "--url", url, "--model", served, "--load", "16",
                                           "--", *command], text=True)
            found = json.loads(out)
            first[name].append(found["first_token_s"])
            rss[name].append(found["after_load"]["rss_mib"])
    return [Row("startup/first", "cold start to first token, converted form", "s", first["millrace"],
                {"llama.cpp": first["llama.cpp"]}, 0.5, higher=False),
            Row("startup/rss", "RSS after 16 requests", "MiB", rss["millrace"],
                {"llama.cpp": rss["llama.cpp"]}, 1.05, higher=False)]
