"""The documents and the words of the code: links, width, the glossary, plain English."""

import ast
import re
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_DOCS = sorted((_ROOT / "docs").glob("*.md"))
_PAGES = [*(_ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *_DOCS]
_GLOSSARY = (_ROOT / "docs" / "glossary.md").read_text()
# Pages of the site that only include another file, or that the site generates.
_OF_THE_SITE = {"index.md", "api.md", "changelog.md", "contributing.md"}
_WIDTH = 120
_PACKAGES = ("countledger", "ledger", "producers", "consumers", "compaction", "infra")
_MODULES = sorted(
    path
    for package in _PACKAGES
    for path in (_ROOT / package).rglob("*.py")
    # countledger/ has links to the other packages.
    if path == path.resolve()
)

# Words with a plain counterpart, and the counterpart.
_DISCOURAGED = {
    r"anew": "again",
    r"dear(er|est)?": "expensive",
    r"poison(ed|s|ous)?": "malformed",
    r"spoilt|spoiled": "corrupt",
    r"whoever": "the name of the actor",
    r"wherever": "where",
    r"all told": "in total",
    r"(make|makes|made|making) good": "corrected",
    r"in vain": "without success",
    r"doors?": "client",
    r"(?<!of )courses?": "steps",
    r"judge[ds]?|judging": "evaluate",
    r"tells?|told|telling": "say, report, publish",
    r"reckon(s|ed|ing)?": "compute",
    r"in force": "effective",
    r"takes? effect": "is effective from",
    r"needs? a person": "action required",
    r"left alone": "skipped",
    r"sets? aside|setting aside": "quarantine",
    r"asks? for|asked for": "requires, names",
    r"by the way": "nothing",
    r"lies": "is",
    r"stands?(?! for)|stood(?! for)": "is",
    r"wish(es|ed)?": "spec",
    r"rooms?": "headroom, or package",
    r"mend(s|ed|ing)?": "correct",
    r"giv(e|es|en|ing) up|gave up": "withdraw",
    r"desks?": "service",
    r"makings?": "incarnation",
    r"nobody can (know|tell)": "the outcome is unknown",
    r"hands? out|handed out": "return",
}
_PATTERNS = {
    re.compile(rf"(?<![\w-])(?:{words})(?![\w-])", re.IGNORECASE): plain
    for words, plain in _DISCOURAGED.items()
}
# How many of them a package, or a page, may still hold. Lower a number when it falls.
_ALLOWED: dict[str, int] = {}
# Class names that more than one module defines. None may be added.
_SHARED_NAMES: set[str] = set()


def _name(path: Path) -> str:
    return path.relative_to(_ROOT).as_posix()


def _prose(page: Path) -> str:
    """The text of a page without its blocks of code, and without tables that are generated."""
    text = re.sub(r"<!-- (\w+): written by.*?<!-- end of \1", "", page.read_text(), flags=re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def _texts(module: Path) -> Iterator[str]:
    """The comments and string literals of a module, docstrings among them."""
    with tokenize.open(module) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.string
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"`[^`\n]*`", "", node.value)


def _discouraged(path: Path) -> Counter[str]:
    text = _prose(path) if path.suffix == ".md" else "\n".join(_texts(path))
    text = re.sub(r"\s+", " ", text)
    return Counter(
        f"{found[0].lower()}: {plain}"
        for pattern, plain in _PATTERNS.items()
        for found in pattern.finditer(text)
    )


@pytest.mark.parametrize("page", _PAGES, ids=_name)
def test_every_link_to_a_file_has_an_end(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())

    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", _PAGES, ids=_name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    folders = (
        r"(?:tests|tools|docs|ledger|producers|consumers|compaction|infra|unit|engines|faults)"
    )
    named = re.findall(rf"`({folders}/[\w/.-]+\.(?:py|toml|yaml|json))`", text)

    assert [
        name for name in named if not ((_ROOT / name).exists() or (_ROOT / "tests" / name).exists())
    ] == []


@pytest.mark.parametrize("page", _PAGES, ids=_name)
def test_lines_fit_a_screen(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    wide = [
        line
        for line in prose.splitlines()
        if len(line) > _WIDTH and not line.startswith(("|", "    "))
    ]

    assert wide == []


@pytest.mark.parametrize("page", _PAGES, ids=_name)
def test_the_words_of_a_page_are_plain(page: Path) -> None:
    found = _discouraged(page)

    assert sum(found.values()) <= _ALLOWED.get(_name(page), 0), dict(found)


@pytest.mark.parametrize("package", _PACKAGES)
def test_the_words_of_the_code_are_plain(package: str) -> None:
    found = {
        _name(module): dict(words)
        for module in _MODULES
        if _name(module).split("/")[0] == package and (words := _discouraged(module))
    }
    count = sum(sum(words.values()) for words in found.values())

    assert count <= _ALLOWED.get(package, 0), found


def test_class_names_are_unique() -> None:
    """One word for each idea: a name that two modules define means two things."""
    names = Counter(
        node.name
        for module in _MODULES
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.ClassDef)
    )

    assert {name for name, count in names.items() if count > 1} <= _SHARED_NAMES


def _terms() -> list[str]:
    return re.findall(r"^- \*\*([^*]+)\*\*:", _GLOSSARY, re.MULTILINE)


def test_every_term_is_defined_once() -> None:
    items = re.findall(r"^- ", _GLOSSARY, re.MULTILINE)
    terms = Counter(word.strip() for term in _terms() for word in term.split(","))

    assert len(items) == len(_terms()) > 50
    assert [term for term, count in terms.items() if count > 1] == []


def test_every_term_is_used() -> None:
    """By a page beside the glossary: a word that nobody uses needs no definition."""
    text = re.sub(
        r"\s+", " ", " ".join(page.read_text() for page in _PAGES if page.name != "glossary.md")
    )
    words = [word for term in _terms() for word in term.split(", ")]

    assert [w for w in words if not re.search(rf"\b{re.escape(w)}", text, re.IGNORECASE)] == []


def test_every_guide_is_found_from_the_first_page() -> None:
    readme = (_ROOT / "README.md").read_text()

    assert [
        page.name
        for page in _DOCS
        if page.name not in _OF_THE_SITE and f"(docs/{page.name})" not in readme
    ] == []


def test_the_first_page_is_short() -> None:
    assert (_ROOT / "README.md").read_text().count("\n") < 150


def test_an_entry_of_the_changelog_is_short() -> None:
    """It says what a release has. The commits say what changed, and the guides say the rest."""
    entries = (_ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]
    version = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert entries[0].startswith(f"{version} ")
    assert [one.splitlines()[0] for one in entries if len(one.splitlines()) > 60] == []
