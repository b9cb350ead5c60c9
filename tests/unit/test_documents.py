"""The documents: every link has an end, and pages keep to the width of a screen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_PAGES = [_ROOT / "README.md", _ROOT / "CONTRIBUTING.md", *sorted((_ROOT / "docs").glob("*.md"))]
_WIDTH = 120


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_has_an_end(page: Path) -> None:
    """Relative to the page that it is on."""
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())

    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_lines_fit_a_screen(page: Path) -> None:
    """Tables and commands may be wider."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    wide = [
        line
        for line in prose.splitlines()
        if len(line) > _WIDTH and not line.startswith(("|", "    "))
    ]

    assert wide == []


def test_every_guide_is_found_from_the_first_page() -> None:
    """Directly."""
    readme = (_ROOT / "README.md").read_text()

    assert [
        page.name for page in _PAGES if page.parent.name == "docs" and page.name not in readme
    ] == []


def test_the_first_page_is_short() -> None:
    """A stranger reads it to the end."""
    assert (_ROOT / "README.md").read_text().count("\n") < 150
