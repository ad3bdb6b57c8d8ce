"""JSON Web Tokens signed by the openssl program while a test runs."""
import base64
import json
import re
import subprocess

from certificates import openssl


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def output(*arguments, stdin=b""):
    return subprocess.run(["openssl", *map(str, arguments)], input=stdin,
                          check=True, capture_output=True, timeout=60).stdout


class Signer:
    """A key pair of RS256 or ES256; `public` is its entry of a JWKS."""

    def __init__(self, folder, algorithm, name, bits=2048):
        self.algorithm, self.name = algorithm, name
        self.file = folder / f"{name}.key"
        if algorithm == "RS256":
            openssl("genrsa", "-out", self.file, bits)
            text = output("rsa", "-in", self.file, "-noout", "-modulus")
            modulus = bytes.fromhex(text.decode().strip().split("=")[1])
            self.public = {"kty": "RSA", "n": base64url(modulus),
                           "e": base64url(b"\x01\x00\x01")}
        else:
            openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout",
                    "-out", self.file)
            point = output("ec", "-in", self.file, "-pubout", "-outform",
                           "DER")[-64:]
            self.public = {"kty": "EC", "crv": "P-256",
                           "x": base64url(point[:32]),
                           "y": base64url(point[32:])}
        self.public |= {"kid": name, "alg": algorithm, "use": "sig"}

    def sign(self, claims, **header):
        header = {"alg": self.algorithm, "kid": self.name, **header}
        text = ".".join(base64url(json.dumps(part).encode())
                        for part in (header, claims))
        signature = output("dgst", "-sha256", "-sign", self.file,
                           stdin=text.encode())
        if self.algorithm == "ES256":
            signature = self._raw(signature)
        return text + "." + base64url(signature)

    @staticmethod
    def _raw(der):
        """r and s of 32 bytes each, from the DER form."""
        listed = output("asn1parse", "-inform", "DER", stdin=der).decode()
        numbers = re.findall(r"INTEGER\s+:([0-9A-F]+)", listed)
        return b"".join(int(each, 16).to_bytes(32, "big") for each in numbers)
