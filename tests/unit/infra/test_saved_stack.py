"""The directory of `up --persist`: it has a whole file of one stack, or it is refused."""

import hashlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from countledger.infra.local.saved_stack import (
    FILE,
    SavedStack,
    SavedStackRefused,
    StackDirectory,
    installed_engine,
    read,
    read_header,
    write,
)

SAVED: Final = SavedStack(
    stack_name="shop",
    regions=("us-east-1", "eu-west-1"),
    port=4599,
    saved_at_ms=1_700_000_000_000,
    complete=True,
    engine=installed_engine(),
    release="0.1.0",
)
MEMORY: Final = bytes(range(256)) * 10


def test_what_was_written_is_read_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    with StackDirectory(directory):
        assert read(directory) is None
        assert read_header(directory) is None
        write(directory, replace(SAVED, complete=False), b"older and longer" * 1_000)
        write(directory, SAVED, MEMORY)

        assert read(directory) == (SAVED, MEMORY)
        assert read_header(directory) == SAVED
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / FILE).stat().st_mode & 0o777 == 0o600
    assert [one.name for one in directory.iterdir()] == [FILE]


def _header(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def changed(content: bytes) -> bytes:
        line, _, rest = content.partition(b"\n")
        header = json.loads(line)
        change(header)
        return json.dumps(header).encode() + b"\n" + rest

    return changed


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda content: content[:-1], "it has 2559 bytes of 2560"),
        (lambda content: content + b"x", "it has 2561 bytes of 2560"),
        (lambda content: content[:-1] + b"x", "does not match its checksum"),
        (lambda _: b"", "does not begin with a header"),
        (lambda _: b"\x00" * 5_000, "does not begin with a header"),
        (lambda _: b"[1]\n", "does not begin with a header"),
        (_header(lambda header: header.pop("port")), "its header lacks a field"),
        (_header(lambda header: header.pop("sha256")), "its header lacks a field"),
        (_header(lambda header: header.update(format=2)), "has format 2, and .* reads format 1"),
        (
            _header(lambda header: header.update(engine="ministack 9.9.9")),
            re.escape("`pip install ministack==9.9.9`, or give another directory"),
        ),
    ],
)
def test_what_is_not_whole_or_of_another_release_is_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes], says: str
) -> None:
    write(tmp_path, SAVED, MEMORY)
    path = tmp_path / FILE
    path.write_bytes(damage(path.read_bytes()))

    with (
        StackDirectory(tmp_path) as directory,
        pytest.raises(SavedStackRefused, match=f"^{re.escape(str(path))}.*{says}"),
    ):
        directory.find("shop", ())


def test_a_file_that_could_not_be_written_whole_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the computer stops before the new file is on disk: it never has the name."""
    write(tmp_path, SAVED, MEMORY)

    def stops(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", stops)
        with pytest.raises(OSError, match="No space left"):
            write(tmp_path, replace(SAVED, port=1), b"new")

    assert read(tmp_path) == (SAVED, MEMORY)
    write(tmp_path, replace(SAVED, port=1), b"new")
    assert read(tmp_path) == (replace(SAVED, port=1), b"new")


@pytest.mark.parametrize(
    ("name", "regions", "says"),
    [
        ("shop", (), None),
        ("shop", ("us-east-1", "eu-west-1"), None),
        ("shop", ("us-east-1",), "has a stack in us-east-1, eu-west-1: leave out --regions"),
        ("other", (), "has the stack 'shop', not 'other': give --stack-name shop"),
    ],
)
def test_a_stack_is_found_under_its_own_name_and_regions(
    tmp_path: Path, name: str, regions: tuple[str, ...], says: str | None
) -> None:
    write(tmp_path, SAVED, MEMORY)

    with StackDirectory(tmp_path) as directory:
        if says is None:
            assert directory.find(name, regions) == SAVED
            return
        with pytest.raises(SavedStackRefused, match=says):
            directory.find(name, regions)


def test_two_stacks_never_use_one_directory(tmp_path: Path) -> None:
    with StackDirectory(tmp_path), pytest.raises(SavedStackRefused, match="in use by another"):
        StackDirectory(tmp_path)

    with StackDirectory(tmp_path) as again:
        assert again.find("shop", ()) is None


def test_a_directory_that_others_may_enter_or_that_is_none_is_refused(tmp_path: Path) -> None:
    """A user who may write there decides what the engine puts in its memory."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link", "no/parent"):
        with pytest.raises(SavedStackRefused, match="cannot be used"):
            StackDirectory(tmp_path / name)
    tmp_path.chmod(0o750)

    with pytest.raises(SavedStackRefused, match="no private directory of yours: `chmod 700` it"):
        StackDirectory(tmp_path)


def test_the_checksum_is_that_of_the_memory(tmp_path: Path) -> None:
    """A user can compare a copy by hand."""
    write(tmp_path, SAVED, MEMORY)

    line, _, memory = (tmp_path / FILE).read_bytes().partition(b"\n")

    assert json.loads(line)["sha256"] == hashlib.sha256(memory).hexdigest()
    assert memory == MEMORY
