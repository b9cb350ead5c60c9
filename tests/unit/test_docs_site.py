"""The documentation site is strict: each fault of a page fails its build."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

_CONF = Path(__file__).resolve().parents[2] / "docs" / "conf.py"
_AUTODOC = "```{eval-rst}\n.. autofunction:: shop.sell\n```\n"
_DOCUMENTED = 'def sell():\n    """Sell `one` piece."""\n'


def _build(tmp_path: Path, pages: dict[str, str], module: str = _DOCUMENTED) -> str:
    """Build a site of these pages by our settings; what it says on stderr, empty if all is well."""
    pytest.importorskip("sphinx")
    source = tmp_path / "docs"
    source.mkdir()
    shutil.copy(_CONF, source)
    (tmp_path / "shop.py").write_text(module)
    for name, text in pages.items():
        (source / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "docs", "site"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode == 0) == (not done.stderr), done.stderr
    return done.stderr


def test_a_site_without_faults_is_built(tmp_path: Path) -> None:
    """So each of the other tests fails by its fault alone."""
    assert _build(tmp_path, {"index.md": f"# Shop\n\n[above](#shop)\n\n{_AUTODOC}"}) == ""
    assert "Sell <code" in (tmp_path / "site" / "index.html").read_text()


@pytest.mark.parametrize(
    ("pages", "module", "fault"),
    [
        ({"index.md": "# Shop\n\n[x](none.md)\n"}, _DOCUMENTED, "target not found"),
        ({"index.md": "# Shop\n\n[x](#none)\n"}, _DOCUMENTED, "none"),
        ({"index.md": "# Shop\n", "lost.md": "# Lost\n"}, _DOCUMENTED, "lost.md"),
        ({"index.md": f"# Shop\n\n{_AUTODOC}"}, "def sell(): ...\n", "without a docstring"),
        ({"index.md": f"# Shop\n\n{_AUTODOC}"}, "", "shop"),
        (
            {"index.md": '# Shop\n\n<script src="https://example.org/x.js"></script>\n'},
            _DOCUMENTED,
            "another address",
        ),
    ],
    ids=["page", "heading", "menu", "docstring", "name", "address"],
)
def test_a_fault_fails_the_build(
    tmp_path: Path, pages: dict[str, str], module: str, fault: str
) -> None:
    assert fault in _build(tmp_path, pages, module)
