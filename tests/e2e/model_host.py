"""A web server of models with faults, for test_pull.py: ranges, tags, cuts, wrong
bytes, slow answers, errors, redirects; Hugging Face's two routes; S3 with
signatures that are checked (AWS Signature Version 4, as its specification has
it, by hashlib and hmac alone)."""
import datetime
import hashlib
import hmac
import http.server
import json
import socket
import struct
import threading
import time
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
KEY_ID, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


def git_blob(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Host:
    """`files` by path. `faults`, a list, is taken from by each GET of a file:
    None, ("cut", n), ("reset", n), ("status", code, headers), ("stall", n),
    ("wrong", n): byte n is another one, ("ignore_range",), ("redirect", url),
    ("no_size",). An n counts from the file's begin, in an answer to a range, too.
    `hub_token`: the only one that the hub's routes take."""

    def __init__(self):
        self.files, self.faults, self.requests = {}, [], []
        self.hub, self.s3_token, self.cdn = {}, None, None
        self.hub_token = None
        self.gate = None  # an event that bodies wait for
        self.lock = threading.Lock()
        host = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                with host.lock:
                    host.requests.append((self.path, dict(self.headers)))
                try:
                    host.answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def plain(self, to, status, body=b"", headers=()):
        to.send_response(status)
        for name, value in dict(headers).items():
            to.send_header(name, value)
        to.send_header("Content-Length", str(len(body)))
        to.end_headers()
        to.wfile.write(body)

    def answer(self, to):
        path = urllib.parse.unquote(urllib.parse.urlsplit(to.path).path)
        is_hub = path.startswith("/api/models/") or "/resolve/" in path
        if is_hub and self.hub_token is not None and to.headers.get(
                "Authorization") != "Bearer " + self.hub_token:
            return self.plain(to, 401, headers={
                "X-Error-Message": "Invalid credentials in Authorization header"})
        if path.startswith("/api/models/"):
            repo = "/".join(path.split("/")[3:5])
            if repo not in self.hub:
                return self.plain(to, 404, headers={
                    "X-Error-Code": "RepoNotFound"})
            return self.plain(to, 200, json.dumps(self.hub[repo]).encode())
        if self.s3_token is not None:
            refused = self.check_signature(to)
            if refused:
                return self.plain(to, 403, (
                    f"<Error><Code>{refused}</Code></Error>").encode())
        with self.lock:
            fault = self.faults.pop(0) if self.faults else None
        if fault and fault[0] == "status":
            return self.plain(to, fault[1], b"", fault[2])
        if fault and fault[0] == "redirect":
            return self.plain(to, 302, b"", {"Location": fault[1]})
        if self.cdn and "/resolve/" in path:
            return self.plain(to, 302, b"", {
                "Location": self.cdn + path + "?signature=secret"})
        content = self.files.get(path)
        if content is None:
            return self.plain(to, 404)
        return self.send(to, content, fault)

    def send(self, to, content, fault):
        etag = '"' + hashlib.md5(content).hexdigest() + '"'
        if to.headers.get("If-None-Match") == etag:
            to.send_response(304)
            to.send_header("ETag", etag)
            to.end_headers()
            return
        start, status = 0, 200
        wanted = to.headers.get("Range", "")
        if_range = to.headers.get("If-Range", etag)
        if (wanted.startswith("bytes=") and if_range == etag and
                not (fault and fault[0] == "ignore_range")):
            start, status = int(wanted[6:].rstrip("-")), 206
            if start >= len(content):
                return self.plain(to, 416)
        body = bytearray(content[start:])
        if fault and fault[0] == "wrong":
            body[fault[1] - start] ^= 1
        to.send_response(status)
        to.send_header("ETag", etag)
        if fault and fault[0] == "no_size":
            to.send_header("Connection", "close")
            to.close_connection = True
        else:
            to.send_header("Content-Length", str(len(body)))
        if status == 206:
            to.send_header("Content-Range", f"bytes {start}-"
                           f"{len(content) - 1}/{len(content)}")
        to.end_headers()
        if self.gate is not None:
            to.wfile.write(body[:1000])
            self.gate.wait(60)
            body = body[1000:]
        if fault and fault[0] in ("cut", "reset", "stall"):
            to.wfile.write(body[:max(0, fault[1] - start)])
            to.wfile.flush()
            if fault[0] == "stall":
                time.sleep(5)
            if fault[0] == "reset":  # what is under way is lost, too
                to.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                         struct.pack("ii", 1, 0))
            to.close_connection = True
            return
        to.wfile.write(body)

    def check_signature(self, to):
        """The S3 error code of a request whose signature does not hold."""
        said = to.headers.get("Authorization", "")
        if not said.startswith("AWS4-HMAC-SHA256 "):
            return "AccessDenied"
        parts = dict(part.strip().split("=", 1)
                     for part in said.split(" ", 1)[1].split(","))
        key_id, day, region, service, _ = parts["Credential"].split("/")
        names = parts["SignedHeaders"].split(";")
        if self.s3_token and to.headers.get(
                "x-amz-security-token") != self.s3_token:
            return "ExpiredToken"
        if self.s3_token and "x-amz-security-token" not in names:
            return "AccessDenied"
        if {"host", "x-amz-date", "x-amz-content-sha256"} - set(names):
            return "MissingSecurityHeader"
        if key_id != KEY_ID:
            return "InvalidAccessKeyId"
        split = urllib.parse.urlsplit(to.path)
        payload = to.headers["x-amz-content-sha256"]
        request = "\n".join(
            ["GET", split.path, split.query] +
            [f"{name}:{' '.join(to.headers[name].split())}" for name in names] +
            ["", ";".join(names), payload])
        stamp = to.headers["x-amz-date"]
        now = datetime.datetime.now(datetime.timezone.utc)
        then = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(
            tzinfo=datetime.timezone.utc)
        if abs((now - then).total_seconds()) > 900 or stamp[:8] != day:
            return "RequestTimeTooSkewed"
        text = "\n".join(["AWS4-HMAC-SHA256", stamp,
                          f"{day}/{region}/{service}/aws4_request",
                          hashlib.sha256(request.encode()).hexdigest()])
        key = b"AWS4" + SECRET.encode()
        for part in (day, region, service, "aws4_request", text):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return "" if key.hex() == parts["Signature"] else "SignatureDoesNotMatch"

    def add_repo(self, repo, files, lfs=()):
        """Files by name; those in `lfs` are in large file storage."""
        siblings = []
        for name, content in files.items():
            entry = {"rfilename": name, "size": len(content),
                     "blobId": git_blob(content)}
            if name in lfs:
                entry["blobId"] = "0" * 40
                entry["lfs"] = {
                    "sha256": hashlib.sha256(content).hexdigest(),
                    "size": len(content), "pointerSize": 130}
            siblings.append(entry)
            self.files[f"/{repo}/resolve/{COMMIT}/{name}"] = content
        self.hub[repo] = {"id": repo, "sha": COMMIT, "siblings": siblings}
