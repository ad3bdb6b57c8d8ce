"""Certificates made by the openssl program while a test runs."""
import os
import pathlib
import subprocess


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True,
                   capture_output=True, timeout=60)


class Authority:
    """Signs certificates; its own stands in `file`."""

    def __init__(self, folder, name="Millrace test authority"):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file = self.folder / "ca.pem"
        self._key = self.folder / "ca.key"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt",
                "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.file)

    def sign(self, name, hosts=("DNS:localhost", "IP:127.0.0.1")):
        """Files of a certificate and its key."""
        certificate = self.folder / f"{name}.pem"
        key = self.folder / f"{name}.key"
        request = self.folder / f"{name}.csr"
        extensions = self.folder / f"{name}.ext"
        extensions.write_text("subjectAltName=" + ",".join(hosts) + "\n")
        openssl("req", "-newkey", "ec", "-pkeyopt",
                "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
                "-keyout", key, "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.file, "-CAkey",
                self._key, "-CAcreateserial", "-days", "2", "-extfile",
                extensions, "-out", certificate)
        return certificate, key


def replace(target, source):
    """As certificate managers do: the file is another one at once."""
    fresh = target.with_suffix(".new")
    fresh.write_bytes(source.read_bytes())
    os.replace(fresh, target)
