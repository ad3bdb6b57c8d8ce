"""TLS on both ports: protocols, certificates of clients, reload, and our own
clients. Certificates are made while the tests run."""
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
from certificates import Authority, replace
from conftest import BINARY, MODEL, MODEL_ID, REPO, start
from test_loadtest import LOADTEST

GRAPH = REPO / "tests/data/graph/mlp.onnx"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def files(authority):
    return authority.sign("server")


@pytest.fixture(scope="module")
def secure(files):
    """A language model and a graph behind TLS."""
    with start(f"mlp={GRAPH}", f"{MODEL_ID}={MODEL}", "--ssl-certfile",
               files[0], "--ssl-keyfile", files[1], "--max-model-len", 512,
               "--header-timeout", "1s") as running:
        running.url = f"https://localhost:{running.http_port}"
        yield running


def trust(authority, **limits):
    context = ssl.create_default_context(cafile=authority.file)
    for name, value in limits.items():
        setattr(context, name, value)
    return context


def handshake(port, context, name="localhost"):
    """The TLS socket of a connection that has sent nothing yet."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=20)
    try:
        return context.wrap_socket(plain, server_hostname=name)
    except BaseException:
        plain.close()
        raise


def serial(port, authority):
    with handshake(port, trust(authority)) as connection:
        return connection.getpeercert()["serialNumber"]


def get(url, context, path="/health"):
    with urllib.request.urlopen(url + path, context=context,
                                timeout=30) as answer:
        return answer.status


def tensors():
    import tritonclient.utils  # noqa: F401, imported with either client
    return {"x": np.array([[1, 2, 3, 4]], np.float32),
            "scale": np.array([0.5], np.float32)}


def infer(triton, client):
    inputs = []
    for name, array in tensors().items():
        inputs.append(triton.InferInput(name, list(array.shape), "FP32"))
        inputs[-1].set_data_from_numpy(array)
    return client.infer("mlp", inputs).as_numpy("logits")


def test_openai_streams_over_tls(secure, authority):
    import httpx2
    import openai
    client = openai.OpenAI(
        base_url=secure.url + "/v1", api_key="none",
        http_client=httpx2.Client(verify=trust(authority)))
    pieces = [chunk.choices[0].delta.content or "" for chunk in
              client.chat.completions.create(
                  model=MODEL_ID, max_tokens=16, stream=True, temperature=0,
                  messages=[{"role": "user", "content": "Say hello."}])
              if chunk.choices]
    assert "".join(pieces)


def test_tritonclient_over_tls(secure, authority):
    import tritonclient.grpc as triton_grpc
    import tritonclient.http as triton_http
    rest = triton_http.InferenceServerClient(
        f"localhost:{secure.http_port}", ssl=True,
        ssl_context_factory=lambda: trust(authority))
    grpc = triton_grpc.InferenceServerClient(
        f"localhost:{secure.grpc_port}", ssl=True,
        root_certificates=str(authority.file))
    assert np.array_equal(infer(triton_http, rest), infer(triton_grpc, grpc))


def test_a_large_body_and_answer(secure, authority):
    """More than one record of TLS, and more than a socket's buffer."""
    text = "mill " * 400_000
    request = urllib.request.Request(
        secure.url + "/tokenize", method="POST",
        data=json.dumps({"model": MODEL_ID, "prompt": text}).encode(),
        headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, context=trust(authority),
                                timeout=60) as answer:
        assert len(json.load(answer)["tokens"]) >= 400_000


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_versions_that_are_spoken(secure, authority, version):
    wanted = getattr(ssl.TLSVersion, version)
    context = trust(authority, minimum_version=wanted, maximum_version=wanted)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with handshake(secure.http_port, context) as connection:
        assert connection.version() == version.replace("_", ".")
        assert connection.selected_alpn_protocol() == "http/1.1"
        cipher = connection.cipher()[0]
    assert "GCM" in cipher or "CHACHA20" in cipher


@pytest.mark.parametrize("arguments", [
    ["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],   # an old version
    ["-tls1_2", "-cipher", "AES256-SHA"],        # no forward secrecy
    ["-alpn", "h2"],                             # HTTP/2 alone
])
def test_what_is_refused(secure, arguments):
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{secure.http_port}",
         *arguments], input=b"", capture_output=True, timeout=30)
    assert done.returncode != 0 and b"alert" in done.stderr, done.stderr


def test_a_client_without_tls_is_told(secure):
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{secure.http_port}/health",
                               timeout=20)
    assert refused.value.code == 400
    assert "https://" in json.load(refused.value)["error"]["message"]


def test_a_handshake_that_never_ends_is_cut(secure):
    with socket.create_connection(("127.0.0.1", secure.http_port)) as silent:
        silent.settimeout(20)
        silent.sendall(b"\x16\x03\x01\x02\x00")
        assert silent.recv(100) == b""


def test_our_own_clients(secure, authority, files, tmp_path):
    def run(*command, env=None):
        done = subprocess.run([str(part) for part in command], env=env,
                              capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr
    url = secure.url
    assert run(BINARY, "health", "--url", url, "--cacert",
               authority.file)[0] == 0
    assert run(BINARY, "health", "--url", url, "--insecure")[0] == 0
    code, sentence = run(BINARY, "health", "--url", url)
    assert code == 1 and "--cacert" in sentence
    # As a container's health check, which knows the server's settings.
    assert run(BINARY, "health", env={
        "MILLRACE_HTTP_PORT": str(secure.http_port),
        "MILLRACE_SSL_CERT_FILE": str(files[0])}) == (0, "")
    capture = (BINARY, "trace", "--seconds", 1, "-o", tmp_path / "trace.json")
    for flags, env in ((("--url", url, "--cacert", authority.file), None),
                       ((), {"MILLRACE_HTTP_PORT": str(secure.http_port),
                             "MILLRACE_SSL_CERT_FILE": str(files[0])})):
        code, said = run(*capture, *flags, env=env)
        assert code == 0, said
        (tmp_path / "trace.json").unlink()
    code, said = run(BINARY, "chat", "--url", url, "--cacert", authority.file,
                     "--model", MODEL_ID, "--max-tokens", 8, "Say hello.")
    assert code == 0 and said.strip()
    code, said = run(LOADTEST, "--url", url, "--cacert", authority.file,
                     "--model", MODEL_ID, "--streaming", "-n", 4,
                     "--output-tokens", 4, "--input-tokens", 8)
    assert code == 0, said
    code, said = run(LOADTEST, "--url", f"grpcs://localhost:{secure.grpc_port}",
                     "--cacert", authority.file, "--model", "mlp",
                     "--endpoint-type", "kserve-grpc", "-n", 4)
    assert code == 0, said


def test_clients_must_show_a_certificate(authority, files, tmp_path):
    import grpc
    import tritonclient.grpc as triton
    strangers = Authority(tmp_path / "strangers")
    with start(f"mlp={GRAPH}", "--ssl-cert-file", files[0], "--ssl-key-file",
               files[1], "--ssl-ca-certs", authority.file,
               "--ssl-cert-reqs", 2) as running:
        url = f"https://localhost:{running.http_port}"
        known, stranger = authority.sign("client"), strangers.sign("stranger")
        context = trust(authority)
        with pytest.raises((urllib.error.URLError, ssl.SSLError, OSError)):
            get(url, context)
        context.load_cert_chain(*stranger)
        with pytest.raises((urllib.error.URLError, ssl.SSLError, OSError)):
            get(url, context)
        context = trust(authority)
        context.load_cert_chain(*known)
        assert get(url, context) == 200

        def live(certificate=None):
            options = {}
            if certificate:
                options = {"certificate_chain": str(certificate[0]),
                           "private_key": str(certificate[1])}
            client = triton.InferenceServerClient(
                f"localhost:{running.grpc_port}", ssl=True,
                root_certificates=str(authority.file), **options)
            return client.is_server_live()
        assert live(known)
        for certificate in (None, stranger):
            with pytest.raises((triton.InferenceServerException,
                                grpc.RpcError)):
                live(certificate)
        code = subprocess.run(
            [BINARY, "health", "--url", url, "--cacert", authority.file,
             "--cert", known[0], "--key", known[1]], timeout=30).returncode
        assert code == 0


def test_reload_under_load(authority, tmp_path):
    """New connections get the new certificate, no request fails, and a file
    that is no certificate changes nothing."""
    first, second = authority.sign("first"), authority.sign("second")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    shutil.copy(first[0], certificate)
    shutil.copy(first[1], key)
    with start(f"mlp={GRAPH}", "--ssl-cert-file", certificate,
               "--ssl-key-file", key) as running:
        url = f"https://localhost:{running.http_port}"
        statuses, over = [], threading.Event()

        def ask():
            while not over.is_set():
                statuses.append(get(url, trust(authority)))
        asking = threading.Thread(target=ask)
        asking.start()
        try:
            old = serial(running.http_port, authority)
            assert serial(running.grpc_port, authority) == old
            with handshake(running.http_port, trust(authority)) as lasting:
                certificate.write_text("no certificate")
                running.wait_event("certificate kept")
                assert serial(running.http_port, authority) == old
                assert serial(running.grpc_port, authority) == old

                replace(key, second[1])
                replace(certificate, second[0])
                running.wait_event("certificate reloaded")
                fresh = serial(running.http_port, authority)
                assert fresh != old
                assert serial(running.grpc_port, authority) == fresh
                # The connection of before goes on with its own certificate.
                lasting.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                assert lasting.recv(100).startswith(b"HTTP/1.1 200")
        finally:
            over.set()
            asking.join()
        assert len(statuses) > 5 and set(statuses) == {200}


@pytest.mark.parametrize("flags, sentence", [
    (["--ssl-cert-file", "CERT"], "ssl_key_file"),
    (["--ssl-cert-file", "CERT", "--ssl-key-file", "OTHER"], "is not the key"),
    (["--ssl-cert-file", "KEY", "--ssl-key-file", "KEY"], "no usable"),
    (["--ssl-cert-file", "nowhere", "--ssl-key-file", "KEY"], "cannot be read"),
    (["--ssl-ca-file", "CA"], "no TLS without"),
])
def test_files_that_cannot_be_used_end_the_start(authority, files, flags,
                                                 sentence):
    names = {"CERT": files[0], "KEY": files[1], "CA": authority.file,
             "OTHER": authority.sign("other")[1]}
    done = subprocess.run(
        [BINARY, "serve", GRAPH, "--http-port", "0", "--grpc-port", "-1",
         *[str(names.get(flag, flag)) for flag in flags]],
        capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and sentence in done.stderr, done.stderr
