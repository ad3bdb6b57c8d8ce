"""Checksums of `millrace pull`: that of --sha256 is of what stands in the cache, that
of X-Linked-Etag is the server's."""
import contextlib
import http.server
import select
import shutil
import socket
import ssl
import threading

from certificates import Authority
from model_host import COMMIT
from test_pull import GRAPH, MODEL_BYTES, SUM, host, pull, pulled, sentence


def test_a_file_that_was_damaged_is_replaced(host, tmp_path):
    host.add_repo("a/b", {"net.onnx": MODEL_BYTES}, lfs=["net.onnx"])
    for url in ("hf://a/b@main/net.onnx", host.url + "/m/net.onnx"):
        def again():
            return pulled(pull(tmp_path, "--sha256", SUM, url,
                               HF_ENDPOINT=host.url))
        path = again()
        path.write_bytes(MODEL_BYTES[:-1] + b"?")
        assert again() == path
        assert path.read_bytes() == MODEL_BYTES
        partial = path.parents[1] / "partial"
        assert list(partial.iterdir()) == []


def test_a_file_of_an_unfinished_pull_is_read(host, tmp_path):
    host.add_repo("a/b", {"net.onnx": MODEL_BYTES}, lfs=["net.onnx"])
    url = "hf://a/b@main/net.onnx"
    path = pulled(pull(tmp_path, url, HF_ENDPOINT=host.url))
    # As a pull without a checksum leaves it that is killed before its end.
    unfinished = path.parents[1] / "partial" / COMMIT
    unfinished.mkdir()
    (unfinished / path.name).write_bytes(GRAPH)
    shutil.rmtree(path.parent)
    assert pulled(pull(tmp_path, "--sha256", SUM, url,
                       HF_ENDPOINT=host.url)) == path
    assert path.read_bytes() == MODEL_BYTES


class Tunnel(http.server.BaseHTTPRequestHandler):
    """A proxy that has something to say of itself."""

    def do_CONNECT(self):
        self.server.targets.append(self.path)
        name, _, port = self.path.rpartition(":")
        with socket.create_connection((name, int(port))) as there:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n"
                             b"Proxy-Agent: tunnel\r\n\r\n")
            other = {there: self.connection, self.connection: there}
            while True:
                for end in select.select(list(other), [], [])[0]:
                    piece = end.recv(65536)
                    if not piece:
                        return
                    other[end].sendall(piece)

    def log_message(self, *_):
        pass


class Linked(http.server.BaseHTTPRequestHandler):
    """Says what the file's sum is, whatever it sends."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("X-Linked-Etag", f'"{SUM}"')
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(handler):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_sum_is_taken_from_behind_a_proxy(tmp_path):
    authority = Authority(tmp_path / "ca")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.sign("server"))
    with serving(Linked) as server, serving(Tunnel) as tunnel:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        tunnel.targets = []

        def again():
            return pull(
                tmp_path, "--retries", 0, "--cacert", authority.file,
                f"https://127.0.0.1:{server.server_port}/m/net.onnx",
                https_proxy=f"http://127.0.0.1:{tunnel.server_port}")
        server.content = MODEL_BYTES[:-1] + b"?"
        assert SUM in sentence(again())
        server.content = MODEL_BYTES
        assert pulled(again()).read_bytes() == MODEL_BYTES
        assert set(tunnel.targets) == {f"127.0.0.1:{server.server_port}"}
