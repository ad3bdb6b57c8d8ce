"""Tokens of an identity provider instead of keys."""
import json
import time

import openai
import pytest
import tritonclient.grpc as triton
from certificates import replace
from conftest import REPO, start
from test_keys import ROUTES, call, create, until
from tokens import Signer, base64url

GRAPH = REPO / "tests/data/graph/mlp.onnx"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tokens")


@pytest.fixture(scope="module")
def signers(folder):
    return {name: Signer(folder, name, name.lower())
            for name in ("RS256", "ES256")}


def claims(**more):
    return {"iss": "https://id.example", "aud": ["other", "millrace"],
            "sub": "user-7", "exp": time.time() + 600, "scope": "openid infer",
            **more}


@pytest.fixture(scope="module")
def running(folder, signers):
    key, entry = create("--id", "key")
    (folder / "keys.yaml").write_text(
        "tenants: {graphs: {models: [mlp]}, narrow: {requests_per_second: "
        "0.01}}\nkeys:\n" + entry)
    (folder / "jwks.json").write_text(json.dumps(
        {"keys": [signer.public for signer in signers.values()]}))
    with start(f"mlp={GRAPH}", "--api-keys-file", folder / "keys.yaml",
               "--jwt-jwks-file", folder / "jwks.json", "--jwt-issuer",
               "https://id.example", "--jwt-audience", "millrace") as server:
        server.key = key
        yield server


def status(running, token, path="/v2/models/mlp"):
    return call(running, "GET", path, token)[0]


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_each_scope_at_each_route(running, signers, algorithm):
    for method, path, body, scopes in ROUTES:
        if scopes is None or (body and "model" in body) or "SmolLM" in path:
            continue
        for scope in ("infer", "manage", "metrics"):
            token = signers[algorithm].sign(claims(scope=scope))
            found, _, said = call(running, method, path, token, body)
            assert found == (200 if scope in scopes else 403), (path, said)
    assert status(running, running.key) == 200  # keys go on


def test_grpc_and_the_openai_client(running, signers):
    token = signers["ES256"].sign(claims())
    remote = triton.InferenceServerClient(f"127.0.0.1:{running.grpc_port}")
    headers = {"authorization": f"Bearer {token}"}
    assert remote.get_server_metadata(headers=headers)
    with pytest.raises(triton.InferenceServerException):
        remote.get_model_repository_index(headers=headers)
    client = openai.OpenAI(base_url=running.url + "/v1", api_key=token)
    assert client.models.list().data == []


def test_what_is_refused(running, signers, folder):
    good = signers["RS256"]
    now = time.time()
    wrong = {
        "expired": good.sign(claims(exp=now - 120)),
        "not hold yet": good.sign(claims(nbf=now + 120)),
        "(exp)": good.sign({k: v for k, v in claims().items() if k != "exp"}),
        "(iss)": good.sign(claims(iss="https://else")),
        "(aud)": good.sign(claims(aud="other")),
        "critical": good.sign(claims(), crit=["b64"]),
        "signed it": Signer(folder, "RS256", "stranger").sign(
            claims(), kid="rs256"),
        "neither": good.sign(claims(), alg="none"),
        "tenant": good.sign(claims(tenant="nobody")),
    }
    # The public key as the secret of an HMAC, and a token without signature.
    head, body, signature = good.sign(claims()).split(".")
    wrong["RS256 nor"] = good.sign(claims(), alg="HS256")
    wrong["no key"] = f"{head}.{body}."
    wrong["no key of"] = ".".join(
        (head, base64url(json.dumps(claims(scope="manage")).encode()),
         signature))
    wrong["base64url"] = f"{head}.{body}.{signature}="
    for words, token in wrong.items():
        found, headers, said = call(running, "GET", "/v2/models/mlp", token)
        assert found == 401 and words in said, (words, said)
        assert token not in said and headers["WWW-Authenticate"]
    assert all(token not in line for line in running.lines
               for token in wrong.values())


def test_a_token_names_its_tenant(running, signers):
    token = signers["RS256"].sign(claims(tenant="narrow"))
    infer = ("POST", "/v2/models/mlp/infer", token, next(
        body for _, path, body, _ in ROUTES if path.endswith("mlp/infer")))
    assert call(running, *infer)[0] == 200
    assert call(running, *infer)[0] == 429
    refused = json.loads(running.line('"tenant":"narrow"', '"status":429'))
    assert refused["key"] == "token:user-7"


def test_the_keys_of_tokens_are_watched(running, signers, folder):
    rotated = Signer(folder, "ES256", "rotated")
    token = rotated.sign(claims())
    assert status(running, token) == 401
    (folder / "next").write_text(json.dumps({"keys": [rotated.public]}))
    old = (folder / "jwks.json").read_text()
    replace(folder / "jwks.json", folder / "next")
    until(lambda: status(running, token) == 200)
    assert status(running, signers["RS256"].sign(claims())) == 401
    (folder / "next").write_text(old)
    replace(folder / "jwks.json", folder / "next")
    until(lambda: status(running, signers["RS256"].sign(claims())) == 200)
