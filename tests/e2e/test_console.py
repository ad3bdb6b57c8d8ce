"""The console: its files, their headers, and the routes that it calls. What a
browser makes of them: test_console_browser.py."""
import json
import re
import urllib.error
import urllib.request

import pytest

from conftest import MODEL_ID, REPO, start

FOLDER = REPO / "server" / "console"
FILES = {"index.html": "text/html", "style.css": "text/css",
         **{path.name: "text/javascript" for path in FOLDER.glob("*.js")}}


def get(server, path, **headers):
    with urllib.request.urlopen(
            urllib.request.Request(server.url + path, headers=headers),
            timeout=30) as answer:
        return answer.headers, answer.read().decode()


def test_the_page_and_its_files_are_in_the_binary(server):
    headers, page = get(server, "/console")
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    for name, kind in FILES.items():
        headers, text = get(server, f"/console/{name}")
        assert headers["Content-Type"] == f"{kind}; charset=utf-8"
        assert text == (FOLDER / name).read_text(), name
        assert text == page or name != "index.html"
    with pytest.raises(urllib.error.HTTPError) as missing:
        get(server, "/console/../README.md")
    assert missing.value.code == 404


def test_nothing_comes_from_elsewhere_and_the_headers_forbid_it(server):
    headers, page = get(server, "/console")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy
    assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    for name in FILES:
        text = (FOLDER / name).read_text()
        outside = re.findall(r"(?:src|href|url|from|import)\s*[=(]?\s*"
                             r"[\"'](?:https?:)?//[^\"']+", text)
        assert not outside, name
    # The policy allows no inline script, style or handler.
    assert not re.search(r"<script>|<style>|\son\w+=|\sstyle=", page)
    for name in re.findall(r'(?:src|href)="/console/([^"]+)"', page):
        assert name in FILES


def test_every_module_and_element_that_scripts_name_is_there():
    ids = set(re.findall(r'id="([^"]+)"', (FOLDER / "index.html").read_text()))
    for name in FILES:
        text = (FOLDER / name).read_text()
        for module in re.findall(r'from "/console/([^"]+)"', text):
            assert module in FILES, name
        for element in re.findall(r'byId\("([^"]+)"\)', text):
            assert element in ids, f"{name}: {element}"


def test_every_metric_that_the_live_page_reads_is_exported(server):
    request = urllib.request.Request(
        server.url + "/v1/completions",
        json.dumps({"prompt": "Once", "max_tokens": 4}).encode(),
        {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=60).read()
    _, text = get(server, "/metrics")
    # No graph is loaded by this server.
    graphs = {"millrace_inference_requests_total",
              "millrace_compute_time_seconds"}
    for name in set(re.findall(r'"((?:millrace|process)_\w+)"',
                               (FOLDER / "live.js").read_text())) - graphs:
        assert re.search(rf"^# TYPE {re.sub('_(sum|count)$', '', name)} ",
                         text, re.M), name


def test_cores_tell_who_computes_on_them(server):
    _, body = get(server, "/debug/cores")
    cores = json.loads(body)["cores"]
    assert cores and all(core["cpus"] for core in cores)
    assert any(MODEL_ID in core["models"] for core in cores)


def test_the_page_needs_no_key_but_what_it_shows_does():
    with start("--api-key", "secret") as server:
        get(server, "/console")
        get(server, "/console/main.js")
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(server, "/debug/cores")
        assert refused.value.code == 401
        get(server, "/debug/cores", Authorization="Bearer secret")


def test_the_front_page_links_to_it(server):
    _, page = get(server, "/", Accept="text/html")
    assert '<a href="/console">' in page
    _, text = get(server, "/", Accept="text/plain")
    assert "GET /console" in text
