"""The wheel on each Python that this machine has, with the oldest and the newest dependencies.

It is installed as an app would, without the embedded engine, and counts on the stack of the tests.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from countledger.infra.local.stack import LocalStack
from tests.e2e.command import Command

_ROOT = Path(__file__).parents[2]
_PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_EXTRAS = ("async", "cli", "fast", "kinesis", "otel")
# Those that need an older boto3: the packages that they bring pin botocore.
_PINNING = {"local": "ministack"}
_APP = """
import asyncio, sys
from countledger import AsyncCountLedger, CountLedger, Event

async def in_a_loop(counter):
    async with AsyncCountLedger() as ledger:
        await ledger.record(counter, 7)
        async with await ledger.buffered() as producer:
            await producer.add(counter, 3)

counter = sys.argv[1]
ledger = CountLedger()
ledger.record(counter, 1, key="k")
assert ledger.record(counter, 1, key="k").status == "duplicate"
assert len(ledger.record_many([Event(counter, 2)] * 30)) == 30
with ledger.buffered() as producer:
    producer.add(counter, 5)
asyncio.run(in_a_loop(counter))
print(ledger.exact(counter).value)
"""


def uv(*arguments: str | Path) -> str:
    done = subprocess.run(
        [Path(sys.executable).parent / "uv", *arguments],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def interpreter_of(version: str) -> str | None:
    """Its path, if it is on the path or pyenv has installed it; nothing is downloaded."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    installed = sorted(root.glob(f"versions/{version}.*/bin/python"))
    on_path = shutil.which(f"python{version}")
    for candidate in (*map(str, installed), *([on_path] if on_path else [])):
        # A shim of pyenv is on the path also where that version is not installed.
        if subprocess.run([candidate, "-V"], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a release builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=_ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def install(wheel: Path, app: Path, version: str, resolution: str) -> None:
    """Install the wheel with the dependencies that it declares, into an environment of its own."""
    interpreter = interpreter_of(version)
    if interpreter is None:
        pytest.skip(f"this machine has no Python {version}")
    uv("venv", "-p", interpreter, app)
    uv("pip", "install", "-p", app, "--no-deps", wheel)
    extras = [part for extra in _EXTRAS for part in ("--extra", extra)]
    uv("pip", "install", "-p", app, "--resolution", resolution, "-r", "pyproject.toml", *extras)


@pytest.mark.parametrize("resolution", ["lowest-direct", "highest"])
@pytest.mark.parametrize("version", _PYTHONS)
def test_an_app_counts(
    stack: LocalStack, name: str, wheel: Path, version: str, resolution: str
) -> None:
    app = wheel.parent / f"{version}-{resolution}"
    install(wheel, app, version, resolution)
    bin_folder = app / "bin"
    environment = Command(stack.environment()).variables({"PATH": os.environ["PATH"]})

    for transport in ("boto3", "fast"):
        done = subprocess.run(
            [bin_folder / "python", "-c", _APP, f"{name}:{transport}"],
            env={**environment, "COUNTLEDGER_TRANSPORT": transport},
            cwd=app,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout, done.stderr) == ("76\n", "")
    stack.pump.drain()
    total = subprocess.run(
        [bin_folder / "countledger", "total", f"{name}:fast", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert total.returncode == 0, total.stderr
    assert '"value": "76"' in total.stdout


def versions(*extras: str) -> dict[str, str]:
    """What is installed with these extras and nothing else: versions by package."""
    chosen = [part for extra in extras for part in ("--extra", extra)]
    listed = uv("pip", "compile", "-q", "--universal", "--no-header", *chosen, "pyproject.toml")
    return dict(re.findall(r"^([\w.-]+)==([^ ;]+)", listed, re.MULTILINE))


def test_no_other_extra_brings_an_older_boto3() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].keys() - _PINNING.keys()

    assert versions(*sorted(extras))["boto3"] == versions()["boto3"]
    assert all(package in versions(extra) for extra, package in _PINNING.items())


def test_the_wheel_has_every_file_of_the_dashboard(wheel: Path) -> None:
    """And so has the source distribution, from which it is built: hatchling takes both alike."""
    page = _ROOT / "infra/http/page"
    with ZipFile(wheel) as archive:
        packed = {
            name.rpartition("/")[2]: archive.getinfo(name).file_size
            for name in archive.namelist()
            if name.startswith("countledger/infra/http/page/")
        }

    assert packed == {one.name: one.stat().st_size for one in page.iterdir()}
    assert sum(packed.values()) < 100_000
