"""What `cmake --install` and `cpack` make of the build: a program that runs from
anywhere, with the list of its dependencies, and a service that may do little."""
import json
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import BINARY

BUILD = pathlib.Path(BINARY).resolve().parents[1]


def run(*command, **kwargs):
    done = subprocess.run(list(map(str, command)), capture_output=True,
                          text=True, timeout=300, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


OPENED = {"libxgrammar_bindings.so", "libtvm_ffi.so"}


def libraries(prefix):
    return {path.name for path in (prefix / "lib/millrace").glob("*")}


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("install") / "first"
    run("cmake", "--install", BUILD, "--prefix", folder, "--strip")
    # Only what the program opens itself; the rest is the system's.
    assert libraries(folder) <= OPENED
    run("cmake", "--install", BUILD, "--prefix", folder, "--strip",
        "--component", "libraries")
    moved = folder.parent / "moved"
    folder.rename(moved)
    return moved


def test_it_runs_where_it_was_moved(prefix):
    assert run(prefix / "bin/millrace", "--version").startswith("millrace ")


def test_all_libraries_but_the_c_library_come_along(prefix):
    for line in run("ldd", prefix / "bin/millrace").splitlines():
        name = line.split()[0]
        if re.match(r"lib(c|m)\.so|linux-vdso|/lib64/ld-", name):
            continue
        assert f"{prefix}/bin/../lib/millrace/" in line, line


def test_the_examples_are_readable_settings(prefix):
    examples = sorted((prefix / "share/doc/millrace/examples").glob("*.yaml"))
    assert len(examples) >= 4
    settings = prefix / "etc/millrace/millrace.yaml"
    out = run(prefix / "bin/millrace", "serve", "--config", settings,
              "--print-config")
    assert re.search(r"^\s*shutdown_timeout: 30s", out, re.M), out


def test_the_manual_names_every_verb(prefix):
    manual = (prefix / "share/man/man1/millrace.1").read_text()
    verbs = re.findall(r"^  (\w+) ", run(prefix / "bin/millrace", "--help"),
                       re.M)
    assert len(verbs) >= 11
    for verb in verbs:
        assert f".TP\n.B {verb}\n" in manual, verb


def test_the_list_of_dependencies_is_whole(prefix):
    doc = prefix / "share/doc/millrace"
    document = json.loads((doc / "sbom.spdx.json").read_text())
    assert document["spdxVersion"] == "SPDX-2.3"
    parts = {part["name"]: part for part in document["packages"]}
    for name in ("millrace", "libc6", "libgrpc++1.51", "libboost1.81-dev",
                 "libturbojpeg0", "libwebp7", "libpng16-16", "xgrammar",
                 "libcurl4", "libsimdjson14"):
        assert parts[name]["versionInfo"], name
    digest = run("sha256sum", prefix / "bin/millrace").split()[0]
    assert parts["millrace"]["checksums"][0]["checksumValue"] == digest
    ids = {part["SPDXID"] for part in document["packages"]}
    for relation in document["relationships"]:
        assert relation["relatedSpdxElement"] in ids
    table = (doc / "dependencies.txt").read_text()
    for name in parts:
        assert name in table
        if name not in ("millrace", "libcurl4"):  # that one is not included
            text, = (doc / "copyrights" / name).glob("copyright*")
            assert text.stat().st_size


@pytest.mark.skipif(not shutil.which("systemd-analyze"),
                    reason="systemd-analyze is not installed")
def test_the_service_is_exposed_to_little(prefix):
    unit = prefix / "lib/systemd/system/millrace.service"
    assert not re.search(r"@\w+@", unit.read_text())
    out = run("systemd-analyze", "security", "--offline=true", unit)
    exposure = float(re.search(r"exposure level for \S+: ([\d.]+)", out)[1])
    assert exposure <= 2.0


def test_the_service_runs_every_example(prefix):
    unit = (prefix / "lib/systemd/system/millrace.service").read_text()

    def of_unit(key):
        return re.findall(rf"^{key}=(.+)$", unit, re.M)
    logs = {f"/var/log/{name}" for name in of_unit("LogsDirectory")}
    stop_seconds, = map(int, of_unit("TimeoutStopSec"))
    audited = 0
    for example in (prefix / "share/doc/millrace/examples").glob("*.yaml"):
        settings = dict(re.findall(r"^(\w+): (\S+)$", example.read_text(), re.M))
        drain = settings.get("shutdown_timeout", "30s")
        assert int(drain.removesuffix("s")) < stop_seconds, example.name
        if file := settings.get("audit_log_file"):
            audited += 1
            assert str(pathlib.Path(file).parent) in logs, example.name
    assert audited


@pytest.mark.skipif(not shutil.which("dpkg-shlibdeps"),
                    reason="dpkg-dev is not installed")
def test_the_debian_package(tmp_path):
    run("cpack", "-G", "DEB", "--config", BUILD / "CPackConfig.cmake",
        cwd=tmp_path)
    package, = tmp_path.glob("*.deb")
    depends = run("dpkg-deb", "-f", package, "Depends")
    assert "libgrpc++1.51" in depends and "libc6" in depends
    run("dpkg-deb", "-x", package, tmp_path / "root")
    unit = (tmp_path / "root/usr/lib/systemd/system/millrace.service"
            ).read_text()
    assert ("ExecStart=/usr/bin/millrace serve --config "
            "/etc/millrace/millrace.yaml") in unit
    assert (tmp_path / "root/etc/millrace/millrace.yaml").exists()
    assert libraries(tmp_path / "root/usr") <= OPENED
