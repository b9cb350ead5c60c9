"""The one client to git: a repository's objects, seen through no configuration but our own.

What git prints depends on more than the history: on the user's and the repository's configuration
(`diff.*`, `core.quotepath`, `log.*`, `i18n.*`), on attributes (`.gitattributes`, `info/attributes`
with their text conversions and `-diff`), on mail maps, replacement refs and the environment. A
count must not. So the history is read through a *view*: an empty bare repository of our own in a
temporary directory, that borrows the objects of the real one (and its shallow boundary) and
nothing else. The real repository is asked only where its objects are and what HEAD is.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from countledger.infra.demo.errors import EmptyRepository, GitFailed, GitMissing, NotARepository

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK_BYTES: Final = 1 << 16
_SHA256_HEX_DIGITS: Final = 64
_PLAIN: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}
_OPTIONS: Final = (
    # Since 2.43 a bare repository may take its attributes from a tree, and always its mail map.
    *("-c", "attr.tree=none-of-them"),
    *("-c", f"core.attributesFile={os.devnull}"),
    *("-c", "mailmap.blob=none-of-them"),
    "--no-pager",
)


class View:
    """A repository's history as bytes on a pipe.

    Attributes:
        root: where the repository is, for people.
        head: the commit at HEAD, in hex.
        shallow: whether the history ends at a shallow boundary rather than at its first commit.
    """

    def __init__(self, root: Path, head: str, directory: Path, objects: Path) -> None:
        self.root = root
        self.head = head
        self.shallow = (directory / "shallow").exists()
        self._directory = directory
        self._environment = _environment(keep=()) | _PLAIN
        self._environment |= {
            "GIT_DIR": str(directory),
            "GIT_OBJECT_DIRECTORY": str(objects),
            # Before 2.32 only this hides the user's own configuration.
            "HOME": str(directory),
            "XDG_CONFIG_HOME": str(directory),
        }

    @contextmanager
    def process(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """A running git command; leaving checks that it went well, and ends it in any case.

        Raises:
            GitFailed: it ended with an error; the text is git's own.
        """
        with (
            tempfile.TemporaryFile() as complaints,
            subprocess.Popen(  # noqa: S603 - arguments are ours, and no shell reads them
                ["git", *_OPTIONS, *arguments],  # noqa: S607 - the user's git, from PATH
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                cwd=self._directory,
                env=self._environment,
            ) as running,
        ):
            try:
                yield running
                code = _finished(running)
            except BaseException:
                running.kill()
                raise
            no_match = code == 1 and arguments[0] == "grep"
            if code and not no_match:
                complaints.seek(0)
                raise self._failed(arguments[0], complaints.read())

    def tokens(self, *arguments: str, end: bytes = b"\0") -> Iterator[bytes]:
        """What a git command prints, piece by piece, however much it is."""
        with self.process(*arguments) as running:
            yield from _split(running, end)

    def _failed(self, command: str, complaints: bytes) -> GitFailed:
        said = _first_line(complaints)
        return GitFailed(
            f"git {command} failed in {self.root}: {said}"
            " (is this a partial clone? then `git fetch --refetch --no-filter` brings the rest)"
        )


@contextmanager
def open_repository(path: Path) -> Iterator[View]:
    """The repository that the path lies in, bare or not, from any of its directories.

    Raises:
        GitMissing: there is no git.
        NotARepository: the path is in no repository, or git refuses to open it.
        EmptyRepository: HEAD names no commit yet.
    """
    if not path.is_dir():
        raise NotARepository(f"{path} is no directory: give the path of a git repository")
    objects = Path(_ask(path, "rev-parse", "--git-path", "objects"))
    shallow = Path(_ask(path, "rev-parse", "--git-path", "shallow"))
    try:
        head = _ask(path, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except NotARepository:
        raise EmptyRepository(f"{path} has no commit at HEAD: there is nothing to count") from None
    with tempfile.TemporaryDirectory(prefix="countledger-git-") as name:
        directory = Path(name)
        _make_view(directory, head)
        if (path / shallow).exists():
            (directory / "shallow").write_bytes((path / shallow).read_bytes())
        yield View(path, head, directory, (path / objects).resolve())


def _make_view(directory: Path, head: str) -> None:
    """An empty bare repository of the same hash function, written by hand: no template, no hook."""
    config = "[core]\n\tbare = true\n\trepositoryformatversion = 0\n"
    if len(head) == _SHA256_HEX_DIGITS:
        config = config.replace("= 0", "= 1") + "[extensions]\n\tobjectformat = sha256\n"
    (directory / "config").write_text(config)
    (directory / "HEAD").write_text(f"{head}\n")
    (directory / "refs").mkdir()
    (directory / "objects").mkdir()


def _ask(path: Path, *arguments: str) -> str:
    """One line from the real repository, found from this path whatever the environment says."""
    try:
        done = subprocess.run(  # noqa: S603 - arguments are ours, and no shell reads them
            ["git", *arguments],  # noqa: S607 - the user's git, from PATH
            cwd=path,
            env=_environment(keep=("GIT_CONFIG", "GIT_CEILING", "GIT_DISCOVERY")) | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        raise GitMissing("git was not found: install git, the demo counts a repository") from None
    except OSError as error:
        raise NotARepository(f"{path} cannot be opened: {error.strerror}") from error
    if done.returncode:
        raise NotARepository(f"{path} cannot be opened: {_first_line(done.stderr)}")
    return os.fsdecode(done.stdout.removesuffix(b"\n"))


def _environment(*, keep: tuple[str, ...]) -> dict[str, str]:
    """The environment without what would point git elsewhere or change what it prints."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(keep or ("GIT_EXEC_PATH",))
    }


def _finished(running: subprocess.Popen[bytes]) -> int:
    """The exit code, once its standard input has ended."""
    if running.stdin is not None:
        running.stdin.close()
    return running.wait()


def _split(running: subprocess.Popen[bytes], end: bytes) -> Iterator[bytes]:
    """The output cut at each end mark; a last piece without one comes too."""
    if running.stdout is None:
        raise AssertionError("the process was made with a pipe")
    rest = b""
    while chunk := running.stdout.read(_CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(end)
        yield from whole
    if rest:
        yield rest


def _first_line(said: bytes) -> str:
    """Git's own reason in one printable line."""
    text = said.decode(errors="replace").strip()
    line = text.splitlines()[0] if text else "git gave no reason"
    return re.sub(r"^fatal: ", "", line)
