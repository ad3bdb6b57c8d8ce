#!/usr/bin/env python3
"""Checks of the tree that no compiler makes: one-way includes, headers that
stand alone, kernels without weak symbols, formatting, file sizes, machine paths.

    tests/lint/lint.py CHECK [--root FOLDER] [--build FOLDER]

CHECK is one of the functions named check_* below, without the prefix, or `all`.
Each finding is one line, "file:line: what is wrong"; the exit status is 1 when
there is any. Only the standard library is used.
"""
import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys

FLOORS = ["config", "models", "scheduler", "handlers", "server"]

# What a folder may include of ours beyond its own floor's rule. A folder that
# matches a prefix on the left sees only the prefixes on the right; a name
# without a slash at the end is one file. {own} is the folder itself.
WALLS = [
    ("config/", ["config/"]),
    ("server/batches/", ["server/batches/", "config/"]),
    ("server/http/", ["server/http/", "server/batches/", "server/console/",
                      "server/lifecycle/", "server/torchserve/",
                      "server/tracing/", "server/*",
                      "handlers/", "models/tensor/", "config/"]),
    ("server/grpc/", ["server/grpc/", "server/lifecycle/",
                      "server/torchserve/",
                      "server/tracing/", "server/*",
                      "handlers/", "models/tensor/", "config/"]),
    ("handlers/", ["handlers/", "scheduler/request.h",
                   "scheduler/token_stream.h", "scheduler/engine.h",
                   "scheduler/batcher.h", "scheduler/embedding_engine.h",
                   "models/tensor/", "models/text/",
                   "models/image/decode.h", "models/image/encode_png.h",
                   "models/image/preprocess.h",
                   "models/audio/mel.h", "models/audio/waveform.h",
                   "models/grammar/", "models/llm/dry.h",
                   "models/llm/prompt_embeddings.h",
                   "models/vision/image_encoder.h", "config/"]),
    ("scheduler/", ["scheduler/", "models/tensor/", "models/llm/step.h",
                    "models/llm/lora.h", "models/llm/page_access.h",
                    "models/llm/page_groups.h", "models/llm/page_store.h",
                    "models/llm/prompt_embeddings.h",
                    "models/llm/runner.h", "models/llm/runner_ahead.h",
                    "models/llm/runner_on_device.h",
                    "models/graph/batch_axis.h",
                    "models/graph/execution_context.h",
                    "models/graph/ports.h", "config/"]),
    ("models/tensor/", ["models/tensor/", "config/"]),
    ("models/memory/", ["models/memory/", "models/tensor/", "config/"]),
    ("models/files/", ["models/files/", "models/memory/", "models/tensor/",
                       "config/"]),
    ("models/text/", ["models/text/", "config/"]),
    ("models/image/", ["models/image/", "models/tensor/", "config/"]),
    ("models/audio/", ["models/audio/", "config/"]),
    ("models/grammar/", ["models/grammar/", "config/"]),
    ("models/cpu/", ["models/cpu/", "config/"]),
    ("models/group/", ["models/group/", "config/"]),
    ("models/llm/step.h", ["config/"]),
    ("models/llm/step_account.h", ["config/"]),
    ("models/llm/page_groups.h", ["models/llm/step.h"]),
    ("models/llm/backend.h", ["models/llm/page_groups.h",
                              "models/llm/step.h", "models/llm/step_account.h",
                              "models/tensor/", "config/"]),
    ("models/llm/runner.h", ["models/llm/step.h", "models/llm/step_account.h",
                             "config/"]),
    ("models/llm/page_access.h", ["models/llm/step.h"]),
    ("models/llm/page_store.h", []),
    ("models/llm/prompt_embeddings.h", []),
    ("models/vision/", ["models/vision/", "models/encoder/", "models/files/",
                        "models/graph/", "models/image/",
                        "models/llm/prompt_embeddings.h", "models/tensor/",
                        "config/"]),
    ("models/llm/lora_layout.h", ["models/cpu/llm_kernels.h", "config/"]),
    ("models/llm/device.h", ["models/llm/backend.h", "models/llm/lora_layout.h",
                             "models/llm/runner.h",
                             "models/llm/step.h", "models/group/group.h",
                             "config/"]),
    ("models/llm/cpu/", ["models/llm/cpu/", "models/llm/backend.h",
                         "models/llm/device.h", "models/llm/kv_pool.h",
                         "models/llm/lora.h", "models/llm/lora_layout.h",
                         "models/llm/page_access.h",
                         "models/llm/prompt_embeddings.h",
                         "models/llm/runner.h", "models/llm/sampler.h",
                         "models/llm/step.h", "models/llm/step_account.h",
                         "models/cpu/", "models/group/group.h",
                         "models/memory/", "models/tensor/",
                         "config/"]),
    ("models/llm/cuda/", ["models/llm/cuda/", "models/llm/backend.h",
                          "models/llm/device.h", "models/llm/lora.h",
                          "models/llm/lora_store.h", "models/llm/runner.h",
                          "models/llm/runner_ahead.h",
                          "models/llm/runner_on_device.h",
                          "models/llm/sampler.h", "models/llm/step.h",
                          "models/llm/step_account.h", "models/cuda/",
                          "models/gpu/", "models/cpu/isa.h", "models/tensor/",
                          "models/cpu/llm_kernels.h", "config/"]),
    ("models/gpu/", ["models/gpu/", "models/cuda/", "config/"]),
    ("models/cuda/", ["models/cuda/"]),
    ("models/cpu/kernels/", ["models/cpu/kernels/", "models/cpu/llm_kernels.h",
                             "models/cpu/arm_kernels.h",
                             "models/cpu/graph_kernels.h",
                             "models/cpu/graph_int8_kernels.h",
                             "models/cpu/pool_rows.h",
                             "models/cpu/tree_kernels.h",
                             "models/cpu/winograd_kernels.h"]),
]
# Folders that never meet, and the files that may see both.
STRANGERS = [
    ("models/llm/", "models/graph/", []),
    ("models/cpu/", "models/cuda/", []),
]
# A program of its own: nothing of ours includes it, and of ours it includes
# itself and these alone.
STANDALONE = "loadtest/"
STANDALONE_SEES = ["loadtest/", "config/base/status.h"]
# Folders whose headers only these files and their own may include.
DOORS = [
    ("models/llm/cpu/", ["models/llm/open_device.cc"]),
    ("models/llm/cuda/", ["models/llm/open_device.cc"]),
]
# Headers that cost seconds: source files only, and headers of a `detail`
# folder, which no header outside of one may include.
HEAVY = re.compile(
    r"(boost/(beast|asio)|grpcpp/|grpc/|google/protobuf/|nlohmann/|spdlog/|"
    r"prometheus/|simdjson|yaml-cpp/|hwloc|pcre2|oneapi/|dnnl|CLI/)")
LIGHT = {"nlohmann/json_fwd.hpp"}
# Third-party headers that one folder keeps to itself.
PRIVATE = [
    ("absl/", ["server/grpc/"]),
    ("oneapi/dnnl/", ["models/cpu/onednn/"]),
    ("mpi.h", ["models/group/mpi/"]),
]
# All that code compiled for one instruction set may include of the system:
# nothing with inline functions that the linker could hand to another machine.
KERNEL_SYSTEM = {"immintrin.h", "arm_neon.h", "cstddef", "cstdint"}

# What a message tells to change, and flags it names.
REMEDY = re.compile(r"\b(?:raise|lower|set) ([a-z]+(?:_[a-z]+)+)")
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])(?![\w-])")
# Flags that are no settings.
SERVE_FLAGS = {"config", "exit_on_error", "help", "help_all", "model",
               "model_sha256", "print_config", "profile", "pull", "version"}
# Those of TorchServe and its archiver.
SERVE_FLAGS |= {"archive_format", "disable_token_auth", "enable_model_api",
                "models", "ncs", "serialized_file", "ts_config"}
# mpirun's.
SERVE_FLAGS |= {"mca"}

MAX_LINES = 500
CODE = {".h", ".cc", ".cu", ".py", ".sh", ".cmake", ".proto"}
# Written in two halves so that this file does not find itself.
MACHINE_PATHS = re.compile(
    r"(?<![\w.}~$*-])/(" + "wo" + "rk|ro" + "ot|ho" + "me|Use" + "rs)/"
    r"|/opt/whee" + "ls|/tmp/w" + "hl")
REGISTRIES = re.compile(
    r"\b(py" + r"pi\.org|pythonhost" + r"ed\.org|deb\.deb" + r"ian\.org|"
    r"npm" + r"js\.(org|com)|crates\." + r"io|dock" + r"er\.io|ghc" + r"r\.io|"
    r"qua" + r"y\.io|anacon" + r"da\.org)\b")
# Bytes of others, kept as they came.
FOREIGN = ("tests/data/", "tests/golden/", "tests/fuzz/corpus/")

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')


class Tree:
    """The files of one checkout: what git knows or would add."""

    def __init__(self, root, build=None):
        self.root = pathlib.Path(root).resolve()
        self.build = pathlib.Path(build).resolve() if build else None
        listed = subprocess.run(
            ["git", "-C", self.root, "ls-files", "-co", "--exclude-standard"],
            capture_output=True, text=True)
        if listed.returncode == 0 and (self.root / ".git").exists():
            names = listed.stdout.splitlines()
        else:
            names = [str(p.relative_to(self.root))
                     for p in self.root.rglob("*") if p.is_file()]
        self.files = sorted(n for n in set(names)
                            if (self.root / n).is_file()
                            and not n.startswith(("build/", ".git/")))

    def text(self, name):
        return (self.root / name).read_text(encoding="utf-8", errors="replace")

    def sources(self, *suffixes):
        return [n for n in self.files if n.endswith(suffixes)]

    def includes(self, name):
        """(line, path, quoted) of each include."""
        for number, line in enumerate(self.text(name).splitlines(), 1):
            if match := INCLUDE.match(line):
                yield number, match[1] or match[2], match[1] is not None


def floor(name):
    top = name.split("/")[0]
    return FLOORS.index(top) if top in FLOORS else None


def admitted(path, patterns):
    for pattern in patterns:
        if pattern.endswith("/*"):  # files of that folder, not of those below
            folder = pattern[:-1]
            if path.startswith(folder) and "/" not in path[len(folder):]:
                return True
        elif path == pattern or pattern.endswith("/") and path.startswith(pattern):
            return True
    return False


def judge_include(name, path, quoted, exists, beside):
    """Why `name` may not include `path`, or None. `beside`: a sibling file."""
    alone = name.startswith(STANDALONE)
    in_product = alone or floor(name) is not None
    if quoted:
        if not exists and not in_product and beside:
            return None  # a test's own helper
        if not exists and not path.endswith(".pb.h"):
            return f'"{path}" is no file below the root; include from the root'
        if not in_product:
            return None
        if alone:
            if exists and not admitted(path, STANDALONE_SEES):
                return f"{STANDALONE} stands alone and may not see {path}"
        elif floor(path) is None and exists:
            return f"the product may not include {path}"
        elif exists and floor(path) > floor(name):
            return (f"{name.split('/')[0]} stands below {path.split('/')[0]} "
                    f"and may not include {path}")
        for left, allowed in WALLS:
            if exists and name.startswith(left) and not admitted(path, allowed):
                return f"{left} may not see {path}"
        for folder, files in DOORS:
            if (exists and path.startswith(folder)
                    and not name.startswith(folder) and name not in files):
                return f"{folder} is seen by {' '.join(files)} alone"
        if (name.endswith(".h") and "/detail/" in path
                and "/detail/" not in name):
            return f"{path} is for source files"
        for one, other, both in STRANGERS:
            for mine, theirs in ((one, other), (other, one)):
                if (name.startswith(mine) and path.startswith(theirs)
                        and name not in both):
                    return f"{mine} and {theirs} never meet"
        return None
    if not in_product:
        return None
    if (name.endswith(".h") and "/detail/" not in name
            and HEAVY.match(path) and path not in LIGHT):
        return f"<{path}> is heavy: include it from a source file"
    for prefix, owners in PRIVATE:
        if path.startswith(prefix) and not name.startswith(tuple(owners)):
            return f"<{path}> belongs to {' '.join(owners)} alone"
    if (re.match(r"models/cpu/kernels/[^/]+/", name)
            and path not in KERNEL_SYSTEM):
        return f"kernels may include only {', '.join(sorted(KERNEL_SYSTEM))}"
    return None


def check_includes(tree):
    """Includes run one way; walls hold; heavy headers stay in source files."""
    known = set(tree.files)
    for name in tree.sources(".h", ".cc", ".cu", ".inc"):
        for line, path, quoted in tree.includes(name):
            beside = f"{name.rpartition('/')[0]}/{path}" in known
            why = judge_include(name, path, quoted, path in known, beside)
            if why:
                yield f"{name}:{line}: {why}"


def check_symbols(tree):
    """Objects of kernels/<isa>/ define no symbol that a linker may merge."""
    folder = tree.build / "models/cpu/CMakeFiles"
    objects = sorted(folder.glob("*/kernels/*/*.o"))
    if not objects:
        yield f"{folder}: no kernel objects; build the release first"
    for path in objects:
        listed = subprocess.run(["nm", "-C", "--defined-only", path],
                                capture_output=True, text=True, check=True)
        for line in listed.stdout.splitlines():
            kind = line.split(maxsplit=2)
            if len(kind) == 3 and kind[1] in "WVu":
                where = "/".join(path.parts[-3:])
                yield f"{where}:0: weak symbol {kind[2]}"


def readelf(option, path):
    return subprocess.run(["readelf", "-W", option, path], capture_output=True,
                          text=True, check=True).stdout


def check_hardening(tree):
    """The release binary is built so that a memory error is hard to use."""
    path = tree.build / "bin/millrace"
    if not path.exists():
        yield f"{path}: no binary; build the release first"
        return
    dynamic = readelf("-d", path)
    segments = readelf("-l", path)
    imports = readelf("--dyn-syms", path)
    for missing, why in (
            (not re.search(r"\(FLAGS_1\).*\bPIE\b", dynamic),
             "not position independent; link with -pie"),
            ("GNU_RELRO" not in segments, "no RELRO; link with -z relro"),
            (not re.search(r"BIND_NOW|\(FLAGS_1\).*\bNOW\b", dynamic),
             "symbols bind lazily, so RELRO is partial; link with -z now"),
            (not re.search(r"GNU_STACK .* RW ", segments),
             "the stack is executable; link with -z noexecstack"),
            (re.search(r"LOAD .* RWE ", segments),
             "a segment is writable and executable"),
            ("__stack_chk_fail" not in imports,
             "no stack protector; compile with -fstack-protector-strong"),
            (not re.search(r" __\w+_chk@", imports),
             "no checked string functions; compile with -D_FORTIFY_SOURCE=2")):
        if missing:
            yield f"bin/millrace:0: {why}"


def closure(tree, name, seen):
    """The header and all headers of ours that it reaches."""
    if name in seen or not (tree.root / name).is_file():
        return
    seen.add(name)
    for _, path, quoted in tree.includes(name):
        if quoted:
            closure(tree, path, seen)


def proved_by_build(tree):
    """Headers that a compiled source file includes first: they stand alone."""
    commands = tree.build and tree.build / "compile_commands.json"
    if not commands or not commands.is_file():
        return set()
    proved = set()
    for entry in json.loads(commands.read_text()):
        path = pathlib.Path(entry["file"])
        if not path.is_relative_to(tree.root):
            continue
        name = str(path.relative_to(tree.root))
        first = next(iter(tree.includes(name)), None)
        if first and first[2]:
            proved.add(first[1])
    return proved


def check_headers(tree):
    """Each header compiles alone. Verdicts are kept by content."""
    cache = (tree.build or tree.root / "build") / "lint/headers"
    cache.mkdir(parents=True, exist_ok=True)
    build = tree.build or tree.root
    flags = ["g++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra",
             "-I", str(tree.root),
             "-isystem", str(build / "server/grpc/generated"),
             "-isystem", str(build / "server/lifecycle/generated"),
             "-x", "c++", "-"]

    def compile_alone(name):
        reached = set()
        closure(tree, name, reached)
        digest = hashlib.sha256(" ".join(flags[:-1]).encode())
        for part in [name, *sorted(reached)]:
            digest.update(part.encode() + tree.text(part).encode())
        stamp = cache / digest.hexdigest()
        if stamp.exists():
            return None
        done = subprocess.run(flags, input=f'#include "{name}"\n', text=True,
                              capture_output=True, cwd=tree.root)
        if done.returncode == 0 and not done.stderr:
            stamp.touch()
            return None
        first = next((l for l in done.stderr.splitlines()
                      if "error:" in l or "warning:" in l), done.stderr[:200])
        return f"{name}:1: does not compile alone: {first}"

    # Shared bodies of the kernels are no headers: each table sets the stage.
    proved = proved_by_build(tree)
    headers = [n for n in tree.sources(".h")
               if not n.startswith("models/cpu/kernels/") and n not in proved]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        yield from filter(None, pool.map(compile_alone, headers))


def check_format(tree):
    """clang-format 14 would change nothing."""
    tool = shutil.which("clang-format-14")
    if not tool:
        yield "clang-format-14 is not installed; run deploy/install_deps.sh"
        return
    names = tree.sources(".h", ".cc", ".cu", ".inc")
    for begin in range(0, len(names), 50):
        done = subprocess.run([tool, "--dry-run", "-Werror",
                               *names[begin:begin + 50]],
                              capture_output=True, text=True, cwd=tree.root)
        bad = dict.fromkeys(re.findall(r"^([^:\s]+:\d+):\d+: error",
                                       done.stderr, re.M))
        if done.returncode != 0 and not bad:
            yield f"clang-format-14: {done.stderr[:200]}"
        files = {}
        for place in bad:
            files.setdefault(place.rsplit(":", 1)[0], place)
        for place in files.values():
            yield f"{place}: clang-format would change this"


def check_size(tree):
    """No file of code is longer than the ceiling."""
    for name in tree.files:
        code = (pathlib.Path(name).suffix in CODE
                or name.endswith("CMakeLists.txt"))
        if not code or name.startswith(FOREIGN):
            continue
        lines = tree.text(name).count("\n")
        if lines > MAX_LINES:
            yield (f"{name}:{MAX_LINES}: {lines} lines, {MAX_LINES} are the "
                   "ceiling; look for the second idea")


def check_paths(tree):
    """No path of one machine, no host of a package registry."""
    for name in tree.files:
        if name.startswith(FOREIGN):
            continue
        data = (tree.root / name).read_bytes()
        if b"\0" in data[:4096]:
            continue
        text = data.decode("utf-8", "replace")
        for number, line in enumerate(text.splitlines(), 1):
            if MACHINE_PATHS.search(line):
                yield f"{name}:{number}: a path of one machine: {line.strip()[:80]}"
            if REGISTRIES.search(line):
                yield f"{name}:{number}: host of a registry: {line.strip()[:80]}"


def check_settings(tree):
    """A setting that an error tells to change is one of the schema, or a field
    of a request."""
    schema, fields = "config/schema.cc", "handlers/request_fields.cc"
    if schema not in tree.files:
        return
    known = set()
    for part in (schema, "config/schema_server.cc"):
        if part not in tree.files:
            continue
        known |= set(re.findall(r'\.name = "(\w+)"', tree.text(part)))
        known |= set(re.findall(r'\{\{?"(\w+)"', tree.text(part)))  # aliases
    known |= set(re.findall(r'"(\w+)"', tree.text(fields))
                 if fields in tree.files else ())
    for name in tree.files:
        # Verbs other than serve have flags of their own.
        if not name.endswith(".cc") or not name.startswith(
                ("config/", "models/", "scheduler/", "handlers/", "server/")):
            continue
        if name.startswith("server/cli/") and name != "server/cli/serve.cc":
            continue
        # A literal over several lines is one text.
        text = re.sub(r'"\s*\n\s*"', "", tree.text(name))
        for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"', text):
            wanted = REMEDY.findall(literal)
            wanted += [flag.replace("-", "_") for flag in FLAG.findall(literal)]
            for setting in wanted:
                # --no-NAME turns a switch off.
                if not {setting, setting.removeprefix("no_")} & (
                        known | SERVE_FLAGS):
                    yield f"{name}: there is no setting '{setting}': {literal}"


CHECKS = {name.removeprefix("check_"): function
          for name, function in sorted(globals().items())
          if name.startswith("check_")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("check", choices=[*CHECKS, "all"])
    parser.add_argument("--root", default=pathlib.Path(__file__).parents[2])
    parser.add_argument("--build", default=None)
    options = parser.parse_args()
    tree = Tree(options.root, options.build)
    findings = 0
    for name, check in CHECKS.items():
        if options.check in (name, "all"):
            for finding in check(tree):
                print(finding)
                findings += 1
    print(f"lint {options.check}: {len(tree.files)} files, "
          f"{findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
