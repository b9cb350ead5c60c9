"""`make release`: what is published, and that it says what it contains."""

import json
import re
import subprocess
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def release(version: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "release", f"VERSION={version}", f"OUT={folder}"],  # noqa: S607 - the make that people run
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_release_is_wheel_source_notes_and_sbom(tmp_path: Path) -> None:
    done = release("0.1.0", tmp_path)

    assert done.returncode == 0, done.stderr
    assert {path.name.rpartition(".")[2] for path in tmp_path.iterdir()} == {
        "gz",
        "json",
        "md",
        "whl",
    }
    notes = (tmp_path / "notes.md").read_text()
    assert notes.startswith("## 0.1.0 ")
    assert notes.count("\n## ") == 0
    sbom = json.loads((tmp_path / "functions.cdx.json").read_text())
    listed = {(part["name"], part["version"]) for part in sbom["components"]}
    lock = (_ROOT / "requirements-functions.lock").read_text()
    locked = re.findall(r"^([\w.-]+)==([^ ;]+)", lock, re.MULTILINE)
    assert listed == set(locked)
    assert all(part["externalReferences"][0]["hashes"] for part in sbom["components"])


def test_a_version_without_notes_is_no_release(tmp_path: Path) -> None:
    done = release("9.9.9", tmp_path)

    assert done.returncode != 0
    assert "CHANGELOG.md has no section '## 9.9.9'" in done.stdout
    assert not list(tmp_path.glob("*.whl"))
