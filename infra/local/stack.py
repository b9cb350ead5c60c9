"""The whole product on this machine: engine, deployed template, patches, pumps, replication.

Dispatcher and workers of compaction run on the engine as they are: its schedules fire (a rate first
after a whole interval), and its mapping of a queue honours partial failures.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from botocore.exceptions import BotoCoreError, ClientError

from countledger.infra.local.engine import REGION, Engine, Kept
from countledger.infra.local.mappings import MATERIALIZER, StreamMapping
from countledger.infra.local.pump import Pump
from countledger.infra.local.region_stack import (
    ROOT,
    Credentials,
    RegionStack,
    empty_bundle,
    session_of,
)
from countledger.infra.local.replication import Replicator
from countledger.infra.local.running import STACK_NAME, check_regions
from countledger.infra.local.saved_stack import SavedStack, StackDirectory

if TYPE_CHECKING:
    import boto3
    from botocore.config import Config

__all__ = ["ROOT", "STACK_NAME", "Credentials", "LocalStack", "check_regions", "session_of"]

_LOG: Final = logging.getLogger(__name__)
_PARAMETERS: Final = {
    "DeletionProtection": "false",
    "LogLevel": "INFO",
    "MaxCompactors": "2",  # every worker is a process here
}


class LocalStack:
    """The deployed stack on the embedded engine, for a `with` block.

    Attributes:
        name: of the stack, the same in each region.
        engine: the engine that it runs on; it has all regions.
        stacks: of the regions, the home region's first.
        home: the home region's. What is not asked of a region's stack is asked of this one.
        replicator: between the regions' ledgers; it replicates in the background if the pumps do.
        found: the stack that was kept, and is started again; None: a new one is deployed.
    """

    stacks: dict[str, RegionStack]
    replicator: Replicator
    found: SavedStack | None

    def __init__(
        self,
        *,
        name: str = STACK_NAME,
        bundle: bytes | None = None,
        auth: bool = False,
        pumping: bool = True,
        parent_dir: Path | None = None,
        parameters: Mapping[str, str] | None = None,
        regions: Sequence[str] = (),
        port: int = 0,
        kept_in: StackDirectory | None = None,
    ) -> None:
        """Describe a stack; nothing runs yet.

        Args:
            name: of the stack.
            bundle: the zip of the functions, built for this interpreter; None: they run from the
                installed package (an editable install: from the checkout).
            auth: whether the engine enforces IAM policies.
            pumping: whether the pumps deliver in the background.
            parent_dir: where the engine makes its private directory.
            parameters: of the template, besides those that a local stack sets.
            regions: where it is deployed, home first; none: in one, or as it is kept.
            port: of the engine; 0: any free one, and the one before if that is free.
            kept_in: where the stack is kept, and from where it is started again; None: nowhere.

        Raises:
            BadSetting: a region has no valid name or is given twice, or there are more than five.
            SavedStackRefused: what is kept there is no such stack.
        """
        self.name = name
        self.found = None if kept_in is None else kept_in.find(name, regions)
        earlier = (REGION,) if self.found is None else self.found.regions
        self.regions = check_regions(regions or earlier)
        self._is_kept = kept_in is not None
        self.engine = Engine(
            auth=auth,
            parent_dir=parent_dir,
            port=port,
            usual_port=0 if self.found is None else self.found.port,
            kept=None if kept_in is None else Kept(kept_in, name, self.regions),
        )
        self._bundle = bundle if bundle is not None else empty_bundle()
        self._pumping = pumping
        self._parameters = dict(parameters or {})
        self._open = ExitStack()
        self._credentials: dict[str, Credentials] = {}

    def __enter__(self) -> Self:
        with self._open as opening:
            opening.enter_context(self.engine)
            if self.found is None or not self._take_up():
                self._deploy()
            self.engine.keep()
            opening.callback(lambda: _stop_pumps(self.stacks.values()))
            for stack in self.stacks.values():
                stack.take_mappings(kept=self._is_kept)
                self._start(stack)
            table = self.outputs["LedgerTableName"]
            copies = {name: one.replica(table) for name, one in self.stacks.items()}
            self.replicator = Replicator(copies)
            opening.callback(self.replicator.stop)
            self._replicate()
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def home(self) -> RegionStack:
        """The stack of the home region."""
        return self.stacks[self.regions[0]]

    @property
    def outputs(self) -> dict[str, str]:
        """Of the home region's stack."""
        return self.home.outputs

    @property
    def pumps(self) -> dict[StreamMapping, Pump]:
        """Those of the home region, which play the event source mappings that the stack has.

        They deliver in the background if asked to; else drive them with `step` and `drain`.
        """
        return self.home.pumps

    @property
    def pump(self) -> Pump:
        """The pump of the home region's materializer."""
        return self.home.pumps[MATERIALIZER]

    @property
    def url(self) -> str:
        """The endpoint of the engine."""
        return self.engine.url

    def environment(self, credentials: Credentials = ROOT) -> dict[str, str]:
        """What a process needs in its environment to work on this stack, in its home region."""
        return self.home.environment(credentials)

    def session(self, credentials: Credentials = ROOT) -> "boto3.Session":
        """The session of these credentials in the home region; the endpoint is `url`."""
        return self.home.session(credentials)

    def client(
        self, service: str, credentials: Credentials = ROOT, *, config: "Config | None" = None
    ) -> Any:  # noqa: ANN401 - the caller knows the type of the client
        """A client of the engine in the home region; by default as the root user."""
        return self.home.client(service, credentials, config=config)

    @property
    def new_pump(self) -> Callable[..., Pump]:
        """Makes a pump of its own in the home region; see `RegionStack.new_pump`."""
        return self.home.new_pump

    def credentials_for(self, *policy_outputs: str, region: str | None = None) -> Credentials:
        """The keys of a user who has exactly these of a stack's policies.

        Args:
            policy_outputs: the outputs that name them: `EmitPolicyArn`, `ReadPolicyArn`,
                `OperatePolicyArn`.
            region: whose stack; None: the home region's.
        """
        stack = self.stacks[region or self.regions[0]]
        names = (name.removesuffix("PolicyArn") for name in policy_outputs)
        user = "-".join(("only", *names, *([region] if region else [])))
        if user not in self._credentials:
            iam = self.client("iam")
            iam.create_user(UserName=user)
            for name in policy_outputs:
                iam.attach_user_policy(UserName=user, PolicyArn=stack.outputs[name])
            key = iam.create_access_key(UserName=user)["AccessKey"]
            self._credentials[user] = Credentials(key["AccessKeyId"], key["SecretAccessKey"])
        return self._credentials[user]

    def drain(self) -> None:
        """Return once all that was sent so far has gone everywhere, and through every function.

        Ways between regions that are cut are not waited for.

        Raises:
            PumpStalled: a function went on failing.
        """
        # What comes through a stream must be in the ledger before it can be replicated.
        self.home.drain()
        if len(self.stacks) > 1:
            self.replicator.drain()
            for stack in self.stacks.values():
                stack.drain()

    def _deploy(self) -> None:
        """The home region's stack, which makes the replicas; then the others, side by side."""
        home, *others = self.regions
        self.stacks = {home: self._stack(home)}
        self.home.deploy(self._bundle, {"ReplicaRegions": ",".join(others)} if others else {})
        if not others:
            return
        table = self.outputs["LedgerTableName"]
        self.stacks |= {region: self._stack(region) for region in others}

        def deploy_in(region: str) -> None:
            stack = self.stacks[region]
            ours = {"LedgerTableName": table, "HomeRegion": home, "StrictRegions": ""}
            ours["StrictTableName"] = self._strict_table_in(region)
            ours["LedgerStreamArn"] = stack.replica(table).stream_arn
            stack.deploy(self._bundle, ours)

        with ThreadPoolExecutor(len(others)) as pool:
            list(pool.map(deploy_in, others))

    def _take_up(self) -> bool:
        """The stacks that were kept, as far as they still exist; whether the home region's does."""
        stacks = {region: self._stack(region) for region in self.regions}
        self.stacks = {name: one for name, one in stacks.items() if one.take_up(self._bundle)}
        return self.regions[0] in self.stacks

    def _strict_table_in(self, region: str) -> str:
        """The table of strict counters over regions, if that region has a copy of it."""
        regions = self._parameters.get("StrictRegions", "").split(",")
        return self.outputs["StrictTableName"] if region in regions else ""

    def _stack(self, region: str) -> RegionStack:
        # Any topic that is made there.
        topics = {"AlertTopicArns": f"arn:aws:sns:{region}:*:*"}
        parameters = {**_PARAMETERS, **topics, **self._parameters}
        return RegionStack(self.name, region, self.url, parameters)

    def follow_replicas(self) -> None:
        """Take up regions that were added to the running stack, and drop those removed from it.

        Entries travel to a region as soon as its replica exists, and are counted there as soon as
        its stack does. One DescribeTable call, and a call for each region without a stack.
        """
        try:
            self._follow_replicas(self.outputs["LedgerTableName"])
        except (BotoCoreError, ClientError):
            # The engine may be out of breath: the next look finds the same.
            _LOG.warning("the regions of the stack could not be read", exc_info=True)

    def _follow_replicas(self, table: str) -> None:
        described = self.client("dynamodb").describe_table(TableName=table)["Table"]
        replicas = {one["RegionName"] for one in described.get("Replicas", ())}
        for region in replicas - self.replicator.copies.keys():
            self.replicator.join(self._stack(region).replica(table))
            self._replicate()
        for region in self.replicator.copies.keys() - replicas - {self.home.region}:
            self.replicator.leave(region)
            if region in self.stacks:
                _stop_pumps([self.stacks.pop(region)])
        for region in replicas - self.stacks.keys():
            stack = self._stack(region)
            if stack.find():
                stack.take_mappings(kept=self._is_kept)
                self._start(stack)
                self.stacks[region] = stack

    def _replicate(self) -> None:
        if self._pumping and len(self.replicator.copies) > 1:
            self.replicator.start()

    def _start(self, stack: RegionStack) -> None:
        if self._pumping:
            for pump in stack.pumps.values():
                pump.start()


def _stop_pumps(stacks: Iterable[RegionStack]) -> None:
    """Stop the pumps side by side: each ends after the invocation that is under way."""
    pumps = [pump for stack in stacks for pump in stack.pumps.values()]
    with ThreadPoolExecutor(max(len(pumps), 1)) as pool:
        list(pool.map(Pump.stop, pumps))
