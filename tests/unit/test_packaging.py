"""What a release consists of: the wheel, and the source from which anybody builds the same one."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("compaction", "consumers", "infra", "ledger", "producers")
_MODULES = [
    path.relative_to(_ROOT).as_posix()
    for top in ("countledger", *_PACKAGES)
    for path in sorted((_ROOT / top).rglob("*.py"))
]


def built(target: str, source: Path, folder: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)],
        cwd=source,
        check=True,
        capture_output=True,
    )
    return next(folder.glob("*.whl" if target == "wheel" else "*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, as a release builds it."""
    return zipfile.ZipFile(built("wheel", _ROOT, tmp_path_factory.mktemp("wheel")))


def test_the_wheel_installs_only_countledger(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}

    assert {top for top in tops if not top.endswith(".dist-info")} == {"countledger"}


def test_the_wheel_holds_every_module_the_template_and_the_types(wheel: zipfile.ZipFile) -> None:
    held = set(wheel.namelist())
    wanted = {
        name if name.startswith("countledger/") else f"countledger/{name}" for name in _MODULES
    }

    assert wanted <= held
    files = {"infra/template.yaml", "infra/requirements-functions.lock", "py.typed"}
    assert {f"countledger/{name}" for name in files} <= held
    assert all(any(path.startswith(f"countledger/{name}/") for path in held) for name in _PACKAGES)
    seconds = {name.split("/")[1] for name in held}
    assert not [
        name
        for name in seconds
        if name in {"tests", "tools", "conftest.py"} or name.startswith("test_")
    ]


def test_the_source_builds_the_same_wheel(
    wheel: zipfile.ZipFile, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with tarfile.open(built("sdist", _ROOT, tmp_path)) as source:
        source.extractall(tmp_path, filter="data")
    unpacked = next(path for path in tmp_path.iterdir() if path.is_dir())

    again = zipfile.ZipFile(built("wheel", unpacked, tmp_path_factory.mktemp("again")))

    assert sorted(again.namelist()) == sorted(wheel.namelist())
    changed = [name for name in wheel.namelist() if again.read(name) != wheel.read(name)]
    assert changed == []
