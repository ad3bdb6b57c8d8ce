"""The gate says at its start that the disk is too full, and stops there."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

TESTS = pathlib.Path(__file__).parent
GB = 1000 * 1000  # in KiB, as the gate counts


class DiskTest(unittest.TestCase):
    """A checkout of run.sh alone, whose dependencies cannot be installed, on a
    disk that df and du tell of."""

    def run_gate(self, free_gb, built_gb):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in ("tests", "deploy", "bin"):
                (root / name).mkdir()
            for name in ("run.sh", "summary.py"):
                shutil.copy(TESTS / name, root / "tests")
            for path, words in (
                    ("deploy/install_deps.sh", "echo INSTALLING; exit 1"),
                    ("bin/df", f"echo header; echo disk 1 1 {free_gb * GB} 1%"),
                    ("bin/du", f"echo {built_gb * GB} build")):
                (root / path).write_text(f"#!/bin/sh\n{words}\n")
                (root / path).chmod(0o755)
            path = f"{root / 'bin'}:{os.environ['PATH']}"
            return subprocess.run([root / "tests" / "run.sh"], text=True,
                                  env={**os.environ, "PATH": path}, timeout=60,
                                  capture_output=True, check=False)

    def test_a_full_disk_ends_the_gate_with_one_sentence(self):
        done = self.run_gate(free_gb=4, built_gb=3)
        self.assertIn("has 4 GB free and build/ has 3 GB, but the gate needs "
                      "14 GB in all: free 7 GB.\n", done.stdout)
        self.assertNotIn("INSTALLING", done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], "0 passed, 1 failed")
        self.assertEqual(done.returncode, 1)

    def test_what_is_built_already_counts(self):
        done = self.run_gate(free_gb=4, built_gb=10)
        self.assertIn("INSTALLING", done.stdout)
        self.assertNotIn("GB", done.stdout)


if __name__ == "__main__":
    unittest.main()
