"""The first hour at a terminal: flags that people try, help, completions,
warnings, and a chat, with the real binary, through a pseudo-terminal where one
matters."""
import http.server
import json
import re
import subprocess
import threading
import urllib.request

import pytest

from conftest import BINARY, MODEL, MODEL_ID, REPO, start
from terminal import Terminal, clean_environment, plain

VERBS = ["serve", "chat", "health", "trace", "pull", "keys", "inspect", "topology",
         "bench", "convert", "migrate", "run", "quantize", "profile", "logits",
         "completion"]


def run(*args, env=None, stdin=""):
    return subprocess.run([BINARY, *map(str, args)], input=stdin,
                          capture_output=True, text=True, timeout=60,
                          env={**clean_environment(), **(env or {})})


def settings(*args, env=None):
    """What --print-config shows of each setting, and the warnings."""
    done = run("serve", "--print-config", *args, env=env)
    assert done.returncode == 0, done.stderr
    lines = dict(re.findall(r"^ *(?:- )?(\w+): (.*?) *(?:#.*)?$", done.stdout,
                            re.M))
    return lines, done.stderr.splitlines()


def refused(*args):
    """The one sentence of a wrong command line."""
    done = run("serve", *args)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("millrace serve: ").strip()


# ---- flags -------------------------------------------------------------------

@pytest.mark.parametrize("flag", ["--model", "-m", "--model-path"])
def test_a_model_may_be_a_flag(flag):
    lines, _ = settings(flag, MODEL, "--served-model-name", "x")
    assert lines["path"] == f'"{MODEL}"'
    lines, _ = settings(f"{flag}=small={MODEL}")
    assert lines["name"] == '"small"'


def test_flags_of_other_servers_that_mean_a_setting_of_ours():
    lines, _ = settings("--port", 9000, "--host", "localhost", "-c", 512, "-t",
                        1, "-np", 3, "--ctx-size", 256, "-ctk", "f32")
    assert lines["http_port"] == "9000" and lines["host"] == '"localhost"'
    assert lines["max_model_len"] == "256" and lines["threads"] == "1"
    assert lines["max_num_seqs"] == "3" and lines["kv_cache_dtype"] == '"f32"'


@pytest.mark.parametrize("flags, words", [
    (["--lora", "x"], "--lora-modules NAME=PATH"),
    (["-ngl", "99"], "say --device cuda:0"),
    (["--pipeline-parallel-size", "2"], "--threads"),
    (["--mem-fraction-static", "0.9"], "--kv-cache-memory-bytes"),
    (["--dtype", "bfloat16"], "--quantize"),
    (["--trust-remote-code"], "no code of a model is ever run"),
    (["--ssl-cert-path", "c.pem"], "--ssl-cert-file"),
    (["--temp", "0.5"], "--override-generation-config"),
    (["-v"], "--log-level debug"),
])
def test_flags_of_other_servers_that_we_lack_are_answered(flags, words):
    sentence = refused(MODEL, *flags)
    assert sentence.startswith(flags[0] + " ") and words in sentence


def test_only_near_names_are_suggested():
    assert refused("--foo") == (
        "unknown flag --foo; millrace serve --help-all lists the flags")
    assert "did you mean --http-port?" in refused("--htp-port", 1)
    assert refused("--isa", "none").startswith("--isa is 'none'")
    assert refused("-np", "many").startswith("-np (max_num_seqs) is ")
    assert "say --config c.yaml" in refused("c.yaml")
    assert refused("--port") == "--port needs a value after it"
    done = run("sevre")
    assert done.returncode == 2
    assert done.stderr == (
        "millrace: there is no verb 'sevre'; did you mean 'serve'?\n")


def test_a_command_line_without_a_verb():
    assert f"say: millrace serve {MODEL}\n" in run(MODEL).stderr
    assert "say: millrace serve --port" in run("--port", 9000).stderr
    assert run("help", "topology").stdout == run("topology", "--help").stdout
    assert run("-V").stdout == run("--version").stdout
    assert run("-v").stdout == run("--version").stdout


# ---- help --------------------------------------------------------------------

@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_the_terminal_and_ends_with_two_examples(verb, columns):
    flags = ["--help", "--help-all"] if verb == "serve" else ["--help"]
    for flag in flags:
        with Terminal(BINARY, verb, flag, columns=columns) as terminal:
            assert terminal.end() == 0
            lines = plain(terminal.seen).splitlines()
        assert max(map(len, lines)) <= columns
        if columns == 120 and flag == "--help-all":
            assert max(map(len, lines)) > 80, "the width is used"
        examples = lines[lines.index("examples:") + 1:]
        assert len(examples) == 2
        assert all(re.match(rf"  .*millrace {verb}\b", e) for e in examples)


def test_short_help_of_serve():
    few, everything = (run("serve", flag).stdout
                       for flag in ["--help", "--help-all"])
    assert ".pt2" in few and "--help-all" in few
    assert few.count("\n") < 90 < everything.count("\n")
    assert "--idle-timeout" in everything and "--idle-timeout" not in few


def test_completions_of_bash_are_those_of_the_program(tmp_path):
    script = tmp_path / "complete.sh"
    script.write_text("""
        source <("$1" completion bash); shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _millrace; echo "${COMPREPLY[*]}"
    """)

    def complete(*words):
        done = subprocess.run(
            ["bash", "--norc", script, BINARY, "millrace", *words],
            capture_output=True, text=True, timeout=30)
        assert done.returncode == 0 and not done.stderr, done.stderr
        return done.stdout.split()

    assert complete("") == VERBS
    assert complete("he") == ["health"]
    assert complete("serve", "--http-p") == ["--http-port"]
    assert "amx" in complete("serve", "--isa", "")
    assert complete("serve", "--log-format", "=", "j") == ["json"]
    assert complete("serve", "--config", "") == [], "the shell names files"
    assert complete("serve", "--exit-on-error", "") == ["true", "false"]
    assert complete("serve", "--profile", "=", "t") == ["torchserve"]
    assert complete("bench", "--re") == ["--reps"]
    assert run("completion", "tcsh").returncode == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_name_every_verb_and_setting(shell):
    script = run("completion", shell).stdout
    for word in [*VERBS, "kv-cache-dtype", "iters", "temperature"]:
        assert word in script
    # Those that are no settings, too, and TorchServe's.
    flags = re.findall(r"^  --([a-z][\w-]*)", run("serve", "--help-all").stdout,
                       re.M)
    assert {"pull", "model-sha256", "exit-on-error", "profile"} < set(flags)
    for flag in [*flags, "help-all", "model-store", "ts-config"]:
        assert ("-l " if shell == "fish" else "--") + flag in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


# ---- settings without effect -------------------------------------------------

def test_a_setting_without_effect_says_so():
    _, warnings = settings(MODEL, "--precision", "int8")
    assert len(warnings) == 1
    assert warnings[0].startswith("warning: --precision has no effect: it is "
                                  "for graphs")
    _, warnings = settings(REPO / "tests/data/graph/bert_base.onnx",
                           "--max-model-len", 64)
    assert len(warnings) == 1
    assert "--max-model-len has no effect" in warnings[0]
    _, warnings = settings(MODEL, "--threads", 900)
    assert len(warnings) == 1 and "--threads is 900 but" in warnings[0]
    _, warnings = settings(MODEL, env={"MILLRACE_HTTP_PROT": "9"})
    assert warnings == ["warning: the environment variable MILLRACE_HTTP_PROT "
                        "has no effect: there is no such setting; did you mean "
                        "MILLRACE_HTTP_PORT?"]
    assert settings(MODEL)[1] == []


def test_variables_that_are_read_are_known():
    """By the program, in whatever it is that they name, and by the script that
    starts it."""
    read = set(re.findall(r"\$\{(MILLRACE_\w+)",
                          (REPO / "deploy/torchserve.sh").read_text()))
    for folder in ("config", "models", "scheduler", "handlers", "server"):
        for source in (REPO / folder).rglob("*.[ch]*"):
            read.update(re.findall(
                r"(?:getenv|Variable|VariableOr|EnvironmentOr|IsSet|ModulePlaces|"
                r"VendorLibrary \w+)\(\s*\"(MILLRACE_\w+)\"",
                source.read_text()))
    assert {"MILLRACE_CACHE", "MILLRACE_CUDNN", "MILLRACE_MPI_MODULE",
            "MILLRACE_PID_FILE"} <= read
    known = settings(MODEL)[0]
    # What is a setting, too, may have another value than a file.
    others = {name: "/f" for name in read
              if name.removeprefix("MILLRACE_").lower() not in known}
    assert settings(MODEL, env=others)[1] == []


def test_the_log_of_the_start_warns_too():
    with start("--precision", "int8", "--threads", 900,
               env={"MILLRACE_HTTP_PROT": "9"}) as server:
        warnings = [json.loads(line) for line in server.lines
                    if '"a setting has no effect"' in line]
    assert len(warnings) == 3
    assert all(line["level"] == "warning" and line["why"] for line in warnings)


def test_models_of_the_command_line_and_of_the_file_are_both_served(tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text(f"models: [{{path: '{MODEL}', name: one}}]\n"
                      "max_model_len: 256\n")
    with start(f"two={MODEL}", "--config", config) as server:
        listed = json.loads(server.get("/v1/models"))["data"]
    assert [model["id"] for model in listed] == ["two", "one"]
    assert f"{config} both name a model 'one'" in refused(
        f"one={MODEL}", "--config", config)


def test_a_setting_of_the_server_under_a_model(tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text(f"models:\n  - path: {MODEL}\n    http_port: 1\n")
    assert refused("--config", config) == (
        f"{config} line 3: http_port belongs to the server, not to a model; "
        "write it at the top level of the file")


# ---- sampling ----------------------------------------------------------------

def sampling_of(server):
    models = json.loads(server.get("/v1/models"))["data"]
    return models[0]["default_sampling_params"]


def story(server, **fields):
    request = urllib.request.Request(
        server.url + "/v1/completions",
        json.dumps({"model": MODEL_ID, "prompt": "Once upon", "max_tokens": 24,
                    **fields}).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["choices"][0]["text"]


def test_the_default_model_has_the_sampling_of_its_makers(server):
    assert sampling_of(server) == {"temperature": 0.2, "top_p": 0.9}
    loaded = next(json.loads(line) for line in server.lines
                  if '"model loaded"' in line)
    assert loaded["sampling"] == "temperature 0.2, top_p 0.9 (makers' advice)"


def test_sampling_may_be_overridden_or_ignored():
    with start("--override-generation-config", '{"temperature": 0}') as server:
        assert sampling_of(server) == {"temperature": 0, "top_p": 0.9}
        assert len({story(server) for _ in range(4)}) == 1
        assert len({story(server, temperature=1.5) for _ in range(4)}) > 1, (
            "a request's own fields win")
    with start("--generation-config", "vllm") as server:
        assert sampling_of(server) == {}
    assert "it takes temperature" in run(
        "serve", "--override-generation-config", '{"temp": 1}').stderr


def test_the_first_answer_of_the_quickstart_is_true_and_fluent(server):
    script = (REPO / "deploy" / "quickstart.sh").read_text()
    question = re.search(r'^question="(.*)"$', script, re.M)[1]
    for _ in range(20):
        done = run("chat", "--url", server.url, "--max-tokens", 120, question)
        assert done.returncode == 0 and done.stderr == ""
        answer = done.stdout.strip()
        assert answer.startswith("The water cycle is a") and (
            answer.endswith(".")), answer
        assert re.search("evaporation|transform|movement", answer), answer
        words = re.findall(r"\w+", answer)
        assert 8 < len(words) < 60 and len(set(words)) > len(words) // 2


# ---- chat --------------------------------------------------------------------

class Scripted(http.server.BaseHTTPRequestHandler):
    """Answers every question with what the test wants to see on a screen."""
    answer, key, ending = "", None, "stop"

    def log_message(self, *_):
        pass

    def _send(self, body, kind, status=200):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refused(self):
        if not self.key or (self.headers["Authorization"]
                            == f"Bearer {self.key}"):
            return False
        self._send(b'{"error":{"message":"no key"}}', "application/json", 401)
        return True

    def do_GET(self):
        if self._refused():
            return
        self._send(b'{"data":[{"id":"tiny","max_model_len":64}]}',
                   "application/json")

    def do_POST(self):
        size = int(self.headers["Content-Length"])
        self.server.asked.append(json.loads(self.rfile.read(size)))
        events = [{"delta": {"content": piece}, "finish_reason": None}
                  for piece in re.findall(r".{1,3}", self.answer, re.S)]
        events.append({"delta": {}, "finish_reason": self.ending})
        body = "".join(f"data: {json.dumps({'choices': [event]})}\n\n"
                       for event in events) + "data: [DONE]\n\n"
        self._send(body.encode(), "text/event-stream")


@pytest.fixture
def scripted():
    servers = []

    def serve(**facts):
        handler = type("Handler", (Scripted,), facts)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.asked = []
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


PROMPT = ">\x1b\\[0m $"
MARKDOWN = "## Rivers\n- **Loire** by `boat`\n```\nx = 1\n```\nEnd."


def test_markdown_is_shown_on_a_terminal(scripted):
    server = scripted(answer=MARKDOWN)
    with Terminal(BINARY, "chat", "--url", server.url, "Hi") as terminal:
        assert terminal.end() == 0
        seen = terminal.seen
    assert "\x1b[1;4mRivers\x1b[0m" in seen and "\x1b[1mLoire\x1b[0m" in seen
    assert plain(seen) == "Rivers\n• Loire by boat\nx = 1\nEnd.\n"


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_color_and_a_dumb_terminal_show_the_text_as_it_is(scripted, env):
    server = scripted(answer=MARKDOWN)
    with Terminal(BINARY, "chat", "--url", server.url, "Hi",
                  env=env) as terminal:
        assert terminal.end() == 0
    assert terminal.seen.replace("\r", "") == MARKDOWN + "\n"


def test_without_a_terminal_lines_are_plain(scripted):
    server = scripted(answer=MARKDOWN)
    done = run("chat", "--url", server.url, stdin="one\n/clear\ntwo\n")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout == (MARKDOWN + "\nThe conversation is forgotten.\n"
                           + MARKDOWN + "\n")
    assert [len(asked["messages"]) for asked in server.asked] == [1, 1]
    assert server.asked[0]["temperature"] == 0.7
    assert server.asked[0]["top_p"] == 0.9


def test_lines_are_edited_and_remembered(scripted, tmp_path):
    server = scripted(answer="Yes.")
    saved = tmp_path / "talk.json"
    with Terminal(BINARY, "chat", "--url", server.url) as terminal:
        terminal.until(r"Talking with tiny \(temperature 0.7, top_p 0.9\)")
        terminal.until(PROMPT)
        terminal.type("hello wrld\x1b[D\x1b[D\x1b[Do\r")  # three to the left
        terminal.until(r"Yes\..*" + PROMPT)
        terminal.type("\x1b[A\x05 again é\r")  # up, to the end of the line
        terminal.until(r"Yes\..*" + PROMPT)
        terminal.type("/system Be brief.\r")
        terminal.until("is set.*" + PROMPT)
        terminal.type(f"/save {saved}\r")
        terminal.until("5 messages are written.*" + PROMPT)
        terminal.type("/hlep\r")
        terminal.until(r"no command /hlep; did you mean /help\?.*" + PROMPT)
        terminal.type("/help\r")
        terminal.until("/save FILE.*" + PROMPT)
        terminal.type("\x04")
        assert terminal.end() == 0
    asked = [each["messages"][-1]["content"] for each in server.asked]
    assert asked == ["hello world", "hello world again é"]
    roles = [each["role"] for each in json.loads(saved.read_text())["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant"]


def test_ctrl_c_at_the_prompt_drops_the_line(scripted):
    server = scripted(answer="Yes.")
    with Terminal(BINARY, "chat", "--url", server.url) as terminal:
        terminal.until("Ctrl-D leaves.*" + PROMPT)
        terminal.type("one\r")
        terminal.until(r"Yes\..*" + PROMPT)
        terminal.type("half a li")
        terminal.until("half a li")
        for _ in range(2):
            terminal.type("\x03")
            terminal.until(r"\^C\s+\(Ctrl-D leaves\)\r\n.*" + PROMPT)
        terminal.type("two\r")
        terminal.until(r"Yes\..*" + PROMPT)
        terminal.type("\x04")
        assert terminal.end() == 0
    asked = [[message["content"] for message in each["messages"]]
             for each in server.asked]
    assert asked == [["one"], ["one", "Yes.", "two"]]


def test_chat_leaves_the_terminal_as_it_was(scripted):
    server = scripted(answer="Yes.")
    with Terminal("bash", "--norc", "-c",
                  f"trap : INT; '{BINARY}' chat --url {server.url}; stty -a"
                  ) as terminal:
        terminal.until("Ctrl-D leaves.*" + PROMPT)
        terminal.type("half a li")
        terminal.until("half a li")
        terminal.type("\x03")
        terminal.until("Ctrl-D leaves.*" + PROMPT)
        terminal.type("\x04")
        assert terminal.end() == 0
        modes = terminal.until("speed.*")
    assert re.search(r"[^-]isig [^-]*icanon\b.*[^-]echo\b", modes, re.S), modes


def test_chat_finds_the_server_where_health_does(scripted):
    server = scripted(answer="Yes.")
    port = server.url.rpartition(":")[2]
    done = run("chat", "Hi", env={"MILLRACE_HTTP_PORT": port})
    assert (done.stdout, done.stderr) == ("Yes.\n", "")
    done = run("chat", "--port", 1, "Hi", env={"MILLRACE_HTTP_PORT": port})
    assert "127.0.0.1:1 " in done.stderr


def test_an_answer_that_was_cut_says_so(scripted):
    server = scripted(answer="And", ending="length")
    done = run("chat", "--url", server.url, "--max-tokens", 3, "Hi")
    assert (done.stdout, done.stderr) == ("And\n",
                                          "(cut off: --max-tokens is 3)\n")
    done = run("chat", "--url", server.url, "Hi")
    assert done.stderr == "(cut off: the context of 64 tokens is full)\n"


def test_401_names_the_flag(scripted):
    server = scripted(answer="Yes.", key="secret")
    done = run("chat", "--url", server.url, "Hi")
    assert done.returncode == 1 and "--api-key KEY" in done.stderr
    done = run("chat", "--url", server.url, "--api-key", "wrong", "Hi")
    assert done.returncode == 1 and "check --api-key" in done.stderr
    done = run("chat", "--url", server.url, "Hi",
               env={"MILLRACE_API_KEY": "secret"})
    assert done.stdout == "Yes.\n"


def test_a_model_that_the_server_lacks(server):
    done = run("chat", "--url", server.url, "-m", "gpt-9", "Hi")
    assert done.returncode == 1
    assert f"has no model 'gpt-9'; it has {MODEL_ID}" in done.stderr
