"""Settings of the documentation site, for Sphinx: `make docs-site` builds it, offline and strict.

Every warning fails the build: a link without a target, a page that no list of pages names, a
public name without a docstring, a file that the site would load from another address.
"""

from __future__ import annotations

import ast
import re
from enum import Enum
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from sphinx.errors import ExtensionError
from sphinx.util import logging

import countledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

_LOG = logging.getLogger(__name__)
_ROOT = Path(__file__).resolve().parents[1]
_API_PAGE = "api"
_DOCUMENTED = ("class", "exception", "function", "method", "property", "module")
_INLINE_CODE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
_LOADED = re.compile(
    r"""<(?:script|img|iframe)[^>]+src=["'](?:https?:)?//"""
    r"""|<link[^>]+rel=["'](?:stylesheet|preload|preconnect|icon)["'][^>]+href=["'](?:https?:)?//"""
    r"""|url\(\s*["']?(?:https?:)?//|@import\s+["'](?:https?:)?//"""
)

project = "countledger"
author = "The countledger maintainers"
project_copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_static"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "countledger"
html_copy_source = False
html_show_sphinx = False
autodoc_default_options = {"members": True, "member-order": "bysource", "undoc-members": True}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
# Fields are listed in the docstring of their class; entries for each method would fill the menu.
toc_object_entries = False
html_show_sourcelink = False


def _classes_behind_the_client() -> Iterator[str]:
    """The class of each property of `CountLedger`, as `module.Class`."""
    imported = _imported_names("countledger.client")
    for node in ast.walk(ast.parse(_source("countledger.client"))):
        if (
            isinstance(node, ast.FunctionDef)
            and not node.name.startswith("_")
            and isinstance(node.returns, ast.Name)
            and node.returns.id not in countledger.__all__
        ):
            name = node.returns.id
            module = imported.get(name, "")
            if module.startswith("countledger."):
                yield f"{module}.{name}"


def _imported_names(module: str) -> dict[str, str]:
    """The names that a module imports from other modules, with the module of each."""
    return {
        alias.name: node.module
        for node in ast.walk(ast.parse(_source(module)))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def _source(module: str) -> str:
    return (_ROOT / Path(*module.split("."))).with_suffix(".py").read_text()


def _reference() -> Iterator[str]:
    """The API reference, as Markdown with directives of autodoc."""
    names = [name for name in countledger.__all__ if name != "CountLedger"]
    submodules = [name for name in names if hasattr(getattr(countledger, name), "__spec__")]
    functions = [name for name in names if name[0].islower() and name not in submodules]
    modules = [getattr(countledger, name).__name__ for name in submodules]
    values = [
        name
        for name in names
        if name not in (*submodules, *functions)
        and getattr(getattr(countledger, name), "__module__", "") not in modules
    ]
    behind = sorted(set(_classes_behind_the_client()), key=lambda path: path.rpartition(".")[2])
    yield "\n## The client\n"
    yield from _directive("autoclass", "countledger.CountLedger")
    for name in functions:
        yield from _directive("autofunction", f"countledger.{name}")
    yield "\n## Behind the client\n"
    yield "Each of these classes is a property or the result of a method of `CountLedger`.\n"
    for path in behind:
        yield from _directive("autoclass", path)
    yield "\n## Values\n"
    for name in values:
        is_class = isinstance(getattr(countledger, name), type)
        yield from _directive("autoclass" if is_class else "autodata", f"countledger.{name}")
    for name in submodules:
        yield f"\n## countledger.{name}\n"
        yield from _directive("automodule", getattr(countledger, name).__name__)


def _directive(kind: str, path: str) -> Iterator[str]:
    yield f"```{{eval-rst}}\n.. {kind}:: {path}\n```\n"


def _write_reference(_app: Sphinx, page: str, source: list[str]) -> None:
    if page == _API_PAGE:
        source[0] += "\n".join(_reference())


def _check_docstring(  # the signature is Sphinx's
    _app: Sphinx, kind: str, name: str, thing: object, _options: object, lines: list[str]
) -> None:
    """Warn about a public name without a docstring; put the others into reStructuredText."""
    if kind in _DOCUMENTED and not any(lines) and not _is_enum_member(thing):
        _LOG.warning("public name without a docstring: %s", name)
    lines[:] = _restructured("\n".join(lines)).split("\n")


def _skip_fields(
    _app: Sphinx, _kind: str, name: str, thing: object, skip: object, _options: object
) -> bool | None:
    """Leave out fields: the docstring of their class describes them."""
    described = callable(thing) or isinstance(thing, (property, cached_property, Enum))
    return bool(skip) or name.startswith("_") or not described


def _is_enum_member(thing: object) -> bool:
    return not callable(thing) and not isinstance(thing, property)


def _restructured(docstring: str) -> str:
    """Our docstrings use the Markdown of inline code and lists; autodoc reads reStructuredText."""
    text = _INLINE_CODE.sub(r"``\1``", docstring)
    text = re.sub(r"\*(?=\w+: )", r"\\*", text)
    # A list begins after an empty line.
    return re.sub(r"(?m)^(?!\s*- )(?=.*\S)(.*)\n(\s*- )", r"\1\n\n\2", text)


def _check_addresses(app: Sphinx, error: Exception | None) -> None:
    """Refuse a page that loads a script, a style, a font or an image from elsewhere."""
    if error is None:
        for path in sorted(Path(app.outdir).rglob("*")):
            if path.suffix in (".html", ".css") and _LOADED.search(path.read_text()):
                raise ExtensionError(f"{path} loads a file from another address")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the checks."""
    import_module("countledger.client")
    app.connect("source-read", _write_reference)
    app.connect("autodoc-skip-member", _skip_fields)
    app.connect("autodoc-process-docstring", _check_docstring)
    app.connect("build-finished", _check_addresses)
    return {"parallel_read_safe": True}
