"""A stack that is made for one run and deleted behind it, with the tables that outlive a stack."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import boto3

_PREFIX: Final = "countledger-smoke-"
_DELETED_S: Final = 1800.0
_TABLES: Final = ("LedgerTableName", "CountersTableName")


@dataclass(frozen=True)
class OwnStack:
    """Makes and deletes a stack under a name that nobody else has.

    Attributes:
        session: of the account.
        endpoint_url: another endpoint than AWS's own.
        environment: of the command that deploys.
        options: more of that command.
        poll_s: pause between two looks.
    """

    session: boto3.Session
    endpoint_url: str | None
    environment: Mapping[str, str]
    options: tuple[str, ...] = ()
    poll_s: float = 3.0
    name: str = field(default_factory=lambda: _PREFIX + uuid.uuid4().hex[:8])

    @contextmanager
    def made(self) -> Iterator[dict[str, str]]:
        """Its outputs; whatever happens, it is deleted behind the block."""
        outputs: dict[str, str] = {}
        try:
            outputs = self._deploy()
            yield outputs
        finally:
            self._delete(outputs or self._outputs())

    def _deploy(self) -> dict[str, str]:
        line = [sys.executable, "-m", "countledger", "deploy", "--stack-name", self.name]
        line += ["--parameter", "DeletionProtection=false", "--yes", "--json", *self.options]
        if self.endpoint_url is not None:
            line += ["--endpoint-url", self.endpoint_url]
        # What it tells on the way goes to the terminal.
        done = subprocess.run(line, env=dict(self.environment), stdout=subprocess.PIPE, check=True)
        outputs: dict[str, str] = json.loads(done.stdout)["outputs"]
        return outputs

    def _delete(self, outputs: Mapping[str, str]) -> None:
        stacks = self._client("cloudformation")
        stacks.delete_stack(StackName=self.name)
        deadline_s = time.monotonic() + _DELETED_S
        while self._exists():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"stack {self.name} is still there: delete it, and its tables")
            time.sleep(self.poll_s)
        # They are retained on purpose: here nothing in them is worth it.
        for output in _TABLES:
            if output in outputs:
                self._client("dynamodb").delete_table(TableName=outputs[output])

    def _exists(self) -> bool:
        stacks = self._client("cloudformation")
        try:
            (found,) = stacks.describe_stacks(StackName=self.name)["Stacks"]
        except stacks.exceptions.ClientError as error:
            if "does not exist" in str(error):
                return False
            raise
        if found["StackStatus"] == "DELETE_FAILED":
            raise RuntimeError(f"stack {self.name} could not be deleted: {found}")
        return bool(found["StackStatus"] != "DELETE_COMPLETE")

    def _outputs(self) -> dict[str, str]:
        """Of a stack that was not finished: none, or all."""
        if not self._exists():
            return {}
        (found,) = self._client("cloudformation").describe_stacks(StackName=self.name)["Stacks"]
        return {one["OutputKey"]: one["OutputValue"] for one in found.get("Outputs", [])}

    def _client(self, service: str) -> Any:  # noqa: ANN401 - any service
        make: Any = self.session.client
        return make(service, endpoint_url=self.endpoint_url)
