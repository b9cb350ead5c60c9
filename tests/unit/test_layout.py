"""The rules of the layout, checked by reading the repository itself."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("ledger", "producers", "consumers", "compaction", "infra")
# A module is one noun of the glossary, as long as its subject.
_MODULE_MAX_LINES = 800
_FUNCTION_MAX_LINES = 70
# The demo shows the product; it must not become one.
_DEMO_MAX_LINES = 700
_LEVELS_MAX = 7
_VAGUE = {"util", "utils", "common", "helper", "helpers", "misc", "base", "shared"}
# Where boto3 and botocore may be imported. All else works on values, or through these.
_SDK_FILES = {
    "countledger/telemetry.py",
    "countledger/aio.py",  # the type of a session that apps may hand in
    "countledger/client.py",  # the same
    "compaction/schedule.py",  # the errors of EventBridge Scheduler
    "ledger/attributes.py",
    "ledger/connection.py",
    # what a session holds, for a fork
    "ledger/service_errors.py",
    "ledger/transport/client.py",
    "ledger/transport/http.py",
    # the type of credentials of one moment
    "infra/memory/stack.py",  # the modelled errors of schedules
    "infra/memory/stream.py",  # the modelled errors of the streams API
    "infra/local/stack.py",
    "infra/local/pump.py",
}


def _files() -> list[Path]:
    """The repository's files: known to git or about to be; without links, so each once."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=_ROOT,
        check=True,
        capture_output=True,
    ).stdout.decode()
    paths = [_ROOT / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


_FILES = _files()
_PYTHON = [path for path in _FILES if path.suffix == ".py"]
_OURS = [p for p in _PYTHON if p.relative_to(_ROOT).parts[0] in (*_PACKAGES, "countledger")]


def _name(path: Path) -> str:
    return path.relative_to(_ROOT).as_posix()


@dataclass(frozen=True)
class Read:
    """What the tests ask of a file, so that each is parsed once.

    Attributes:
        imports: the names of modules, and how many levels up they begin.
        at_first: what it imports when it is imported itself: not for types, not at first use.
        docstring: what it says it is.
        functions: how many lines each takes.
    """

    imports: tuple[tuple[str, int], ...]
    at_first: frozenset[str]
    docstring: str | None
    functions: tuple[tuple[str, int], ...]


@cache
def _read(path: Path) -> Read:
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree))
    return Read(
        tuple(one for node in nodes for one in _imports(node)),
        frozenset(
            name
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        ),
        ast.get_docstring(tree),
        tuple(
            (node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
    )


def _imports(node: ast.AST) -> Iterator[tuple[str, int]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, 0) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield node.module or "", node.level


def test_imports_run_one_way() -> None:
    """The contract of pyproject.toml: infra, then the three packages side by side, then ledger."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=_ROOT,
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout
    assert " kept, 0 broken" in done.stdout


@pytest.mark.parametrize("folder", sorted({path.parent for path in _OURS}), ids=_name)
def test_no_package_is_deeper_than_seven_levels(folder: Path) -> None:
    """A module's level is one above the highest module of its own package that it imports."""
    package = ".".join(("countledger", *folder.relative_to(_ROOT).parts))
    imports = {
        path.stem: {name.removeprefix(f"{package}.") for name in _read(path).at_first}
        for path in folder.glob("*.py")
    }

    def level(module: str) -> int:
        return 1 + max((level(below) for below in imports[module] if below in imports), default=0)

    assert {module for module in imports if level(module) > _LEVELS_MAX} == set()


def test_packages_are_imported_as_parts_of_countledger() -> None:
    found = {
        _name(path): module
        for path in _PYTHON
        for module, level in _read(path).imports
        if level or module.split(".")[0] in _PACKAGES
    }

    assert found == {}


def test_the_sdk_is_imported_in_few_files() -> None:
    found = {
        _name(path)
        for path in _OURS
        for module, _ in _read(path).imports
        if module.split(".")[0] in ("boto3", "botocore")
    }

    assert found == _SDK_FILES


def test_a_module_is_one_noun() -> None:
    lines = {path: path.read_text().count("\n") for path in _PYTHON}

    assert {_name(path): n for path, n in lines.items() if n > _MODULE_MAX_LINES} == {}


def test_the_demo_stays_small() -> None:
    places = ("infra/demo/*.py", "infra/cli/demo*.py")
    lines = [path.read_text().count("\n") for place in places for path in _ROOT.glob(place)]

    assert sum(lines) <= _DEMO_MAX_LINES


def test_a_function_fits_a_screen() -> None:
    """Signature and docstring included."""
    long = {
        (_name(path), name)
        for path in _PYTHON
        for name, lines in _read(path).functions
        if lines > _FUNCTION_MAX_LINES
    }

    assert long == set()


def test_no_module_has_a_vague_name() -> None:
    assert [_name(path) for path in _PYTHON if path.stem.strip("_") in _VAGUE] == []


def test_every_module_says_what_it_is() -> None:
    """In its first lines; `__main__` is its own explanation."""
    silent = [
        _name(path)
        for path in _PYTHON
        if path.read_text().strip() and path.name != "__main__.py" and not _read(path).docstring
    ]

    assert silent == []


def test_no_text_names_a_place_on_somebodys_machine() -> None:
    homes = r"(?<![\w.])/(?:home|Users|root|work)/\w"
    places = re.compile(homes + "|" + re.escape(str(_ROOT)))
    found = []
    for path in _FILES:
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{_name(path)}: {match[0]}" for match in places.finditer(text)]

    assert found == []


def test_no_merge_conflict_is_left() -> None:
    markers = ("<" * 7, "|" * 7, ">" * 7)
    lines = (
        f"{_name(path)}: {line}"
        for path in _FILES
        for line in path.read_bytes().decode(errors="replace").splitlines()
        if line.startswith(markers)
    )

    assert list(lines) == []


def test_no_placeholder_is_left() -> None:
    marks = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X{3}|HA" + r"CK)\b")
    found = [_name(path) for path in _PYTHON if marks.search(path.read_text())]

    assert found == []
