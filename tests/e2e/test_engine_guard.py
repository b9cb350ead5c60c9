"""The engine answers programs that know its secret, and nobody else on this machine."""

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SigningKey
from botocore.exceptions import ClientError

from countledger.infra.local.engine import ROOT_KEY, ROOT_SECRET
from countledger.infra.local.following import proves
from countledger.infra.local.stack import Credentials, LocalStack

_TARGET: Final = {
    "Content-Type": "application/x-amz-json-1.0",
    "X-Amz-Target": "DynamoDB_20120810.ListTables",
}
# As any user of the machine could who reads this source. It is loaded before it becomes another
# user, who may not enter the directories of the test's interpreter.
_STRANGER: Final = """
import boto3, os, sys
client = boto3.client("lambda", endpoint_url=sys.argv[1], region_name="us-east-1",
    aws_access_key_id="000000000000", aws_secret_access_key="local")

def call():
    try:
        client.list_functions()
    except client.exceptions.ClientError as error:
        return error.response["ResponseMetadata"]["HTTPStatusCode"]
    return "answered"

call()
os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(call())
try:
    open(f"/proc/{sys.argv[2]}/environ").read()
except PermissionError:
    print("no secret")
"""


def _ask(stack: LocalStack, headers: Mapping[str, str], path: str = "/") -> tuple[int, str]:
    connection = HTTPConnection(str(urlsplit(stack.url).netloc), timeout=30)
    try:
        connection.request("POST", path, "{}", dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def _signed(stack: LocalStack, secret: str = ROOT_SECRET, **more: str) -> dict[str, str]:
    request = AWSRequest("POST", f"{stack.url}/", {**_TARGET, **more}, b"{}")
    SigV4Auth(SigningKey(ROOT_KEY, secret), "dynamodb", "us-east-1").add_auth(request)
    return dict(request.headers)


def test_a_signed_request_is_answered_and_one_with_another_body_is_not(stack: LocalStack) -> None:
    signed = _signed(stack)

    assert _ask(stack, signed)[0] == 200
    assert _ask(stack, signed | {"X-Amz-Target": "DynamoDB_20120810.DescribeLimits"})[0] == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Referer": "http://127.0.0.1:8000/"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Mode": "navigate"},
        {"Host": "evil.example"},
        {"Host": "evil.example:4566"},
        {"Host": "127.0.0.1.evil.example"},
    ],
    ids=str,
)
def test_what_a_page_sends_is_refused_also_if_it_is_signed(
    stack: LocalStack, headers: dict[str, str]
) -> None:
    status, text = _ask(stack, _signed(stack, **headers))

    assert (status, json.loads(text)["__type"]) == (403, "AccessDeniedException")


@pytest.mark.parametrize(
    "path",
    ["/", "/_ministack/health", "/_ministack/reset", "/_ministack/config", "/2015-03-31/functions"],
)
def test_an_unsigned_request_is_refused(stack: LocalStack, path: str) -> None:
    name_of_root = {
        "Authorization": f"AWS4-HMAC-SHA256 Credential={ROOT_KEY}/20261127/us-east-1/dynamodb/"
        "aws4_request, SignedHeaders=host, Signature=0"
    }
    for headers in (_TARGET, {}, _TARGET | name_of_root, _signed(stack, "local")):
        assert _ask(stack, headers, path)[0] == 403

    assert stack.client("dynamodb").list_tables()["TableNames"]


@pytest.mark.parametrize("key", ["000000000000", "111111111111", "test", "AKIAIOSFODNN7EXAMPLE"])
def test_keys_that_the_engine_gave_nobody_are_refused_in_words_that_an_sdk_reads(
    stack: LocalStack, key: str
) -> None:
    stranger = Credentials(key, "local")
    for service, call in (
        ("dynamodb", "list_tables"),
        ("sqs", "list_queues"),
        ("s3", "list_buckets"),
        ("lambda", "list_functions"),
        ("cloudformation", "list_stacks"),
    ):
        with pytest.raises(ClientError, match="countledger up") as refused:
            getattr(stack.client(service, stranger), call)()
        code = refused.value.response["Error"]["Code"]
        assert code in {"InvalidSignatureException", "SignatureDoesNotMatch"}


@pytest.mark.skipif(os.getuid() != 0, reason="another user of the machine is played by root alone")
def test_another_user_of_the_machine_is_refused_and_cannot_read_the_secret(
    stack: LocalStack,
) -> None:
    found = subprocess.run(
        [sys.executable, "-c", _STRANGER, stack.url, str(stack.engine.pid)],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (found.stdout.split("\n")[:2], found.stderr) == (["403", "no secret"], "")
    assert ROOT_SECRET.encode() not in Path(f"/proc/{stack.engine.pid}/cmdline").read_bytes()


def test_a_function_signs_with_keys_that_the_engine_knows(stack: LocalStack) -> None:
    archive, client = io.BytesIO(), stack.client("lambda")
    source = (
        "import boto3\ndef handler(e, c):\n    return boto3.client('sts').get_caller_identity()"
    )
    with zipfile.ZipFile(archive, "w") as code:
        code.writestr("who.py", source + "['Account']\n")
    client.create_function(
        FunctionName="who",
        Runtime="python3.13",
        Role="arn:aws:iam::000000000000:role/who",
        Handler="who.handler",
        Code={"ZipFile": archive.getvalue()},
        Timeout=30,
    )

    assert json.loads(client.invoke(FunctionName="who")["Payload"].read()) == ROOT_KEY
    client.delete_function(FunctionName="who")


def test_an_engine_proves_that_it_has_the_secret_and_another_program_does_not(
    stack: LocalStack,
) -> None:
    ours = stack.environment()

    assert proves(ours)
    assert not proves(ours | {"AWS_SECRET_ACCESS_KEY": ROOT_SECRET + "x"})
    assert not proves(ours | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
