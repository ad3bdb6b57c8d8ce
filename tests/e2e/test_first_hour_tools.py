"""The first hour of a new user with the verbs that look at models: inspect,
run, profile, quantize, convert, on graphs, language models and wrong files."""
import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import urllib.error
import urllib.request
import xml.etree.ElementTree

import numpy as np
import pytest

from conftest import BINARY, MODEL, REPO, start
from terminal import Terminal, plain

DATA = REPO / "tests" / "data" / "graph"
HF = REPO / "tests" / "data" / "hf_llama"


def millrace(*args, code=0, timeout=120):
    """What a verb prints; it must end with this code."""
    done = subprocess.run([BINARY, *map(str, args)], capture_output=True,
                          text=True, timeout=timeout)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


# ---- small ONNX files, field by field of onnx.proto ----
def _field(number, value):
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value & (1 << 64) - 1)
    if isinstance(value, str):
        value = value.encode()
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _node(op, inputs, outputs, name="", **attributes):
    body = b"".join(_field(1, text) for text in inputs)
    body += b"".join(_field(2, text) for text in outputs)
    body += _field(3, name or op.lower()) + _field(4, op)
    for key, ints in attributes.items():
        body += _field(5, _field(1, key) + _field(20, 7) +
                       b"".join(_field(8, i) for i in ints))
    return body


def _port(name, dims):
    shape = b"".join(
        _field(1, _field(1, dim) if isinstance(dim, int) else _field(2, dim))
        for dim in dims)
    return _field(1, name) + _field(
        2, _field(1, _field(1, 1) + _field(2, shape)))


def _weight(name, array):
    array = np.asarray(array, np.float32)
    return (b"".join(_field(1, size) for size in array.shape) + _field(2, 1) +
            _field(8, name) + _field(9, array.tobytes()))


def onnx(path, inputs, outputs, nodes, weights=()):
    graph = b"".join(_field(1, node) for node in nodes) + _field(2, "test")
    graph += b"".join(_field(5, weight) for weight in weights)
    graph += b"".join(_field(11, _port(*port)) for port in inputs)
    graph += b"".join(_field(12, _port(*port)) for port in outputs)
    path.write_bytes(_field(1, 8) + _field(7, graph) +
                     _field(8, _field(2, 17)))
    return path


def classifier(path, height="?", width="?"):
    """As Paddle exports one: every dimension that varies is called "?"."""
    return onnx(path, [("x", [-1, 3, height, width])], [("y", [-1, 3, 1, 1])],
                [_node("MaxPool", ["x"], ["pooled"], kernel_shape=[4, 4],
                       strides=[4, 4]),
                 _node("GlobalAveragePool", ["pooled"], ["y"])])


def post(server, path, body):
    request = urllib.request.Request(server.url + path,
                                     json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


# ---- inspect ----
def test_inspect_says_whether_a_graph_can_be_served(tmp_path):
    good = classifier(tmp_path / "good.onnx")
    done = millrace("inspect", good)
    assert f"servable       yes: millrace serve {good}\n" in done.stdout
    assert "requests can be joined to one batch" in done.stdout
    with start(good) as server:
        line = next(line for line in server.lines if "graph loaded" in line)
    assert "not_batched" not in line  # there is no reason to tell
    bad = onnx(tmp_path / "bad.onnx", [("x", [1, 4])], [("y", [1, 4])],
               [_node("Frobnicate", ["x"], ["y"], name="first")])
    done = millrace("inspect", bad, code=1)
    assert re.search(r"servable       no: .*Frobnicate.*'first'", done.stdout)
    assert done.stderr == f"millrace inspect: '{bad}' cannot be served\n"
    # Shapes that can never fit are found without running.
    torn = onnx(tmp_path / "torn.onnx", [("x", [2, 4])], [("y", [2, 4])],
                [_node("MatMul", ["w", "w"], ["p"], name="product"),
                 _node("Add", ["p", "x"], ["y"])],
                [_weight("w", np.ones((2, 3)))])
    done = millrace("inspect", torn, code=1)
    assert re.search("servable       no: .*'product'", done.stdout)


def test_a_language_model_that_cannot_be_served_is_an_error_too(tmp_path):
    broken = tmp_path / "folder"
    shutil.copytree(HF, broken)
    (broken / "tokenizer.json").unlink()
    done = millrace("inspect", broken, code=1)
    assert "servable       no: " in done.stdout
    assert "cannot be served" in done.stderr
    assert "servable       yes" in millrace("inspect", HF).stdout


@pytest.mark.parametrize("columns", [80, 120])
def test_metadata_fits_the_terminal(columns):
    with Terminal(BINARY, "inspect", MODEL, columns=columns) as terminal:
        assert terminal.end() == 0
        lines = plain(terminal.seen).splitlines()
    metadata = lines[lines.index("metadata (33 keys)"):lines.index("tensors")]
    assert max(map(len, metadata)) <= columns
    text = "\n".join(metadata)
    assert ('string[49152] "<|endoftext|>", "<|im_start|>", "<|im_end|>", …'
            if columns == 120 else 'string[49152] "<|endoftext|>", …') in text
    assert '"Smollm2 135M 8k Lc100K Mix1 Ep2"' in text


def test_an_onnx_file_needs_no_suffix(tmp_path):
    plain = classifier(tmp_path / "blob")
    assert "servable       yes" in millrace("inspect", plain).stdout
    assert "median_ms" in millrace("run", plain).stdout
    assert "GFLOP/s" in millrace("profile", plain, "--iters", 1).stdout
    with start(f"plain={plain}") as server:
        told = json.loads(server.get("/v2/models/plain"))
        assert told["platform"] == "millrace_onnx"


def test_packed_files_show_their_true_sizes(tmp_path):
    packed = tmp_path / "packed.gguf"
    done = millrace("convert", MODEL, packed)
    assert done.stdout.endswith(f"next: millrace serve {packed}\n")
    plain = millrace("inspect", MODEL).stdout
    told = millrace("inspect", packed).stdout

    def mib(text, what):
        return float(re.search(what, text)[1])
    for what in (r"\n  all .* (\d+\.\d)\n", r"weights, about +(\d+\.\d) MiB"):
        assert mib(plain, what) > 80
        assert mib(told, what) == pytest.approx(mib(plain, what), rel=0.25)
    assert "matrices are packed as" in told
    # Packed for other kernels than auto takes: the flag that serves it.
    millrace("convert", MODEL, packed, "--isa", "scalar")
    flags = re.search("servable       yes: millrace serve .*packed.gguf(.*)",
                      millrace("inspect", packed).stdout)[1].split()
    assert flags in (["--isa", "scalar"], [])
    (tmp_path / "t.json").write_text("[1, 2, 3]")
    millrace("logits", packed, "--tokens", tmp_path / "t.json", *flags)
    millrace("convert", HF, packed, "--compute-dtype", "f32")
    assert re.search("servable       yes: .* --compute-dtype f32",
                     millrace("inspect", packed).stdout)


@pytest.mark.parametrize("verb", ["inspect", "run", "profile", "convert",
                                  "bench"])
def test_a_file_of_another_kind_is_told_the_kinds_that_there_are(tmp_path,
                                                                 verb):
    text = tmp_path / "x.json"
    text.write_text('{"model": 1}')
    more = [tmp_path / "out.gguf"] if verb == "convert" else []
    for path, sentence in ((text, "is no model that millrace knows"),
                           (tmp_path, "has no config.json"),
                           (tmp_path / "none", "there is no file or folder")):
        done = millrace(verb, path, *more, code=1)
        assert sentence in done.stderr, done.stderr
    for kind in ("GGUF", "Hugging Face folder", "ONNX", ".pt2"):
        assert kind in millrace(verb, text, *more, code=1).stderr


def test_a_near_miss_names_the_file_or_folder_that_was_meant(tmp_path):
    inside = classifier(tmp_path / "model.onnx")
    done = millrace("inspect", tmp_path, code=1)
    assert f"name one of its models: '{inside}'" in done.stderr
    for part in ("config.json", "model-00001-of-00002.safetensors"):
        done = millrace("inspect", HF / part, code=1)
        assert f"is a part of a model; give the folder '{HF}'" in done.stderr
    np.savez(tmp_path / "x.npz", x=np.ones(3))
    done = millrace("profile", tmp_path / "x.npz", code=1)
    assert "holds arrays, no model" in done.stderr
    torn = tmp_path / "torn.onnx"
    torn.write_bytes(inside.read_bytes()[:-3])
    assert "truncated" in millrace("inspect", torn, code=1).stdout
    torn.write_bytes(b"")
    assert "the file is empty" in millrace("inspect", torn, code=1).stdout
    done = millrace("run", inside, "--input", REPO / "README.md", code=1)
    assert "is no .npz file; numpy.savez" in done.stderr


def test_pull_tells_a_missing_file_from_a_folder(tmp_path):
    for path, said in ((tmp_path / "none.gguf", "there is no file '"),
                       (tmp_path, "is a folder, which can be served")):
        done = subprocess.run(
            [BINARY, "pull", f"file://{path}"], capture_output=True, text=True,
            env={**os.environ, "MILLRACE_CACHE": str(tmp_path / "cache")},
            timeout=60)
        assert done.returncode == 1 and said in done.stderr, done.stderr


def test_each_verb_says_what_it_takes(tmp_path):
    graph = classifier(tmp_path / "x.onnx")
    done = millrace("convert", graph, tmp_path / "out", code=1)
    assert "is a graph, but millrace convert takes a GGUF file" in done.stderr
    done = millrace("profile", MODEL, code=1)
    assert ("is a language model, but millrace profile takes an ONNX file"
            in done.stderr)


# ---- names of dimensions ----
def test_dimensions_without_a_name_are_sizes_of_their_own(tmp_path):
    path = classifier(tmp_path / "x.onnx")
    told = millrace("inspect", path).stdout
    assert "FP32 [x.0, 3, x.2, x.3]" in told
    x = np.ones((2, 3, 48, 192), np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    np.savez(tmp_path / "out.npz", y=np.ones((2, 3, 1, 1), np.float32))
    done = millrace("run", path, "--input", tmp_path / "in.npz", "--expect",
                    tmp_path / "out.npz")
    assert "error 0, differences up to 0 of 1\n" in done.stdout
    # A small difference from nothing at all is no small error: say both.
    np.savez(tmp_path / "out.npz", y=np.zeros((2, 3, 1, 1), np.float32))
    done = millrace("run", path, "--input", tmp_path / "in.npz", "--expect",
                    tmp_path / "out.npz", code=1)
    assert "error 1e+30, differences up to 1 of 0\n" in done.stdout
    told = millrace("run", path, "--sizes", "x.0=2,x.2=48,x.3=192").stdout
    assert "x FP32 [2, 3, 48, 192]" in told
    assert "outputs\n  y FP32 [2, 3, 1, 1]\n" in told
    with start(f"ocr={path}") as server:
        _, answer = post(server, "/v2/models/ocr/infer",
                         {"inputs": [{"name": "x", "datatype": "FP32",
                                      "shape": list(x.shape),
                                      "data": x.ravel().tolist()}]})
        assert answer["outputs"][0]["shape"] == [2, 3, 1, 1]


def test_a_name_binds_only_where_the_graph_needs_it(tmp_path):
    twice = classifier(tmp_path / "x.onnx", "side", "side")
    told = millrace("run", twice, "--sizes", "side=48,x.3=192").stdout
    assert "x FP32 [1, 3, 48, 192]" in told
    bound = onnx(tmp_path / "sum.onnx",
                 [("a", ["batch", "length"]), ("b", ["batch", "length"])],
                 [("y", ["batch", "length"])],
                 [_node("Add", ["a", "b"], ["y"])])
    np.savez(tmp_path / "in.npz", a=np.ones((1, 4), np.float32),
             b=np.ones((1, 5), np.float32))
    done = millrace("run", bound, "--input", tmp_path / "in.npz", code=1)
    assert "another input has length 4" in done.stderr


def test_made_up_inputs_have_sizes_that_the_graph_accepts(tmp_path):
    path = classifier(tmp_path / "x.onnx")
    told = millrace("run", path).stdout
    assert "inputs (made up; choose others with --sizes x.0=1,x.2=224,x.3=224)" \
        in told
    done = millrace("run", path, "--sizes", "x.2=2", code=1)
    assert "'maxpool' (MaxPool)" in done.stderr
    assert "--sizes" in done.stderr and "--input" in done.stderr
    done = millrace("run", path, "--sizes", "side=2", code=1)
    assert "no dimension is called 'side'; there are 'x.0'" in done.stderr


# ---- profile ----
def mlp(path):
    """Two layers and a residual, with names as exporters write them."""
    rng = np.random.default_rng(1)
    return onnx(path, [("x", ["batch", 64])], [("y", ["batch", 64])],
                [_node("MatMul", ["x", "v"], ["a"], "encoder/up/MatMul"),
                 _node("Add", ["a", "b"], ["h"], "encoder/up/Add"),
                 _node("Relu", ["h"], ["r"], "encoder/relu"),
                 _node("MatMul", ["r", "w"], ["d"], "encoder/down/MatMul"),
                 _node("Add", ["d", "x"], ["y"], "encoder/residual")],
                [_weight("v", rng.normal(size=(64, 256))),
                 _weight("b", rng.normal(size=256)),
                 _weight("w", rng.normal(size=(256, 64)))])


def test_profile_adds_up_and_names_the_nodes_of_the_model(tmp_path):
    path = mlp(tmp_path / "mlp.onnx")
    told = millrace("profile", path, "--sizes", "batch=32").stdout
    assert "x FP32 [32, 64]" in told
    for name in ("encoder/up/MatMul", "encoder/down/MatMul"):
        assert re.search(r"Linear 32 x .* " + name + "\n", told), told
    rows = re.findall(r"^ *(\d+\.\d+) +\d+\.\d%(.*)$", told, re.M)
    run = [float(ms) for ms, what in rows if "the run" in what]
    parts = [float(ms) for ms, what in rows if "the run" not in what]
    assert len(run) == 1 and len(parts) >= 4
    assert sum(parts) == pytest.approx(run[0], abs=1e-4 * len(rows))
    assert "waiting: " in told and "overhead: " in told
    shares = [int(share)
              for share in re.findall(r"(\d+)% (?:f32|L2|L3|DRAM)", told)]
    assert all(share <= 100 for share in shares)
    if ">100%" in told:
        assert "nearer cache" in told


def test_profile_draws_a_picture_without_graphviz(tmp_path):
    path = mlp(tmp_path / "mlp.onnx")
    millrace("profile", path, "--iters", 1, "--svg", tmp_path / "p.svg",
             "--dot", tmp_path / "p.dot", "--trace", tmp_path / "p.json")
    svg = xml.etree.ElementTree.parse(tmp_path / "p.svg").getroot()
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert "encoder/up/MatMul" in texts
    assert (tmp_path / "p.dot").read_text().startswith("digraph")
    events = json.loads((tmp_path / "p.json").read_text())["traceEvents"]
    assert {"encoder/up/MatMul", "encoder/down/MatMul"} <= {
        event["args"]["node"] for event in events}


# ---- quantize ----
def test_quantize_labels_its_columns_and_tells_its_progress(tmp_path):
    path = mlp(tmp_path / "mlp.onnx")
    np.savez(tmp_path / "a.npz", x=np.random.default_rng(2).normal(
        size=(8, 64)).astype(np.float32))
    done = millrace("quantize", path, "--calibration", tmp_path / "a.npz")
    head = done.stdout.splitlines()[0].split("  ")
    assert [word.strip() for word in head if word.strip()] == [
        "layer", "input from", "to", "error if alone", "computed in"]
    assert re.search(r"^encoder/up/MatMul +-\d.* int8$", done.stdout, re.M)
    assert "of 2 layers reduced, error" in done.stdout
    assert done.stderr.splitlines() == ["trying layers 50 %",
                                        "trying layers 100 %"]
    assert "median_ms" in millrace("run", path, "--precision", "int8").stdout
    # What is said to be next works wherever the table was written to.
    done = millrace("quantize", path, "--calibration", tmp_path / "a.npz",
                    "--output", tmp_path / "elsewhere.json")
    pathlib.Path(f"{path}.quant.json").unlink()
    command = re.search(r"^next: millrace (run .*)$", done.stdout, re.M)[1]
    assert "median_ms" in millrace(*command.split()).stdout
    assert done.stdout.endswith(
        f"\n   or: millrace serve {command.removeprefix('run ')}\n")


def test_quantize_shows_its_progress_in_place_on_a_terminal(tmp_path):
    path = mlp(tmp_path / "mlp.onnx")
    np.savez(tmp_path / "a.npz", x=np.ones((8, 64), np.float32))
    mine, theirs = pty.openpty()
    done = subprocess.run([BINARY, "quantize", path, "--calibration",
                           tmp_path / "a.npz"], stdout=subprocess.DEVNULL,
                          stderr=theirs, timeout=60,
                          env={**os.environ, "TERM": "xterm-256color"})
    os.close(theirs)
    shown = os.read(mine, 4096).decode()
    os.close(mine)
    assert done.returncode == 0
    assert "\rtrying layers  50 %" in shown and "\x1b[K" in shown
    assert "\n" not in shown


def test_a_graph_that_is_quantised_already_is_not_quantised_again(tmp_path):
    done_twice = onnx(
        tmp_path / "q.onnx", [("x", ["batch", 4])], [("y", ["batch", 4])],
        [_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "first"),
         _node("DequantizeLinear", ["q", "s", "z"], ["y"])])
    np.savez(tmp_path / "a.npz", x=np.ones((1, 4), np.float32))
    done = millrace("quantize", done_twice, "--calibration",
                    tmp_path / "a.npz", code=1)
    assert ("is quantised already: its node 'first' is a DynamicQuantizeLinear"
            in done.stderr)
    nothing = classifier(tmp_path / "none.onnx")
    np.savez(tmp_path / "b.npz", x=np.ones((1, 3, 8, 8), np.float32))
    done = millrace("quantize", nothing, "--calibration", tmp_path / "b.npz",
                    code=1)
    assert "there is nothing to quantise" in done.stderr


# ---- roles of messages ----
def test_a_role_that_the_template_leaves_out_is_refused(tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text(
        "{% for m in messages %}{% if m['role'] in ['system', 'user', "
        "'assistant'] %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}"
        "<|im_end|>\n{% endif %}{% endfor %}<|im_start|>assistant\n")
    with start(f"chat={MODEL}", "--chat-template", template,
               "--max-model-len", 256) as server:
        def ask(*messages):
            return post(server, "/v1/chat/completions",
                        {"model": "chat", "max_tokens": 2, "messages": [
                            {"role": role, "content": content}
                            for role, content in messages]})
        status, answer = ask(("user", "Hi"), ("wizard", "Abracadabra"))
        assert status == 400, answer
        assert answer["error"]["param"] == "messages[1].role"
        assert answer["error"]["message"] == (
            'messages[1].role is "wizard", which the chat template of model '
            '\'chat\' leaves out; it knows "system", "user", "assistant"')
        assert ask(("system", "Be brief."), ("user", "Hi"))[0] == 200


# ---- who runs where ----
# A core is left to the rest of the server.
@pytest.mark.parametrize("machine, models, instances, told", [
    ("numa:2 core:4 pu:2", 1, 4, ["0: cpus 0 2, NUMA node 0",
                                  "1: cpus 4 6, NUMA node 0",
                                  "2: cpu 8, NUMA node 1",
                                  "3: cpus 10 12, NUMA node 1"]),
    ("numa:2 core:2 pu:1", 1, 1, ["0: cpus 0 1 2, NUMA nodes 0 1"]),
    ("numa:1 core:2 pu:1", 2, 2, ["0: cpu 0, NUMA node 0",
                                  "1: cpu 0, NUMA node 0",
                                  "0: cpu 1, NUMA node 0",
                                  "1: cpu 1, NUMA node 0"]),
])
def test_topology_plans_the_instances_of_other_machines(machine, models,
                                                        instances, told):
    out = millrace("topology", "--synthetic", machine, "--models", models,
                   "--instances", instances).stdout
    assert re.findall(r"^    instance (.*)$", out, re.M) == told


def test_topology_asks_a_running_server(tmp_path):
    (tmp_path / "mlp" / "1").mkdir(parents=True)
    shutil.copy(REPO / "tests" / "data" / "graph" / "mlp.onnx",
                tmp_path / "mlp" / "1" / "model.onnx")
    cpu = min(os.sched_getaffinity(0))
    (tmp_path / "mlp" / "config.yaml").write_text(
        f"instance_count: 2\ncpu_cores: {cpu}\n")
    with start("--model-repository", tmp_path, "--api-key", "sk-1") as server:
        told = millrace("topology", "--url", server.url, "--api-key",
                        "sk-1").stdout
        at = f"cpus [ 0-9]*\\b{cpu}\\b"
        assert re.search(f"^  core [0-9]+: {at}[ 0-9]*, socket [0-9]+, NUMA node "
                         "[0-9]+, L3 group [0-9]+: mlp$", told, re.M), told
        for instance in (0, 1):
            assert re.search(f"^  mlp version 1, instance {instance}: cpus {cpu}, "
                             "NUMA nodes [0-9]+$", told, re.M), told
        assert "401" in millrace("topology", "--url", server.url, code=1).stderr
        millrace("topology", "--url", server.url, "--models", 2, code=2)
    assert "no server answers" in millrace("topology", "--url", server.url,
                                           code=1).stderr


# ---- kernel tables ----
def test_topology_and_the_log_say_which_kernels_and_why():
    told = millrace("topology").stdout
    chosen = re.search(r"^  (\S+) +chosen by auto", told, re.M)[1]
    rows = dict(re.findall(r"^  (\S+) +(\S.*(?:\n {14}.*)*)", told, re.M))
    assert "results differ" not in rows["scalar"] + rows["avx512vnni"]
    if "cannot run" not in rows["amx"]:
        assert "prompts, in bf16 where compute_dtype is auto" in rows["amx"]
    with start(MODEL, "--max-model-len", 256) as server:
        loaded = next(json.loads(line) for line in server.lines
                      if '"model loaded"' in line)
        assert loaded["isa"] == chosen
        assert loaded["isa_choice"].startswith(
            f"auto: {chosen} is the fastest that runs here: ")
    with start(MODEL, "--max-model-len", 256, "--isa", "scalar") as server:
        loaded = next(json.loads(line) for line in server.lines
                      if '"model loaded"' in line)
        assert loaded["isa_choice"] == "forced by isa: scalar"


def test_integer_weights_give_the_same_bits_on_every_table(tmp_path):
    """With compute_dtype int8 on AMX, too: models/README.md."""
    (tmp_path / "t.json").write_text(json.dumps(list(range(500, 516))))
    told = millrace("topology").stdout
    seen = set()
    for isa in ("scalar", "avx2", "avx512vnni", "avx512bf16", "amx"):
        if re.search(rf"^  {isa} +cannot run", told, re.M):
            continue
        out = tmp_path / isa
        millrace("logits", MODEL, "--tokens", tmp_path / "t.json", "--raw",
                 "--out", out, "--isa", isa, "--compute-dtype", "int8")
        seen.add(out.read_bytes())
    assert len(seen) == 1
