"""A stack that is created for one run and removed after it, with its tables."""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

_PREFIX: Final = "countledger-smoke-"


@dataclass(frozen=True)
class OwnStack:
    """Makes and deletes a stack under a name that nobody else has.

    Attributes:
        endpoint_url: another endpoint than AWS's own.
        environment: of the command that deploys.
        options: more of that command.
    """

    endpoint_url: str | None
    environment: Mapping[str, str]
    options: tuple[str, ...] = ()
    name: str = field(default_factory=lambda: _PREFIX + uuid.uuid4().hex[:8])

    @contextmanager
    def made(self) -> Iterator[dict[str, str]]:
        """Its outputs; whatever happens, also a failed creation, nothing is left after the block.

        Raises:
            RuntimeError: it could not be removed; the message has the command that removes it.
        """
        try:
            yield self._deploy()
        finally:
            self._destroy()

    def _deploy(self) -> dict[str, str]:
        options = ("--parameter", "DeletionProtection=false", "--yes", "--json", *self.options)
        # What it reports on the way goes to the terminal.
        done = self._command("deploy", *options, stdout=subprocess.PIPE)
        if done.returncode:
            raise RuntimeError(f"stack {self.name} was not created (exit code {done.returncode})")
        outputs: dict[str, str] = json.loads(done.stdout)["outputs"]
        return outputs

    def _destroy(self) -> None:
        options = ("--delete-data", "--detach", "--yes", self.name)
        if self._command("destroy", *options).returncode:
            raise RuntimeError(
                f"stack {self.name} is not removed: countledger destroy --stack-name {self.name} "
                "--delete-data --detach"
            )

    def _command(
        self, command: str, *options: str, stdout: int | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        line = [sys.executable, "-m", "countledger", command, "--stack-name", self.name, *options]
        if self.endpoint_url is not None:
            line += ["--endpoint-url", self.endpoint_url]
        return subprocess.run(line, env=dict(self.environment), stdout=stdout, check=False)
