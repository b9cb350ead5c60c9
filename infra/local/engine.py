"""The embedded AWS: MiniStack as a process of its own, on loopback.

It leaves nothing on disk, unless it is given a directory for its memory.
"""

import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from countledger.infra.local.following import SECRET_HEADER, new_secret
from countledger.infra.local.running import kill_all, processes_under
from countledger.infra.local.saved_stack import StackDirectory
from countledger.ledger.errors import SetupError

REGION: Final = "us-east-1"
ACCOUNT: Final = "000000000000"

# An access key of twelve digits is the root user of that account: it may do everything, also when
# the engine enforces IAM.
ROOT_KEY: Final = ACCOUNT
# Of the engines that this process starts: each knows it, and nobody else's process does.
ROOT_SECRET: Final = new_secret()

READY_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 5.0
SAVE_TIMEOUT_S: Final = 60.0
_LOG_TAIL_LINES: Final = 15

# Functions inherit the engine's environment, so what belongs to the user's own AWS must not reach
# it: a profile, a key or an endpoint there would win over the local one.
_FOREIGN_PREFIXES: Final = (
    "AWS_",
    "COUNTLEDGER_",
    "DOCKER_",
    "EDGE_",
    "GATEWAY_",
    "LAMBDA_",
    "LOCALSTACK",
    "MINISTACK",
    "POWERTOOLS_",
    "S3_",
)
_FOREIGN_NAMES: Final = frozenset({"AUTH", "PERSIST_STATE", "SERVICES", "STATE_DIR", "USE_SSL"})


_LOG: Final = logging.getLogger(__name__)


class EngineFailed(SetupError):
    """The embedded engine did not start."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Where the memory of an engine is kept, and of which stack it is; the home region is first."""

    directory: StackDirectory
    stack_name: str
    regions: tuple[str, ...]

    def facts(self, port: int) -> str:
        """What the engine notes with its memory, as JSON."""
        facts = {"stack_name": self.stack_name, "regions": self.regions, "port": port}
        return json.dumps(facts)


class Engine:
    """One embedded engine. Start it with `with` or `start`; the other end is `stop`.

    Its data live as long as it runs, or are kept in a directory. It ends with this process, however
    this process ends.

    Attributes:
        home: its private temporary directory, deleted at the end.
    """

    def __init__(
        self,
        *,
        auth: bool = False,
        parent_dir: Path | None = None,
        port: int = 0,
        usual_port: int = 0,
        kept: Kept | None = None,
    ) -> None:
        """Nothing runs yet; port 0 is any free one, by preference `usual_port`."""
        self._usual_port = usual_port
        self._kept = kept
        self._auth = auth
        self._parent_dir = parent_dir
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self._port = port
        self.home = Path()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise EngineFailed("the embedded engine does not run")
        return self._process.pid

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the process and wait until it answers."""
        self.home = Path(tempfile.mkdtemp(prefix="countledger-engine-", dir=self._parent_dir))
        try:
            # The socket listens before the process exists: no other process can take the port,
            # and the first request simply waits.
            with self._listening() as listening:
                self._port = listening.getsockname()[1]
                self._launch(listening.fileno())
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def _launch(self, socket_fd: int) -> None:
        script = Path(__file__).with_name("engine_process.py")
        watched, self._lifeline = os.pipe()
        # -P: the directory of the script is no import path (its modules have everyday names).
        command = [sys.executable, "-P", str(script)]
        command += ["--socket-fd", str(socket_fd), "--parent-fd", str(watched)]
        passed = [socket_fd, watched]
        if self._kept is not None:
            command += ["--save-in", str(self._kept.directory.path)]
            command += ["--facts", self._kept.facts(self._port)]
            passed.append(self._kept.directory.lock)  # which it holds until it has ended
        try:
            with self._log_path.open("wb") as log:
                self._process = subprocess.Popen(  # noqa: S603 - our own script
                    command,
                    env=self._environment(),
                    pass_fds=passed,
                    start_new_session=True,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
        finally:
            os.close(watched)

    @property
    def _log_path(self) -> Path:
        return self.home / "engine.log"

    def _environment(self) -> dict[str, str]:
        return cleaned_environment(os.environ) | {
            "AUTH": "true" if self._auth else "false",
            "AWS_ACCESS_KEY_ID": ROOT_KEY,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": REGION,
            "AWS_SECRET_ACCESS_KEY": ROOT_SECRET,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            # It would tidy up containers of other engines on the user's machine.
            "DOCKER_HOST": f"unix://{self.home}/no-docker",
            "GATEWAY_PORT": str(self._port),
            "IOT_MTLS_ENABLED": "0",
            "LAMBDA_EXECUTOR": "local",
            "LOG_LEVEL": "WARNING",
            "MINISTACK_HOST": "127.0.0.1",
            "NO_PROXY": "127.0.0.1,localhost",
            "PYTHONUNBUFFERED": "1",
            "SFTP_ENABLED": "0",
            "TMPDIR": str(self.home),
            "no_proxy": "127.0.0.1,localhost",
        }

    def _wait_until_ready(self) -> None:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        request = urllib.request.Request(  # noqa: S310 - our own engine
            f"{self.url}/_ministack/ready", headers={SECRET_HEADER: ROOT_SECRET}
        )
        try:
            with opener.open(request, timeout=READY_TIMEOUT_S) as answer:
                answer.read()
        except OSError as error:  # urllib's errors and time-outs are OSErrors
            raise EngineFailed(
                f"the embedded engine did not start ({error}); its log ends:\n{self._log_tail()}"
            ) from error

    def _log_tail(self) -> str:
        lines = self._log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LOG_TAIL_LINES:]) or "(the log is empty)"

    def keep(self) -> None:
        """Save the memory from now on, at intervals and at the end, if there is a place for it."""
        if self._kept is not None:
            os.kill(self.pid, signal.SIGUSR1)

    def _listening(self) -> socket.socket:
        if self._port == 0 and self._usual_port:
            with contextlib.suppress(EngineFailed):
                return _listening(self._usual_port)
        return _listening(self._port)

    def stop(self) -> None:
        """End the process, the workers of its functions, and its directory. Safe to call again."""
        process, self._process = self._process, None
        if process is not None:
            _signal_group(process.pid, signal.SIGTERM)
            try:
                process.wait(STOP_TIMEOUT_S if self._kept is None else SAVE_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                _signal_group(process.pid, signal.SIGKILL)
                process.wait()
            if self._kept is not None and process.returncode:
                _LOG.error(
                    "the engine ended with code %d: %s", process.returncode, self._log_tail()
                )
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        if self.home != Path():
            kill_all(processes_under(self.home))
            shutil.rmtree(self.home, ignore_errors=True)


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port), backlog=512)
    except OSError as error:
        raise EngineFailed(
            f"port {port} of 127.0.0.1 cannot be used ({error.strerror}): give another one"
        ) from error


def cleaned_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what belongs to the user's own AWS or to another engine."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_FOREIGN_PREFIXES) and name not in _FOREIGN_NAMES
    }


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)
