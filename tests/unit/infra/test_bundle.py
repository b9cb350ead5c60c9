"""The bundle's bytes depend on its sources only, and its size is held to Lambda's limit."""

import io
import zipfile

import pytest

from countledger.infra import bundle
from countledger.infra.bundle import BundleFailed, pack


def test_equal_files_give_equal_bytes() -> None:
    """In whatever order they come."""
    first = pack({"a.py": b"1", "b/c.py": b"2"})
    second = pack({"b/c.py": b"2", "a.py": b"1"})

    assert first.content == second.content


def test_names_are_sorted_and_times_are_fixed() -> None:
    """No clock and no file system shows through."""
    packed = pack({"b.py": b"2", "a.py": b"1"})

    with zipfile.ZipFile(io.BytesIO(packed.content)) as archive:
        entries = archive.infolist()
    assert [entry.filename for entry in entries] == ["a.py", "b.py"]
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    # Lambda's user must be able to read them.
    assert {entry.external_attr >> 16 for entry in entries} == {0o100644}


def test_its_size_is_told() -> None:
    """Zipped, unzipped and the limit."""
    packed = pack({"a": b"x" * 3 * 1024 * 1024})

    assert packed.unzipped_bytes == 3 * 1024 * 1024
    assert "3.0 MB unzipped (limit 250.0 MB), 1 files" in packed.summary()


def test_more_than_lambda_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the upload, with both sizes."""
    monkeypatch.setattr(bundle, "MAX_UNZIPPED_BYTES", 1024 * 1024)

    with pytest.raises(BundleFailed, match=r"2\.0 MB unzipped; Lambda takes 1\.0 MB"):
        pack({"a": b"x" * 2 * 1024 * 1024})


def test_our_part_is_the_package_without_infra() -> None:
    """Every room that a function imports, as an import finds it; no caches, no command line."""
    names = dict(bundle._own_files())

    assert "countledger/__init__.py" in names
    assert "countledger/py.typed" in names
    assert "countledger/consumers/handler.py" in names
    assert "countledger/ledger/errors.py" in names
    assert not [name for name in names if "infra" in name or "__pycache__" in name]
    assert "countledger/__main__.py" not in names


def test_the_lock_of_the_functions_agrees_with_the_lock_of_all() -> None:
    """What is tested is what is deployed: each pin is one of the repository's lock file."""
    everything = bundle.LOCK_PATH.with_name("requirements.lock").read_text(encoding="utf-8")
    pins = [
        line.split(" ")[0]
        for line in bundle.LOCK_PATH.read_text(encoding="utf-8").splitlines()
        if line and line[0].isalpha()
    ]

    assert any(pin.startswith("aws-lambda-powertools==") for pin in pins)
    for pin in pins:
        assert f"\n{pin} " in everything, pin
