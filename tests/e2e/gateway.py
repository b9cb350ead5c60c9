"""A caller of the HTTP API of a deployed stack, through the engine's API Gateway."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import parse_qsl, quote, urlencode
from urllib.request import Request, urlopen

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SigningKey

from countledger.infra.local.engine import REGION, ROOT_SECRET
from countledger.infra.local.following import SECRET_HEADER
from countledger.infra.local.stack import Credentials

# Of a page that may call the API of the shared stack.
ORIGIN: Final = "https://shop.example"
_PATIENCE_S: Final = 60.0


@dataclass(frozen=True)
class HttpAnswer:
    """What the gateway answered.

    Attributes:
        status: its code.
        headers: by their names in small letters.
        body: as bytes.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - the test knows
        """The body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Gateway:
    """The gateway of a stack.

    Attributes:
        engine: the address of the engine.
        api: the id of the API.
    """

    engine: str
    api: str

    @classmethod
    def of(cls, engine: str, outputs: Mapping[str, str]) -> Gateway:
        """The gateway in the outputs of a stack; on the engine it is found by a path."""
        return cls(engine, outputs["HttpApiArn"].rpartition(":")[2].partition("/")[0])

    def __call__(
        self,
        request: str,
        body: object = None,
        *,
        signed_by: Credentials | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        """Send a request: method and path."""
        method, target = request.split()
        path, _, query = target.partition("?")
        # As it is signed.
        encoded = urlencode(sorted(parse_qsl(query)), quote_via=quote)
        address = f"{self.engine}/_aws/execute-api/{self.api}/$default{path}"
        address += f"?{encoded}" if encoded else ""
        data = None if body is None else json.dumps(body).encode()
        sent = dict(headers or {})
        if data is not None:
            sent["Content-Type"] = "application/json"
        if signed_by is not None:
            signed = AWSRequest(method, address, data=data, headers=sent)
            key = SigningKey(signed_by.access_key, signed_by.secret_key)
            SigV4Auth(key, "execute-api", REGION).add_auth(signed)
            sent = dict(signed.headers)
        sent[SECRET_HEADER] = ROOT_SECRET
        try:
            answer = urlopen(  # noqa: S310 - the engine of the test
                Request(address, data, sent, method=method),  # noqa: S310 - as above
                timeout=_PATIENCE_S,
            )
        except HTTPError as refused:
            answer = refused
        with answer:
            fields = {name.lower(): value for name, value in answer.headers.items()}
            return HttpAnswer(answer.status, fields, answer.read())
