"""What else there is to say of each candidate for a transport: size, start, and what it lacks."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from tools.bench.rounds import environment, servers
from tools.bench.starting import STACK, cpu_ms

if TYPE_CHECKING:
    from collections.abc import Callable

_MB: Final = 1 << 20
_SDK: Final = ("boto3", "botocore", "s3transfer", "jmespath", "urllib3", "python-dateutil")
_AIOHTTP: Final = ("aiohttp", "yarl", "multidict", "frozenlist", "aiosignal", "propcache")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate for a transport.

    Attributes:
        name: its rows.
        packages: what it installs, its dependencies included.
        first_call: a program that makes one call.
        lacks: what a ledger needs and it has not.
    """

    name: str
    packages: tuple[str, ...]
    first_call: str
    lacks: str


_ITEM: Final = """TableName="ledger", Item={"counter": {"S": "x"}, "entry": {"S": "y"}}"""
_NOTHING: Final = "nothing"
# In the order of their rows.
CANDIDATES: Final = (
    Candidate("boto3", _SDK, f"import boto3\nboto3.client('dynamodb').put_item({_ITEM})", _NOTHING),
    Candidate(
        "boto3, tuned",
        _SDK,
        "import boto3\nfrom botocore.config import Config\n"
        "config = Config(parameter_validation=False, user_agent='x')\n"
        f"boto3.client('dynamodb', config=config).put_item({_ITEM})",
        _NOTHING,
    ),
    Candidate(
        "pynamodb",
        ("pynamodb", *_SDK),
        """
import os
from pynamodb.attributes import UnicodeAttribute
from pynamodb.models import Model

class Row(Model):
    class Meta:
        table_name = "ledger"
        region = "us-east-1"
        host = os.environ["AWS_ENDPOINT_URL"]

    counter = UnicodeAttribute(hash_key=True)
    entry = UnicodeAttribute(range_key=True)

Row("x", "y").save(add_version_condition=False)
""",
        "speed: botocore makes its calls",
    ),
    Candidate(
        "aiodynamo",
        ("aiodynamo", *_AIOHTTP),
        """
import asyncio, os
from aiodynamo.client import Client
from aiodynamo.credentials import Key, StaticCredentials
from aiodynamo.http.aiohttp import AIOHTTP
from aiohttp import ClientSession
from yarl import URL

async def put():
    async with ClientSession() as session:
        url, key = URL(os.environ["AWS_ENDPOINT_URL"]), StaticCredentials(Key("x", "y"))
        client = Client(AIOHTTP(session), key, "us-east-1", url)
        await client.put_item("ledger", {"counter": "x", "entry": "y"})

asyncio.run(put())
""",
        "threads; consumed units; the stored item after a failed condition; a check after signing",
    ),
    Candidate(
        "pydynox",
        ("pydynox",),
        """
import os
from pydynox import DynamoDBClient
client = DynamoDBClient("us-east-1", "x", "y", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
client.sync_put_item("ledger", {"counter": "x", "entry": "y"})
""",
        "consumed units of batches and transactions; a check after signing",
    ),
    Candidate(
        "countledger's own",
        ("orjson", *_SDK),
        "from countledger import CountLedger\n"
        f"CountLedger().connection.dynamo('none').client.put_item({_ITEM})",
        _NOTHING,
    ),
)


def size_mb(packages: tuple[str, ...]) -> float:
    """The size of installed packages in MB; those that are not installed count nothing."""
    return sum(map(_size, packages)) / _MB


def _size(package: str) -> int:
    try:
        listed = files(package) or []
    except PackageNotFoundError:
        return 0
    return sum(one.locate().stat().st_size for one in listed if one.locate().is_file())  # type: ignore[attr-defined]


def measured(rounds: int, show: Callable[[str], object]) -> list[dict[str, Any]]:
    """Start and size of each, as they are kept."""
    show("first calls of the candidates for a transport")
    with servers([0]) as urls:
        variables = {**environment(), **STACK, "AWS_ENDPOINT_URL": urls[0]}
        variables["COUNTLEDGER_TRANSPORT"] = "fast"
        starts = [
            {one.name: cpu_ms(("-c", one.first_call), variables) for one in CANDIDATES}
            for _ in range(rounds)
        ]
    return [
        {
            "name": one.name,
            "start_ms": median(costs[one.name] for costs in starts),
            "size_mb": size_mb(one.packages),
        }
        for one in CANDIDATES
    ]
