"""The console in headless Chromium: chat, live page, models, keyboard, themes
and a phone's width. Skipped where playwright (PyPI) or chromium (apt) is missing:
both are too heavy for the gate.

CONSOLE_PICTURES=FOLDER keeps screenshots there."""
import json
import os
import pathlib
import re
import shutil

import pytest

from conftest import MODEL, MODEL_ID, REPO, start

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="chromium is missing")
expect = playwright.expect
GRAPHS = REPO / "tests" / "data" / "graph"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A server of a repository with a language model and a graph, in mode
    explicit, where the graph is not loaded."""
    root = tmp_path_factory.mktemp("repository")
    (root / "chat" / "1").mkdir(parents=True)
    (root / "mlp" / "1").mkdir(parents=True)
    (root / "chat" / "1" / "model.gguf").symlink_to(MODEL)
    shutil.copy(GRAPHS / "mlp.onnx", root / "mlp" / "1" / "model.onnx")
    with start("--model-repository", root, "--model-control-mode", "explicit",
               "--load-model", "chat") as server:
        yield server


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM,
                                         args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def page(browser, repository, request):
    """A page whose errors and refused resources fail the test."""
    options = getattr(request, "param", {})
    context = browser.new_context(**{"viewport": {"width": 1100,
                                                  "height": 800}, **options})
    opened = context.new_page()
    wrong = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda line: wrong.append(line.text)
              if line.type == "error" and "400" not in line.text else None)
    opened.goto(repository.url + "/console")
    yield opened
    context.close()
    assert not wrong


def picture(page, name):
    if folder := os.environ.get("CONSOLE_PICTURES"):
        page.screenshot(path=pathlib.Path(folder) / f"{name}.png")


def ask(page, text, tokens=48):
    page.get_by_text("Settings").click()
    page.get_by_label("Output tokens at most").fill(str(tokens))
    page.get_by_label("Temperature").fill("0")
    page.get_by_text("Settings").click()
    page.locator("#prompt").fill(text)
    page.keyboard.press("Enter")


def test_a_chat_streams_is_regenerated_and_stopped(page):
    expect(page.locator("#model")).to_have_value("chat")
    ask(page, "Name three colours as a list.")
    answer = page.locator(".message.assistant")
    expect(answer.locator(".facts")).to_contain_text("tokens/s",
                                                     timeout=30_000)
    first = answer.locator("div").first.inner_text()
    assert first
    picture(page, "chat")
    page.get_by_role("button", name="Regenerate").click()
    expect(answer).to_have_count(1)
    expect(answer.locator(".facts")).to_contain_text("tokens/s",
                                                     timeout=30_000)
    assert answer.locator("div").first.inner_text() == first

    ask(page, "Write a long story.", 2000)
    story = answer.nth(1)
    expect(story.locator("p").first).to_be_visible(timeout=30_000)
    page.keyboard.press("Escape")
    expect(story.locator(".facts")).to_contain_text("stopped")
    expect(page.get_by_role("button", name="Send")).to_be_visible()


def answers(page, *contents):
    """Answers completions with these in turn, None with an error. Returns the
    messages of each request, as they come."""
    asked = []

    def answer(route):
        asked.append(route.request.post_data_json["messages"])
        content = contents[len(asked) - 1]
        if content is None:
            route.fulfill(status=400, json={"error": {"message": "too long"}})
            return
        event = json.dumps({"choices": [{"delta": {"content": content}}]})
        route.fulfill(content_type="text/event-stream",
                      body=f"data: {event}\n\ndata: [DONE]\n\n")

    page.route("**/v1/chat/completions", answer)
    return asked


def test_a_question_that_failed_is_not_sent_again(page):
    asked = answers(page, None, None, "fine")
    ask(page, "a long text")
    expect(page.locator(".facts.bad")).to_have_text("too long")
    page.get_by_role("button", name="Regenerate").click()
    expect(page.locator(".facts.bad")).to_have_text("too long")
    ask(page, "hi")
    expect(page.locator(".message.assistant").nth(1)).to_contain_text("fine")
    long, short = ({"role": "user", "content": text}
                   for text in ("a long text", "hi"))
    assert asked == [[long], [long], [short]]


def test_quotes_without_end_do_not_lock_the_chat(page):
    answers(page, ">" * 8000 + "deep", "- a\n" + "\n".join(
        " " * i + "- b" for i in range(1, 3000)), "fine")
    ask(page, "Quote!")
    answer = page.locator(".message.assistant")
    expect(answer.first).to_contain_text("deep")
    expect(answer.first.locator("blockquote")).to_have_count(20)
    ask(page, "List!")
    expect(answer.nth(1).locator("li")).to_have_count(3000)
    ask(page, "And now?")
    expect(answer.nth(2)).to_contain_text("fine")
    expect(page.get_by_role("button", name="Send")).to_be_visible()


def test_markdown_becomes_elements_and_never_html(page):
    shown = page.evaluate("""async () => {
      const {markdown} = await import("/console/markdown.js");
      const box = document.createElement("div");
      box.append(...markdown([
        "# Title", "A **bold** and *italic* `code` line", "",
        "- one", "  - inner", "- two", "", "3. three", "4. four", "",
        "| a | b |", "|---|---|", "| 1 | **2** |", "",
        "> quoted", "", "```c++", "int x = 1 < 2;", "```",
        "<img src=x onerror=alert(1)>", "[good](https://example.org)",
        "[bad](javascript:alert(1))"].join("\\n")));
      return box.innerHTML;
    }""")
    for part in ["<h3>Title</h3>", "<strong>bold</strong>", "<em>italic</em>",
                 "<code>code</code>",
                 "<ul><li>one<ul><li>inner</li></ul></li><li>two</li></ul>",
                 '<ol start="3"><li>three</li><li>four</li></ol>',
                 "<td>1</td><td><strong>2</strong></td>",
                 "<blockquote><p>quoted</p></blockquote>",
                 "<pre><code>int x = 1 &lt; 2;</code></pre>",
                 "&lt;img src=x onerror=alert(1)&gt;",
                 'href="https://example.org"']:
        assert part in shown, part
    assert "<img" not in shown and 'href="javascript' not in shown


def test_the_live_page_shows_requests_pages_and_cores(page):
    ask(page, "Count to ten.")
    expect(page.locator(".facts")).to_contain_text("tokens/s", timeout=30_000)
    page.get_by_role("link", name="Live").click()
    expect(page.locator("#cards .card")).to_have_count(10)
    expect(page.locator("#pages")).to_contain_text(re.compile(r"\d+ used"))
    names = page.locator("#histograms .name")
    expect(names.first).to_have_text("Time to the first token")
    expect(page.locator("#histograms rect.mark").first).to_be_attached()
    expect(page.locator("#cores .core.taken").first).to_contain_text("chat")
    page.wait_for_timeout(2500)
    picture(page, "live")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#pause")).to_have_attribute("aria-pressed", "true")


def test_models_are_loaded_and_unloaded(page):
    page.get_by_role("link", name="Models").click()
    row = page.locator("#repository tr", has_text="mlp")
    page.get_by_role("button", name="Load mlp").click()
    expect(row).to_contain_text("READY")
    picture(page, "models")
    page.get_by_role("button", name="Unload mlp").click()
    expect(row).to_contain_text("UNAVAILABLE")
    expect(page.locator("#models-note")).to_have_text("mlp: unloaded")


def refuse(page, path):
    page.route(path, lambda route: route.fulfill(
        status=400, json={"error": {"message": "not now"}}))


def test_notes_of_failures_go_when_figures_come(page):
    refuse(page, "**/metrics")
    page.get_by_role("link", name="Live").click()
    note = page.locator("#live-missed")
    expect(note).to_have_text("not now")
    # That of a capture stays.
    page.route("**/debug/trace?*", lambda route: route.fulfill(
        status=400, json={"error": {"message": "one is under way"}}))
    page.get_by_role("button", name="Capture").click()
    expect(page.locator("#live-note")).to_have_text("one is under way")
    expect(note).to_have_text("not now")
    page.unroute("**/metrics")
    expect(note).to_have_text("")
    expect(page.locator("#live-note")).to_have_text("one is under way")

    refuse(page, "**/v2/repository/index")
    page.get_by_role("link", name="Models").click()
    note = page.locator("#models-note")
    expect(note).to_have_text("not now")
    page.unroute("**/v2/repository/index")
    page.get_by_role("button", name="Key").click()
    page.get_by_role("button", name="Use it").click()
    expect(page.locator("#repository tr").first).to_be_visible()
    expect(note).to_have_text("")


def test_models_are_listed_again_when_the_server_is_ready(page):
    page.route("**/health", lambda route: route.fulfill(
        status=400, json={"status": "loading"}))
    page.route("**/v1/models", lambda route: route.fulfill(json={"data": []}))
    page.reload()
    expect(page.locator("#state")).to_have_text("loading")
    expect(page.locator("#model")).to_contain_text("no language model")
    page.unroute("**/v1/models")
    page.unroute("**/health")
    expect(page.locator("#state")).to_have_text("ready")
    expect(page.locator("#model")).to_have_value("chat")


def test_the_skip_link_stays_on_its_page(page):
    page.get_by_role("link", name="Live").click()
    page.get_by_role("link", name="Skip to the content").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    expect(page.locator("#live-page")).to_be_visible()
    page.evaluate("location.hash = '#toString'")
    page.wait_for_timeout(200)
    expect(page.locator("#live-page")).to_be_visible()
    expect(page.locator("#chat-page")).to_be_hidden()
    page.goto(page.url.split("#")[0] + "#toString")
    page.reload()
    expect(page.locator("#chat-page")).to_be_visible()


def test_the_keyboard_alone_is_enough(page):
    page.locator("body").press("Tab")
    seen = []
    page.evaluate("document.activeElement.blur()")
    for _ in range(14):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(
            "document.activeElement.id || document.activeElement.textContent"))
    for wanted in ["Chat", "Live", "Models", "key-button", "theme", "model",
                   "prompt", "send"]:
        assert wanted in seen, (wanted, seen)
    page.get_by_role("link", name="Live").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#live-page")).to_be_visible()
    expect(page.get_by_role("link", name="Live")).to_have_attribute(
        "aria-current", "page")


@pytest.mark.parametrize("page", [{"color_scheme": "dark"}], indirect=True)
def test_dark_follows_the_system_and_the_choice(page):
    colour = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(colour) == "rgb(20, 24, 28)"
    picture(page, "dark")
    page.locator("#theme").select_option("light")
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    page.reload()
    assert page.evaluate(colour) == "rgb(255, 255, 255)"


@pytest.mark.parametrize("page", [
    {"viewport": {"width": 360, "height": 700}, "has_touch": True}],
    indirect=True)
def test_a_phone_needs_no_sideways_scrolling(page):
    ask(page, "Hello!", 16)
    expect(page.locator(".facts")).to_contain_text("tokens/s", timeout=30_000)
    wide = "document.documentElement.scrollWidth > innerWidth"
    for name in ["Chat", "Live", "Models"]:
        page.get_by_role("link", name=name, exact=True).click()
        page.wait_for_timeout(1200)
        assert not page.evaluate(wide), name
        picture(page, f"phone-{name.lower()}")
    page.get_by_role("link", name="Chat", exact=True).click()
    send = page.get_by_role("button", name="Send").bounding_box()
    assert send["y"] + send["height"] <= 700
