#!/usr/bin/env python3
"""Lists what a millrace binary is made of, from the packages of this system.

    deploy/package/sbom.py BINARY [--version V] [--spdx FILE] [--text FILE]
                           [--copyrights FOLDER] [--files] [--installed FILE]
                           [--wheels FOLDER]

Every shared library that the loader would take (ldd) is traced to the Debian
package that owns it; header libraries that are compiled in are named below.
--spdx writes an SPDX 2.3 document in JSON, --text a table with licences,
--copyrights copies the packages' copyright files (long ones compressed), --files
prints the libraries themselves, one path a line. --installed names the copy of
BINARY whose checksum is written, where that one was stripped or moved. --wheels
names libraries that the program opens itself: FOLDER/packages.txt has their
names, versions and licences, and what they need counts as if the program needed
it. Two runs over the same binary write the same bytes if SOURCE_DATE_EPOCH is set.
"""
import argparse
import datetime
import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

LONG_TEXT = 256 * 1024  # licences' texts from here on are compressed
# Libraries of headers alone, whose code is part of the binary.
COMPILED_IN = ["libboost1.81-dev", "nlohmann-json3-dev"]
# Opened by one verb where the system has them; no package or image holds them.
OPENED_OF_SYSTEM = ["libcurl4"]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"sbom: {' '.join(map(str, command))} failed: "
                 f"{done.stderr.strip()}")
    return done.stdout


def wheels(folder):
    """[{name, version, licence, file}] of the libraries in the folder."""
    if not folder:
        return []
    rows = []
    for line in pathlib.Path(folder, "packages.txt").read_text().splitlines():
        name, version, licence, library = line.split()
        rows.append({"name": name, "version": version, "licence": licence,
                     "file": str(pathlib.Path(folder, "lib", library)),
                     "texts": pathlib.Path(folder, "licenses", name)})
    return rows


def libraries(binary, opened=()):
    """Paths of the shared libraries as the loader names them, sorted; without
    those that are opened, but with what they need."""
    files = [wheel["file"] for wheel in opened]
    if files:
        os.environ["LD_LIBRARY_PATH"] = str(pathlib.Path(files[0]).parent)
    paths = set()
    for part in [binary, *files]:
        paths |= linked_with(part)
    os.environ.pop("LD_LIBRARY_PATH", None)
    return sorted(paths - set(files))


def linked_with(binary):
    paths = set()
    for line in run("ldd", binary).splitlines():
        if "not found" in line:
            sys.exit(f"sbom: {binary} needs {line.split()[0]}, which is not "
                     "installed")
        if match := re.search(r"(?:=> )?(/\S+) \(0x", line):
            paths.add(match[1])
    return paths


def owners(paths):
    """{path: package that owns it}. /lib may be a link to /usr/lib, and a
    package may know a file by either name, so each is asked for by all."""
    names = {}
    for path in paths:
        real = os.path.realpath(path)
        for name in (path, real, real.removeprefix("/usr"),
                     path.removeprefix("/usr")):
            names.setdefault(name, path)
    # Exits with 1 because some names are unknown.
    listed = subprocess.run(["dpkg-query", "-S", *names],
                            capture_output=True, text=True).stdout
    found = {}
    for line in listed.splitlines():
        package, _, name = line.partition(": ")
        if name in names:
            found[names[name]] = package.split(",")[0]
    for path in paths:
        if path not in found:
            sys.exit(f"sbom: no package owns {path}; build against the "
                     "system's libraries")
    return found


def licences(package):
    """Short names in a machine-readable copyright file, or []."""
    plain = package.split(":")[0]
    path = pathlib.Path("/usr/share/doc") / plain / "copyright"
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    if not text.lstrip().startswith("Format"):
        return []
    names = re.findall(r"^License:[ \t]*(\S[^\n]*)$", text, re.M)
    return sorted(set(name.strip() for name in names))


def describe(package, files):
    fields = run("dpkg-query", "-W", "-f",
                 "${Package}\t${Version}\t${Architecture}\t${source:Package}\t"
                 "${Homepage}\t${Maintainer}", package).split("\t")
    return {"name": fields[0], "version": fields[1], "arch": fields[2],
            "source": fields[3], "homepage": fields[4],
            "maintainer": fields[5], "licences": licences(package),
            "files": files}


def packages(binary, opened):
    owned = {}
    for path, package in owners(libraries(binary, opened)).items():
        owned.setdefault(package, []).append(path)
    linked = [describe(name, files) for name, files in sorted(owned.items())]
    return linked, installed(COMPILED_IN)


def installed(names):
    present = [name for name in names if shutil.which("dpkg-query") and
               subprocess.run(["dpkg-query", "-W", name],
                              capture_output=True).returncode == 0]
    return [describe(name, []) for name in present]


def created():
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = (datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc)
           if epoch else datetime.datetime.now(datetime.timezone.utc))
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def spdx_id(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def copy_copyrights(folder, listed, opened):
    for wheel in opened:
        target = pathlib.Path(folder, wheel["name"].replace("_", "-"))
        target.mkdir(parents=True, exist_ok=True)
        (target / "copyright").write_bytes(b"\n".join(
            text.read_bytes() for text in sorted(wheel["texts"].iterdir())))
    for package in listed:
        source = pathlib.Path("/usr/share/doc", package["name"], "copyright")
        target = pathlib.Path(folder, package["name"])
        target.mkdir(parents=True, exist_ok=True)
        text = source.read_bytes()
        if len(text) < LONG_TEXT:
            (target / "copyright").write_bytes(text)
        else:  # of the same bytes in each build: no time, no name
            (target / "copyright.gz").write_bytes(gzip.compress(text, mtime=0))


def spdx(binary, version, linked, compiled_in, opened):
    digest = hashlib.sha256(pathlib.Path(binary).read_bytes()).hexdigest()
    main = {
        "SPDXID": "SPDXRef-millrace", "name": "millrace",
        "versionInfo": version, "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "APPLICATION",
        "checksums": [{"algorithm": "SHA256", "checksumValue": digest}]}
    parts, relations = [main], [{
        "spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
        "relatedSpdxElement": "SPDXRef-millrace"}]
    of_system = installed(OPENED_OF_SYSTEM)
    for package in linked + compiled_in + of_system:
        static = package in compiled_in
        part = {
            "SPDXID": spdx_id(package["name"]), "name": package["name"],
            "versionInfo": package["version"],
            "supplier": "Organization: Debian",
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "licenseConcluded": "NOASSERTION",
            "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
            "primaryPackagePurpose": "LIBRARY",
            "externalRefs": [{
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator":
                    f"pkg:deb/debian/{package['name']}@"
                    f"{package['version'].replace('+', '%2B')}"
                    f"?arch={package['arch']}"}]}
        if package["homepage"]:
            part["homepage"] = package["homepage"]
        if package["licences"]:
            part["licenseComments"] = (
                "Names in Debian's copyright file: "
                + ", ".join(package["licences"]))
        parts.append(part)
        if package in of_system:
            part["comment"] = "Opened where the system has it; not included."
            relations.append({
                "spdxElementId": part["SPDXID"],
                "relationshipType": "OPTIONAL_DEPENDENCY_OF",
                "relatedSpdxElement": "SPDXRef-millrace"})
            continue
        relations.append({
            "spdxElementId": "SPDXRef-millrace",
            "relationshipType": "STATIC_LINK" if static else "DYNAMIC_LINK",
            "relatedSpdxElement": part["SPDXID"]})
    for wheel in opened:
        name = wheel["name"].replace("_", "-")
        parts.append({
            "SPDXID": spdx_id(name), "name": name,
            "versionInfo": wheel["version"],
            "supplier": "NOASSERTION", "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
            "licenseDeclared": wheel["licence"],
            "copyrightText": "NOASSERTION", "primaryPackagePurpose": "LIBRARY",
            "externalRefs": [{
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": f"pkg:pypi/{name}@{wheel['version']}"}]})
        relations.append({
            "spdxElementId": spdx_id(name),
            "relationshipType": "OPTIONAL_DEPENDENCY_OF",
            "relatedSpdxElement": "SPDXRef-millrace"})
    return {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT", "name": f"millrace-{version}",
        "documentNamespace": f"urn:millrace:spdx:{version}:{digest}",
        "creationInfo": {"created": created(),
                         "creators": ["Tool: millrace-sbom"]},
        "packages": parts, "relationships": relations}


def table(version, linked, compiled_in, opened):
    lines = [f"millrace {version} is linked with these packages of Debian. The "
             "texts of their", "licences are in copyrights/PACKAGE/copyright "
             "beside this file.", ""]
    rows = [("package", "version", "linked", "licences")]
    for package in linked + compiled_in:
        rows.append((package["name"], package["version"],
                     "compiled in" if package in compiled_in else "shared",
                     ", ".join(package["licences"]) or "see copyright"))
    for package in installed(OPENED_OF_SYSTEM):
        rows.append((package["name"], package["version"], "not included",
                     ", ".join(package["licences"]) or "see its package"))
    for wheel in opened:
        rows.append((wheel["name"].replace("_", "-"), wheel["version"],
                     "opened (PyPI)", wheel["licence"]))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        lines.append("  ".join(
            [row[i].ljust(widths[i]) for i in range(3)] + [row[3]]))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("--version", default="0")
    parser.add_argument("--spdx")
    parser.add_argument("--text")
    parser.add_argument("--copyrights")
    parser.add_argument("--installed")
    parser.add_argument("--wheels")
    parser.add_argument("--files", action="store_true")
    options = parser.parse_args()
    opened = wheels(options.wheels)
    if options.files:
        print("\n".join(libraries(options.binary, opened)))
    if not (options.spdx or options.text or options.copyrights):
        return
    if not shutil.which("dpkg-query"):
        print("sbom: there is no dpkg here, so no list is written",
              file=sys.stderr)
        return
    linked, compiled_in = packages(options.binary, opened)
    if options.spdx:
        document = spdx(options.installed or options.binary, options.version,
                        linked, compiled_in, opened)
        pathlib.Path(options.spdx).write_text(
            json.dumps(document, indent=1, sort_keys=True) + "\n")
    if options.text:
        pathlib.Path(options.text).write_text(
            table(options.version, linked, compiled_in, opened))
    if options.copyrights:
        copy_copyrights(options.copyrights, linked + compiled_in, opened)


if __name__ == "__main__":
    main()
