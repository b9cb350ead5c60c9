"""A table of its own with a real function behind a pump, to see what a mapping delivers."""

import io
import json
import uuid
import zipfile
from dataclasses import dataclass
from typing import Any

from countledger.infra.local.pump import Pump
from countledger.infra.local.shards import OnFailure
from countledger.infra.local.stack import LocalStack
from countledger.infra.template import MappingSettings, table_schemas

# It notes each event. An entry named `raise...` makes it fail, one named `report...` is reported,
# one named `nonsense...` has it report an unknown number, until the item `healed` exists.
CODE = """
import json, os
import boto3

table = boto3.resource("dynamodb").Table(os.environ["NOTES"])

def handler(event, context):
    names = [one["dynamodb"]["Keys"]["entry"]["S"].removeprefix("e#") for one in event["Records"]]
    note = {name: event.get(name) for name in
            ("shardId", "window", "state", "isFinalInvokeForWindow", "eventSourceARN")}
    note["names"] = names
    note["first"] = event["Records"][0] if event["Records"] else None
    table.update_item(
        Key={"counter": "notes", "part": "total"},
        UpdateExpression="SET notes = list_append(if_not_exists(notes, :none), :note)",
        ExpressionAttributeValues={":none": [], ":note": [json.dumps(note)]},
    )
    print(len(names))
    seen = (event.get("state") or {}).get("seen", 0) + len(names)
    answer = {"state": {"seen": seen}}
    if "Item" in table.get_item(Key={"counter": "healed", "part": "total"}):
        return answer
    if any(name.startswith("raise") for name in names):
        raise RuntimeError("malformed")
    if any(name.startswith("nonsense") for name in names):
        return {**answer, "batchItemFailures": [{"itemIdentifier": ""}]}
    return {**answer, "batchItemFailures": [
        {"itemIdentifier": one["dynamodb"]["SequenceNumber"]}
        for one, name in zip(event["Records"], names) if name.startswith("report")
    ]}
"""


@dataclass(frozen=True)
class Probe:
    """The table, the function, and the notes that the function makes."""

    stack: LocalStack
    table: str
    notes_table: str
    stream_arn: str
    function: str

    def put(self, *names: str, prefix: str = "e#") -> None:
        """Write one entry for each name, in order."""
        dynamodb = self.stack.client("dynamodb")
        for name in names:
            item = {"counter": {"S": "c"}, "entry": {"S": prefix + name}, "raw": {"B": b"\x00\xff"}}
            dynamodb.put_item(TableName=self.table, Item=item)

    def heal(self) -> None:
        """From now on the function succeeds."""
        item = {"counter": {"S": "healed"}, "part": {"S": "total"}}
        self.stack.client("dynamodb").put_item(TableName=self.notes_table, Item=item)

    def notes(self) -> list[dict[str, Any]]:
        """What the function was called with, in order."""
        answer = self.stack.client("dynamodb").get_item(
            TableName=self.notes_table,
            Key={"counter": {"S": "notes"}, "part": {"S": "total"}},
            ConsistentRead=True,
        )
        stored = answer.get("Item", {}).get("notes", {"L": []})["L"]
        return [json.loads(one["S"]) for one in stored]

    def delivered(self) -> list[list[str]]:
        """The names in each call that brought any: the end of a window brings none."""
        return [note["names"] for note in self.notes() if note["names"]]

    def pump(self, settings: MappingSettings, on_failure: OnFailure | None = None) -> Pump:
        """A pump from the table to the function."""
        return self.stack.new_pump(
            settings,
            stream_arn=self.stream_arn,
            function_name=self.function,
            on_failure=on_failure,
        )


def make_probe(stack: LocalStack) -> Probe:
    """Make the table and the function, under names of their own."""
    name = f"probe-{uuid.uuid4().hex[:12]}"
    dynamodb, schemas = stack.client("dynamodb"), table_schemas()
    made = dynamodb.create_table(TableName=name, **schemas["ledger"].create_table)
    dynamodb.create_table(TableName=f"{name}-notes", **schemas["counters"].create_table)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("probe.py", CODE)
    stack.client("lambda").create_function(
        FunctionName=name,
        Runtime="python3.13",
        Role="arn:aws:iam::000000000000:role/probe",
        Handler="probe.handler",
        Code={"ZipFile": buffer.getvalue()},
        Timeout=30,
        Environment={"Variables": {"NOTES": f"{name}-notes"}},
    )
    return Probe(stack, name, f"{name}-notes", made["TableDescription"]["LatestStreamArn"], name)
