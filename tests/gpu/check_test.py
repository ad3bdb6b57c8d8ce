"""pack.sh packs what the tests read; check.sh finds libraries, keeps to its budget,
and says what was not run."""
import os
import pathlib
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

GPU = pathlib.Path(__file__).parent
ROOT = GPU.parent.parent
PASSES = """#!/bin/sh
echo "libraries: $LD_LIBRARY_PATH"
echo "cuBLASLt: $MILLRACE_TEST_CUBLASLT; cuDNN: ${MILLRACE_TEST_CUDNN-unset}"
echo "[       OK ] Head.IsFound (0 ms)"
echo "[  PASSED  ] 3 tests."
"""
NO_GPU = """#!/bin/sh
echo "on_device.cc:18: Skipped"
echo "no GPU can serve: outcome 1 "
echo "[  PASSED  ] 230 tests."
"""
FAILS = """#!/bin/sh
echo "[  PASSED  ] 2 tests."
echo "[  FAILED  ] 1 test, listed below:"
echo "[  FAILED  ] Some.Test (3 ms)"
exit 1
"""
# As millrace logits: what lies in the file DTYPE-DEVICE.
LOGITS = """#!/bin/sh
while [ $# -gt 1 ]; do
  case $1 in
    --compute-dtype) dtype=$2 ;;
    --device) device=$2 ;;
    --out) out=$2 ;;
  esac
  shift
done
cp "$dtype-$device" "$out"
"""
# As python3 -m millrace_server: ready, and then fails each request.
BROKEN_SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def do_POST(self):
        self.send_error(500)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[-1])), Handler).serve_forever()
"""


def script(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


class CheckTest(unittest.TestCase):
    """An unpacked folder whose programs are scripts."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        (self.root / "tmp").mkdir()
        (self.root / "tests" / "data").mkdir(parents=True)
        for name in ("check.sh", "compare.py", "serve.py"):
            shutil.copy(GPU / name, self.root)
        for name in ("device", "runner", "graph", "engine", "blas", "cudnn"):
            self.program(f"cuda_{name}_test", PASSES)
        self.program("cuda_blas_bench", PASSES)
        self.env = {**os.environ, "TMPDIR": str(self.root / "tmp"),
                    "MILLRACE_CUBLASLT": "/lib/a.so.13",
                    "MILLRACE_CUDNN": "/lib/b.so.9"}

    def models(self, writer):
        """The steps that need models have packages, and what writes models."""
        for name in ("gguf", "numpy"):
            (self.root / "python" / name).mkdir(parents=True)
            (self.root / "python" / name / "__init__.py").write_text("")
        (self.root / "random_gguf.py").write_text(writer)

    def program(self, name, text):
        script(self.root / "bin" / name, text)

    def in_path(self, name, text):
        """Found before a program of the system that has this name."""
        script(self.root / "path" / name, text)
        self.env["PATH"] = f"{self.root / 'path'}:{os.environ['PATH']}"

    def check(self, *arguments, **env):
        done = subprocess.run(
            [self.root / "check.sh", *arguments], text=True, timeout=120,
            env={**self.env, **env}, capture_output=True, check=False)
        self.assertEqual(os.listdir(self.root / "tmp"), [], "left behind")
        return done

    def log(self, name):
        with tarfile.open(self.root / "out" / "results.tar.xz") as logs:
            return logs.extractfile(f"logs/{name}.log").read().decode()

    def test_steps_that_pass(self):
        out = self.root / "out"
        done = self.check(out, "device", "blas")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"== device: passed, \d+ s \(3 passed\)\n")
        self.assertRegex(done.stdout, r"== blas: passed, \d+ s \(3 passed\)\n")
        self.assertNotIn("cudnn:", done.stdout)
        # Few files, with names that any tool carries.
        self.assertEqual(sorted(os.listdir(out)),
                         ["results.tar.xz", "summary.txt"])
        self.assertEqual((out / "summary.txt").read_text(), done.stdout)
        with tarfile.open(out / "results.tar.xz") as logs:
            for name in logs.getnames():
                self.assertRegex(name, r"^[\w./-]+$")

    def test_a_test_that_fails_is_named(self):
        self.program("cuda_runner_test", FAILS)
        done = self.check(self.root / "out", "runner", "graph")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"== runner: FAILED: exit status 1, \d+ s "
                         r"\(2 passed, ?1 failed\)\n.*Some\.Test\n")
        self.assertIn("== graph: passed", done.stdout)

    def test_without_a_gpu_nothing_passes(self):
        self.program("cuda_device_test", NO_GPU)
        done = self.check(self.root / "out")
        self.assertEqual(done.returncode, 3)
        self.assertIn("NO GPU CAN SERVE HERE", done.stdout)
        self.assertIn("no GPU can serve: outcome 1", done.stdout)
        self.assertNotIn("passed", done.stdout)

    def test_folders_of_libraries_are_added(self):
        done = self.check(self.root / "out", "device",
                          LD_LIBRARY_PATH="/driver/here",
                          MILLRACE_DRIVER_FOLDERS="/drivers/elsewhere")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn(f"libraries: {self.root}/lib:/driver/here:"
                      "/drivers/elsewhere:/lib:/lib\n", self.log("device"))

    def test_libraries_of_python_packages_are_found(self):
        site = self.root / "site"
        folder = site / "nvidia" / "cu13" / "lib"
        folder.mkdir(parents=True)
        (folder / "libcublasLt.so.13").write_text("")
        # Neither ldconfig nor another python3 tells of others.
        self.in_path("ldconfig", "#!/bin/sh\n")
        self.in_path("python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        done = self.check(self.root / "out", "blas", MILLRACE_CUBLASLT="",
                          PYTHONPATH=str(site))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn(f"cuBLASLt: {folder}/libcublasLt.so.13;",
                      self.log("blas"))

    def test_an_absent_library_is_no_pass(self):
        for name in ("ldconfig", "python3"):
            self.in_path(name, "#!/bin/sh\n")
        done = self.check(self.root / "out", "device", "cudnn", MILLRACE_CUDNN="")
        if "cuDNN: none" not in done.stdout:
            self.skipTest("/usr/local/cuda has a cuDNN")
        self.assertEqual(done.returncode, 4)
        self.assertIn("== cudnn: not run: there is no cuDNN", done.stdout)
        self.assertIn("cuDNN: unset", self.log("device"))

    def test_what_does_not_fit_into_the_budget_is_not_run(self):
        # 179 s are left, less what it takes to get there: less than cudnn may
        # take, more than half of that, and less than half of cudnn-all's. What
        # timeout gives cudnn is short here.
        self.program("cuda_cudnn_test", "#!/bin/sh\nexec sleep 100\n")
        self.in_path("timeout", f"""#!/bin/sh
            case $* in *cuda_cudnn_test*)
              echo "$3" >>{self.root}/limits
              shift 3
              exec {shutil.which("timeout")} 1 "$@"
            esac
            exec {shutil.which("timeout")} "$@"
            """)
        done = self.check("--budget", "540", self.root / "out", "cudnn-all", "cudnn",
                          "device", SECONDS="361")  # bash counts on from there
        self.assertEqual(done.returncode, 1)
        said = re.search(
            r"== device: passed, .*\n== cudnn: FAILED: ended after its limit of "
            r"(\d+) s, \d+ s\n== cudnn-all: not run: (\d+) s of the budget are "
            r"left, it may take 400 s\n$", done.stdout)
        self.assertIsNotNone(said, done.stdout)
        limit, left = map(int, said.groups())
        self.assertEqual((self.root / "limits").read_text(), f"{limit}\n")
        self.assertGreaterEqual(limit, 90)
        self.assertLessEqual(limit, 179)
        self.assertLess(left, limit)

    def test_logits_far_from_those_of_the_cpu_fail(self):
        self.models("import sys; open(sys.argv[2], 'w').write('a model')")
        self.program("millrace", LOGITS)
        # 200 positions of a vocabulary of three.
        cpu = [(i * 37 % 101 - 50) / 7 for i in range(600)]
        near = [x * (1 + 9e-5) for x in cpu]
        less_near = [x * (1 - 1.9e-2) for x in cpu]
        nan = [*near[:-1], float("nan")]
        for f32, auto, verdict in (
                (near, less_near, "passed"),
                ([x * (1 + 1.1e-4) for x in cpu], [x * 1.021 for x in cpu],
                 "FAILED: exit status 1"),
                (nan, near[:-200], "FAILED: exit status 1")):
            for name, values in (("f32-cpu", cpu), ("f32-cuda:0", f32),
                                 ("auto-cuda:0", auto)):
                (self.root / name).write_bytes(
                    struct.pack(f"<{len(values)}f", *values))
            done = self.check(self.root / "out", "logits")
            said = done.stdout + done.stderr
            for dtype in ("f32", "auto"):
                self.assertRegex(said, rf"== logits-{dtype}-cuda: passed, ")
                self.assertRegex(said, rf"== logits-{dtype}: {verdict}, \d+ s\n")
            self.assertEqual(done.returncode, 0 if verdict == "passed" else 1)
            self.assertEqual("RMS error nan of RMS" in said, f32 is nan)
            self.assertEqual("do not hold the same vocabulary" in said,
                             len(auto) < len(cpu))
        # Without the CPU's nothing is compared, and nothing passes.
        (self.root / "f32-cpu").unlink()
        done = self.check(self.root / "out", "logits")
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("passed", done.stdout)

    def test_interrupted_it_ends_what_it_runs(self):
        # Of what has the writing end of `pipe`, all has ended where it is at its end.
        self.models("import os, time\nopen('writer', 'w').close()\ntime.sleep(100)\n")
        self.program("cuda_device_test", PASSES.replace(
            "#!/bin/sh\n", "#!/bin/sh\n[ $# != 0 ] || { touch step; sleep 100; }\n"))
        for steps, begun, interrupt in (
                (["device", "models"], ["writer", "step"], signal.SIGTERM),
                (["models"], ["writer"], signal.SIGINT)):
            pipe, end = os.pipe()
            with subprocess.Popen(
                    [self.root / "check.sh", self.root / "out", *steps], env=self.env,
                    stdout=subprocess.DEVNULL, pass_fds=[end]) as check:
                os.close(end)
                for name in begun:
                    while check.poll() is None and not (self.root / name).exists():
                        time.sleep(0.02)
                check.send_signal(interrupt)
                self.assertEqual(check.wait(60), 143)
            ended, _, _ = select.select([pipe], [], [], 30)
            self.assertTrue(ended, f"{steps}: something is left")
            os.close(pipe)
            self.assertEqual(os.listdir(self.root / "tmp"), [], "left behind")
            self.assertTrue((self.root / "out" / "results.tar.xz").exists())
            for name in begun:
                (self.root / name).unlink()

    def test_models_need_a_package(self):
        (self.root / "python" / "gguf").mkdir(parents=True)
        (self.root / "python" / "gguf" / "__init__.py").write_text(
            "raise ImportError('no yaml')\n")
        done = self.check(self.root / "out", "models", "logits")
        self.assertEqual(done.returncode, 4)
        for step in ("models", "logits"):
            self.assertIn(f"== {step}: not run: python3 cannot import gguf: "
                          "ImportError: no yaml\n", done.stdout)

    def test_data_may_be_those_of_a_checkout(self):
        (self.root / "tests").rename(self.root / "moved")
        (self.root / "checkout").mkdir()
        (self.root / "moved").rename(self.root / "checkout" / "tests")
        done = self.check(self.root / "out", "device")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there are no tests/data here", done.stderr)
        done = self.check("--sources", self.root / "checkout",
                          self.root / "out", "device")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_unknown_steps_are_refused(self):
        done = self.check(self.root / "out", "devise")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no step devise", done.stderr)

    def test_a_server_ends_with_the_requests(self):
        (self.root / "server.py").write_text(BROKEN_SERVER)
        run = f"echo $$ >{self.root}/pid; exec {sys.executable} server.py $@"
        done = subprocess.run(
            [sys.executable, "serve.py", "small.gguf", "--", "bash", "-c", run,
             "-"], cwd=self.root, text=True, timeout=60, capture_output=True,
            check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("HTTP Error 500", done.stderr)
        with self.assertRaises(ProcessLookupError):
            os.kill(int((self.root / "pid").read_text()), 0)


class PackTest(unittest.TestCase):
    """Programs are small ones of the system, and xz packs fast."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        (self.root / "bin").mkdir()
        (self.root / "packages" / "gguf").mkdir(parents=True)
        (self.root / "packages" / "gguf" / "__init__.py").write_text("")
        text = (GPU / "pack.sh").read_text()
        self.programs = re.search(r"programs=\((.*?)\)", text, re.S)[1].split()
        for name in self.programs:
            shutil.copy("/bin/true", self.root / "bin" / name)
        script(self.root / "path" / "xz",
               f"#!/bin/sh\nexec {shutil.which('xz')} -0\n")

    def pack(self, *arguments):
        return subprocess.run(
            [GPU / "pack.sh", *arguments], text=True, timeout=300,
            env={**os.environ, "MILLRACE_BUILD": str(self.root),
                 "PATH": f"{self.root / 'path'}:{os.environ['PATH']}"},
            capture_output=True, check=False)

    def test_what_tests_and_steps_read_is_packed(self):
        out = self.root / "out.tar.xz"
        done = self.pack(out, self.root / "packages")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"out.tar.xz: \d+ MiB, unpacked \d+ MiB\n")
        with tarfile.open(out) as pack:
            names = set(pack.getnames())
        run = set(re.findall(r"\bbin/([\w.]+)", (GPU / "check.sh").read_text()))
        self.assertIn("libmillrace_cuda.so", run)
        run -= {"cuda_", "env"}
        run |= {f"cuda_{suite}_test" for suite in re.search(
            r"for suite in (.*?);", (GPU / "check.sh").read_text())[1].split()}
        self.assertLessEqual({f"bin/{name}" for name in run}, names)
        self.assertIn("python/gguf/__init__.py", names)
        for name in ("check.sh", "compare.py", "serve.py", "random_gguf.py"):
            self.assertIn(name, names)
        # What tests of the device name, as a path or as a folder of tests/data.
        tests = [path.read_text() for path in
                 (ROOT / "tests" / "cuda_emulation").glob("*.cc")]
        named = set(re.findall(r'"(?:tests/data/)?((?:hf|lora|graph)_\w+)[/"]',
                               "".join(tests)))
        named = {name for name in named if (ROOT / "tests/data" / name).is_dir()}
        self.assertLess({"hf_qwen2moe", "lora_llama", "graph_quantized"}, named)
        self.assertLessEqual({f"tests/data/{name}" for name in named}, names)
        self.assertIn("tests/data/graph", names)

        done = self.pack("--no-data", "--limit", "0", out,
                         self.root / "packages")
        self.assertEqual(done.returncode, 1)
        self.assertIn("that is more than 0 MiB", done.stderr)
        with tarfile.open(out) as pack:
            self.assertEqual({name for name in names if name.startswith("tests")},
                             names - set(pack.getnames()))

    def test_a_pack_without_gguf_is_refused(self):
        done = self.pack(self.root / "out.tar.xz", self.root / "none")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no Python package gguf in ", done.stderr)
        self.assertFalse((self.root / "out.tar.xz").exists())


if __name__ == "__main__":
    unittest.main()
