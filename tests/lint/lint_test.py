"""The lint finds what it is there to find: one planted fault a test, in a tree
that is clean otherwise."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import lint  # noqa: E402

CLEAN = {
    "config/a.h": "#pragma once\n#include <string>\n",
    "config/a.cc": '#include "config/a.h"\n\n#include <spdlog/spdlog.h>\n',
    "models/text/t.h": '#pragma once\n#include "config/a.h"\n',
    "models/llm/step.h": "#pragma once\n",
    "models/llm/model.h": '#pragma once\n#include <nlohmann/json_fwd.hpp>\n',
    "models/graph/ir.h": "#pragma once\n",
    "models/cpu/backend.h": "#pragma once\n",
    "models/cuda/backend.h": "#pragma once\n",
    "models/llm/open_device.cc": '#include "models/llm/cpu/engine.h"\n',
    "models/llm/cpu/engine.h":
        '#pragma once\n#include "models/cpu/backend.h"\n'
        '#include "models/llm/step.h"\n',
    "models/cpu/llm_kernels.h": "#pragma once\n",
    "models/cpu/kernels/avx2/k.cc":
        '#include <immintrin.h>\n\n#include "models/cpu/llm_kernels.h"\n',
    "scheduler/engine.h": '#pragma once\n#include "models/llm/step.h"\n',
    "scheduler/policy.h": "#pragma once\n",
    "handlers/h.h":
        '#pragma once\n#include "models/text/t.h"\n'
        '#include "scheduler/engine.h"\n',
    "server/auth.h": "#pragma once\n",
    "server/http/s.cc":
        '#include "handlers/h.h"\n#include "server/auth.h"\n',
    "server/grpc/g.h": "#pragma once\n",
    "loadtest/url.h": "#pragma once\n",
    "loadtest/url.cc": '#include "loadtest/url.h"\n',
    "tests/unit/helper.h": "#pragma once\n",
    "tests/unit/x_test.cc":
        '#include <nlohmann/json.hpp>\n\n'
        '#include "helper.h"\n#include "scheduler/policy.h"\n',
}


class LintTest(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.root = pathlib.Path(self._folder.name)
        for name, text in CLEAN.items():
            self.put(name, text)

    def put(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def findings(self, check):
        return list(lint.CHECKS[check](lint.Tree(self.root, self.root / "build")))

    def expect(self, check, *parts):
        found = self.findings(check)
        self.assertEqual(len(found), 1, found)
        for part in parts:
            self.assertIn(part, found[0])

    def test_clean_tree_has_no_findings(self):
        for check in ("includes", "headers", "format", "size", "paths"):
            self.assertEqual(self.findings(check), [], check)

    def test_include_against_the_arrow(self):
        self.put("models/llm/bad.cc",
                 '#include <vector>\n#include "scheduler/engine.h"\n')
        self.expect("includes", "models/llm/bad.cc:2", "stands below scheduler")

    def test_walls_between_rooms(self):
        for name, include in [
                ("config/bad.cc", "models/text/t.h"),
                ("scheduler/bad.cc", "models/llm/model.h"),
                ("handlers/bad.cc", "scheduler/policy.h"),
                ("handlers/bad.cc", "models/llm/model.h"),
                ("server/http/bad.cc", "scheduler/engine.h"),
                ("server/http/bad.cc", "server/grpc/g.h"),
                ("server/grpc/bad.cc", "models/llm/model.h"),
                ("models/llm/bad.cc", "models/graph/ir.h"),
                ("models/graph/bad.cc", "models/llm/model.h"),
                ("models/cpu/bad.cc", "models/cuda/backend.h"),
                ("models/cpu/bad.cc", "models/llm/step.h"),
                ("models/tensor/bad.cc", "models/cpu/backend.h"),
                ("models/memory/bad.cc", "models/cpu/backend.h"),
                ("models/text/bad.cc", "models/llm/step.h"),
                ("models/llm/cpu/bad.cc", "models/llm/model.h"),
                ("models/llm/bad.cc", "models/llm/cpu/engine.h"),
                ("models/cpu/kernels/avx2/bad.cc", "config/a.h"),
                ("server/bad.cc", "tests/unit/helper.h"),
                ("server/bad.cc", "auth.h"),
                ("server/bad.cc", "loadtest/url.h"),
                ("loadtest/bad.cc", "server/auth.h"),
                ("loadtest/bad.cc", "config/a.h")]:
            with self.subTest(name=name, include=include):
                self.put(name, f'#include "{include}"\n')
                self.expect("includes", f"{name}:1")
                (self.root / name).unlink()

    def test_heavy_header_in_a_header(self):
        for heavy in ("nlohmann/json.hpp", "boost/asio/ip/tcp.hpp", "hwloc.h",
                      "grpcpp/grpcpp.h", "spdlog/spdlog.h"):
            with self.subTest(heavy):
                self.put("server/bad.h", f"#pragma once\n#include <{heavy}>\n")
                self.expect("includes", "server/bad.h:2", "is heavy")

    def test_heavy_headers_stay_behind_detail(self):
        self.put("server/http/detail/conn.h",
                 "#pragma once\n#include <boost/asio/ip/tcp.hpp>\n")
        self.assertEqual(self.findings("includes"), [])
        self.put("server/http/bad.h",
                 '#pragma once\n#include "server/http/detail/conn.h"\n')
        self.expect("includes", "server/http/bad.h:2", "source files")

    def test_private_third_party_headers(self):
        self.put("server/bad.cc", "#include <absl/status/status.h>\n")
        self.expect("includes", "belongs to server/grpc/")

    def test_kernels_include_no_system_header_with_inline_code(self):
        self.put("models/cpu/kernels/avx2/bad.cc", "#include <algorithm>\n")
        self.expect("includes", "kernels may include only")

    def test_settings_that_messages_name(self):
        self.put("config/schema.cc",
                 'visit({.name = "max_size", .aliases = {{"limit"}}});\n')
        self.put("handlers/request_fields.cc", 'Read("max_tokens");\n')
        self.put("server/good.cc",
                 'Bad("lower max_tokens or raise max_size; --limit, '
                 '--config, --no-limit");')
        self.assertEqual(self.findings("settings"), [])
        for text in ('"raise "\n    "max_bytes"', '"start it with --max-bytes"'):
            with self.subTest(text):
                self.put("server/bad.cc", f"Bad({text});\n")
                self.expect("settings", "server/bad.cc",
                            "no setting 'max_bytes'")

    def test_weak_symbol_in_a_kernel_object(self):
        folder = self.root / "build/models/cpu/CMakeFiles/cpu.dir/kernels/avx2"
        folder.mkdir(parents=True)
        self.put("k.cc", "inline int Shared() { return 1; }\n"
                         "int (*address)() = &Shared;\n")
        compile_it = ["g++", "-c", "-o", folder / "k.cc.o", self.root / "k.cc"]
        subprocess.run(compile_it, check=True)
        self.expect("symbols", "avx2/k.cc.o", "Shared")
        self.put("k.cc", "static int Own() { return 1; }\n"
                         "int (*address)() = &Own;\n")
        subprocess.run(compile_it, check=True)
        self.assertEqual(self.findings("symbols"), [])

    def test_no_kernel_objects_is_a_finding(self):
        self.expect("symbols", "no kernel objects")

    def link(self, *flags):
        self.put("m.cc", "#include <cstring>\n#include <cstdio>\n"
                         "int main(int n, char** a) { char b[64];\n"
                         "std::strcpy(b, a[0]); std::puts(b); return n; }\n")
        (self.root / "build/bin").mkdir(parents=True, exist_ok=True)
        subprocess.run(["g++", "-O2", "-U_FORTIFY_SOURCE", *flags, "-o",
                        self.root / "build/bin/millrace", self.root / "m.cc"],
                       check=True)

    def test_each_missing_protection_is_a_finding(self):
        good = ["-fPIE", "-pie", "-D_FORTIFY_SOURCE=2",
                "-fstack-protector-strong", "-Wl,-z,relro,-z,now"]
        self.link(*good)
        self.assertEqual(self.findings("hardening"), [])
        for wrong, word in (
                (["-no-pie"], "position independent"),
                (["-Wl,-z,norelro"], "no RELRO"),
                (["-Wl,-z,lazy"], "bind lazily"),
                (["-Wl,-z,execstack"], "stack is executable"),
                (["-fno-stack-protector"], "stack protector"),
                (["-U_FORTIFY_SOURCE"], "string functions")):
            with self.subTest(word):
                self.link(*good, *wrong)
                self.expect("hardening", word)

    def test_no_binary_is_a_finding(self):
        self.expect("hardening", "no binary")

    def test_header_that_needs_another(self):
        self.put("config/bad.h", "#pragma once\nstd::string Name();\n")
        self.expect("headers", "config/bad.h:1", "does not compile alone")
        # The kept verdict of a good header falls with what it includes.
        self.put("config/bad.h", "#pragma once\n")
        self.assertEqual(self.findings("headers"), [])
        self.put("config/a.h", "#pragma once\n#error broken\n")
        self.assertGreaterEqual(len(self.findings("headers")), 3)

    def test_header_that_its_source_proves(self):
        self.put("config/bad.h", "#pragma once\nstd::string Name();\n")
        self.put("config/bad.cc", '#include "config/bad.h"\n')
        self.expect("headers", "config/bad.h:1")  # nobody compiles bad.cc
        source = str(self.root.resolve() / "config/bad.cc")
        self.put("build/compile_commands.json", json.dumps([{"file": source}]))
        self.assertEqual(self.findings("headers"), [])
        self.put("config/bad.cc", '#include <string>\n#include "config/bad.h"\n')
        self.expect("headers", "config/bad.h:1")

    def test_formatting(self):
        (self.root / ".clang-format").write_text("BasedOnStyle: Google\n")
        self.put("config/bad.cc", "int  f( ){return 1;}\n")
        self.expect("format", "config/bad.cc:1")

    def test_long_file(self):
        self.put("config/fine.cc", "\n" * lint.MAX_LINES)
        self.put("config/bad.cc", "\n" * (lint.MAX_LINES + 1))
        self.expect("size", "config/bad.cc", "501 lines")

    def test_paths_and_hosts(self):
        for text in ("cd /wo" + "rk/x\n", 'open("/ro' + 'ot/.cache")\n',
                     "pip -i https://py" + "pi.org/simple\n",
                     "FROM dock" + "er.io/library/x\n"):
            with self.subTest(text):
                self.put("deploy/bad.sh", text)
                self.expect("paths", "deploy/bad.sh:1")
        self.put("deploy/bad.sh", "cd ${x}/work/y; ls docs/root/x https://a.b\n")
        self.assertEqual(self.findings("paths"), [])


if __name__ == "__main__":
    unittest.main()
