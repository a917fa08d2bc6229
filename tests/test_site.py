"""The site of the documents builds without a warning, and its pages bring all that they need."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).resolve().parent.parent
ASSET = re.compile(
    r'<(?:script|img|iframe|source)\b[^>]*?\bsrc="([^"]+)"|<link\b(?=[^>]*\brel="(?:stylesheet|preconnect|icon))[^>]*?\bhref="([^"]+)"'
)
LINK = re.compile(r'<a\b[^>]*?\bhref="([^"]+)"')

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)
    assert result.returncode == 0, result.stderr + result.stdout
    return folder


def pages(site: Path) -> list[Path]:
    found = sorted(page for page in site.rglob("*.html") if page.name != "404.html")
    assert len(found) > 40
    return found


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in pages(site):
        text = page.read_text(encoding="utf-8")
        assets = [one or other for one, other in ASSET.findall(text)]
        assert len(assets) > 4
        for asset in assets:
            assert (page.parent / asset.partition("?")[0]).is_file(), (page.name, asset)
        assert 'class="mermaid"' not in text, "the theme would fetch Mermaid from a server of somebody else's"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//|@import", sheet.read_text(encoding="utf-8"))


def test_a_link_within_the_site_leads_to_a_page_and_a_place_in_it(site: Path) -> None:
    for page in pages(site):
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            path, anchor = urldefrag(unquote(link))
            if re.match(r"[a-z]+:", path):
                continue
            there = (page.parent / path).resolve() if path else page
            assert there.is_file(), (page.name, link)
            assert not anchor or re.search(rf"\bid=\"?{re.escape(anchor)}[\s\">]", there.read_text(encoding="utf-8")), (page.name, link)


def test_the_reference_shows_what_the_docstrings_say(site: Path) -> None:
    text = (site / "api" / "middleware.html").read_text(encoding="utf-8")

    assert "Grounds every answer of an agent in one tenant" in text
    assert 'id="crag_middleware.CRAGMiddleware"' in text


def test_a_file_outside_of_the_documents_has_a_page_of_its_own(site: Path) -> None:
    assert "class Exact" in re.sub(r"<[^>]+>", "", (site / "evaluators.html").read_text(encoding="utf-8"))
    assert "source/examples/own_parts.py.html" in (site / "evaluators.html").read_text(encoding="utf-8")
    assert (site / "source" / "examples" / "own_parts.py.html").is_file()
