"""A server whose tables are large and made up page by page: what a client keeps is its own.

Of a counter it shows so many entries, all old; of the table of totals so many counters, each of
which has one entry. It remembers heads, and up to where the entries were deleted.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

from tools.bench import canned
from tools.bench.processor import SERVER, stay_on

# The counter with many entries; every other one has one.
LARGE: Final = "bench:large"
_PAGE: Final = 10_000
_AT: Final = {"N": "1700000000000"}
_ONE: Final = {"N": "1"}
_HERE: Final = {"S": "us-east-1"}
_HEAD: Final = {"S": "s#head"}
_READ: Final = 1.0


class LargeTables:
    """The answers of such tables.

    Attributes:
        size: the number of entries, and of counters.
        heads: of the counters, as they were put.
    """

    def __init__(self, size: int) -> None:
        """Tables without any head.

        Args:
            size: the number of entries, and of counters.
        """
        self.size = size
        self.heads: dict[str, dict[str, Any]] = {}
        # Entries are deleted in their order.
        self._deleted = 0

    def answer_to(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a call."""
        if operation == "Query":
            return self._query(request)
        if operation == "Scan":
            return self._scan(request)
        if operation == "TransactWriteItems":
            numbers = [
                _number_after(one["Delete"]["Key"]["entry"]) for one in request["TransactItems"]
            ]
            self._deleted = max(self._deleted, *numbers)
        if operation == "PutItem" and request["Item"].get("entry") == _HEAD:
            self.heads[request["Item"]["counter"]["S"]] = request["Item"]
        if operation == "GetItem" and request["Key"].get("entry") == _HEAD:
            head = self.heads.get(request["Key"]["counter"]["S"])
            return {"ConsumedCapacity": _units(request), **({"Item": head} if head else {})}
        if operation == "BatchGetItem":
            return self._batch_get(request)
        if operation == "DescribeTable":
            return {"Table": {"TableName": request["TableName"], "TableStatus": "ACTIVE"}}
        return canned.answer_to(operation, request)

    def _query(self, request: dict[str, Any]) -> dict[str, Any]:
        texts = [one["S"] for one in request["ExpressionAttributeValues"].values() if "S" in one]
        counter = next(text for text in texts if not text.startswith("e#"))
        count = self.size if counter == LARGE else 1
        if "e#k" in texts:  # entries of bare keys
            count = 0
        bounds = [int(text[2:10], 16) for text in texts if text.startswith("e#") and text[10:]]
        count = min(count, max(bounds, default=count) + 1)
        first = _number_after(request.get("ExclusiveStartKey", {}).get("entry"))
        if counter == LARGE:
            first = max(first, self._deleted)
        end = min(count, first + min(request.get("Limit", _PAGE), _PAGE))
        items = [_entry(counter, number) for number in range(first, end)]
        answer = {"Items": items, "Count": len(items), "ConsumedCapacity": _units(request)}
        if end < count:
            answer["LastEvaluatedKey"] = {name: items[-1][name] for name in ("counter", "entry")}
        return answer

    def _scan(self, request: dict[str, Any]) -> dict[str, Any]:
        """The counters of a segment; of the other table nothing, as if all were compacted."""
        if request["TableName"] != "bench-counters":
            return {"Items": [], "ConsumedCapacity": _units(request)}
        segment, segments = request["Segment"], request["TotalSegments"]
        after = request.get("ExclusiveStartKey", {}).get("counter")
        first = int(after["S"].partition(":")[2]) + 1 if after else self.size * segment // segments
        last = self.size * (segment + 1) // segments
        end = min(last, first + request.get("Limit", _PAGE))
        items = [
            {"counter": {"S": f"bench:{number}"}, "part": {"S": "total"}}
            for number in range(first, end)
        ]
        answer = {"Items": items, "ConsumedCapacity": _units(request)}
        if items and end < last:
            answer["LastEvaluatedKey"] = items[-1]
        return answer

    def _batch_get(self, request: dict[str, Any]) -> dict[str, Any]:
        """Totals exist; entries that are asked for by name were deleted."""
        responses = {
            table: [key for key in of["Keys"] if "part" in key]
            for table, of in request["RequestItems"].items()
        }
        return {
            "Responses": responses,
            "UnprocessedKeys": {},
            "ConsumedCapacity": [_units({"TableName": table}) for table in responses],
        }


def _units(request: dict[str, Any]) -> dict[str, Any]:
    return {"TableName": request["TableName"], "CapacityUnits": _READ}


def _entry(counter: str, number: int) -> dict[str, Any]:
    return {
        "counter": {"S": counter},
        "entry": {"S": f"e#{number:08x}-0000-7000-8000-000000000000"},
        "delta": _ONE,
        "at": _AT,
        "origin": _HERE,
    }


def _number_after(entry: dict[str, str] | None) -> int:
    return int(entry["S"][2:10], 16) + 1 if entry else 0


if __name__ == "__main__":
    stay_on(SERVER)
    asyncio.run(canned.serve(0.0, LargeTables(int(sys.argv[1])).answer_to))
