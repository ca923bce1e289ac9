"""The chat page, driven by a real browser: type, stream, stop, settings, errors."""

import shutil

import pytest
from playwright.sync_api import Page, expect, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's package chromium"),
]


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser, server):
    """The page, and what it asked of anything but the server, or complained of."""
    page = browser.new_page()
    page.strangers, page.complaints = [], []
    page.on(
        "request",
        lambda request: request.url.startswith(server.url) or page.strangers.append(request.url),
    )
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(server.url)
    yield page
    assert page.strangers == [] and page.complaints == []
    page.close()


def ask(page: Page, text: str) -> None:
    page.get_by_placeholder("Ask something").fill(text)
    page.get_by_role("button", name="Send").click()


def set_up(page: Page, **settings: str) -> None:
    page.get_by_text("Settings", exact=True).click()
    for name, value in settings.items():
        page.locator(f"#{name}").fill(value)


def test_an_answer_is_streamed(page, server):
    expect(page.locator("#model")).to_have_text(server.get("/v1/models").json()["data"][0]["id"])
    set_up(page, temperature="0", max_tokens="20", system="Be brief.")
    ask(page, "Hello there")
    expect(page.locator(".user")).to_have_text("Hello there")
    expect(page.locator(".facts")).to_contain_text("tokens, first after")
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello there"},
    ]
    body = {"messages": messages, "temperature": 0, "max_tokens": 20}
    whole = server.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]
    assert page.locator(".assistant").text_content() == whole
    # The next question comes with what was said.
    ask(page, "And then?")
    expect(page.locator(".facts")).to_have_count(2)
    page.get_by_role("button", name="New chat").click()
    expect(page.locator(".message")).to_have_count(0)


def test_what_a_model_says_is_text(page):
    """No answer becomes part of the page."""
    ask(page, "<img src=x onerror=alert(1)>")
    expect(page.locator(".user")).to_have_text("<img src=x onerror=alert(1)>")
    assert page.locator("main img").count() == 0


def test_stop(page, server):
    page.route("**/v1/chat/completions", lambda route: None)  # an answer that takes for ever
    ask(page, "Hello")
    expect(page.get_by_role("button", name="Send")).to_be_hidden()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".facts")).to_have_text("stopped")
    page.unroute("**/v1/chat/completions")
    set_up(page, max_tokens="5")
    ask(page, "Again")
    expect(page.locator(".facts")).to_have_count(2)
    server.wait_until_idle()


def test_errors_are_shown(page):
    set_up(page, max_tokens="20")
    ask(page, "x" * 5000)  # more than the context
    expect(page.locator(".error")).to_contain_text("the context holds")
    ask(page, "Hello")  # the page goes on
    expect(page.locator(".facts")).to_have_count(1)


def test_keys(browser, serve, chat_bundle, tmp_path):
    with serve(chat_bundle, "--api-key", "secret") as server:
        page = browser.new_page()
        page.goto(server.url)
        expect(page.locator("#model")).to_contain_text("needs an API key")
        ask(page, "Hello")
        expect(page.locator(".error")).to_contain_text("API key")
        set_up(page, key="secret", max_tokens="5")
        page.locator("#key").blur()
        expect(page.locator("#model")).not_to_contain_text("needs")
        ask(page, "Hello")
        expect(page.locator(".facts")).to_have_count(1)
        page.close()
