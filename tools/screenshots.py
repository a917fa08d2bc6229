"""Screenshots of the chat page for the docs: `python tools/screenshots.py FOLDER`, offline and without keys.

Needs `pip install playwright` and a Chromium: the one that `playwright install chromium` brings, or the one that `CHROMIUM` names.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

SERVE = Path(__file__).resolve().parent.parent / "examples" / "chat_service" / "serve.py"
SIZES = {"desktop": (1280, 820), "phone": (390, 844)}
QUESTIONS = {"en": "How many days do I have to return an order for a refund?", "zh": "电池可以带上飞机吗？"}


@contextmanager
def serving() -> Iterator[str]:
    """The address of a fresh service, tokens included."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
        command = [sys.executable, str(SERVE), "--folder", folder]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield next(found[0] for line in process.stdout or () if (found := re.search(r"http://127\S+", line)))
            finally:
                process.terminate()


def shoot(page: Page, address: str, folder: Path, name: str) -> None:
    """The pictures of one size, language and theme: before, after an answer, with a source, the timeline and the documents beside it."""

    def picture(what: str) -> None:
        page.wait_for_timeout(150)  # the panel has been painted
        page.screenshot(path=folder / f"{name}-{what}.png")

    page.goto(address)
    page.locator(".example").first.wait_for()
    picture("welcome")
    page.locator("#question").fill(QUESTIONS["zh" if "-zh" in name else "en"])
    page.locator("#question").press("Enter")
    page.locator(".cite").first.wait_for()
    picture("answer")
    for what, opener in {"source": ".text .cite >> nth=-1", "timeline": ".badge", "documents": "#documents"}.items():
        page.locator(opener).click()
        if what == "documents":
            page.locator(".documents li").first.wait_for()
        picture(what)
        page.locator("#close").click()


def main() -> None:
    """Makes all pictures."""
    parser = argparse.ArgumentParser(
        description="Screenshots of the chat page, on a desktop and a phone, light and dark, in English and Chinese."
    )
    parser.add_argument("folder", type=Path, help="where to; made if it is missing")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with serving() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM"), args=["--no-sandbox"])
        for size, (width, height) in SIZES.items():
            for language, theme in (("en", "light"), ("en", "dark"), ("zh", "light")):
                context = browser.new_context(
                    viewport={"width": width, "height": height},
                    device_scale_factor=2 if size == "phone" else 1,
                    color_scheme="dark" if theme == "dark" else "light",
                    locale="zh-CN" if language == "zh" else "en-GB",
                )
                shoot(context.new_page(), address, folder, f"{size}-{theme}{'-zh' if language == 'zh' else ''}")
                context.close()
        browser.close()
    print(f"{len(list(folder.glob('*.png')))} pictures in {folder}")


if __name__ == "__main__":
    main()
