"""Events of format 2.0, as an API Gateway HTTP API sends them to its function."""

import json
from typing import Any

JWT = {"jwt": {"claims": {"scope": "openid likes:write", "iss": "x"}, "scopes": None}}
IAM = {"iam": {"userArn": "arn:aws:iam::111122223333:user/ann", "accountId": "111122223333"}}


def event_of(
    method: str, path: str, body: object = None, authorizer: object = None, **headers: str
) -> dict[str, Any]:
    """In format 2.0, with the fields that the gateway sends."""
    http = {
        "method": method,
        "path": path,
        "protocol": "HTTP/1.1",
        "sourceIp": "192.0.2.1",
        "userAgent": "curl/8",
    }
    context: dict[str, Any] = {
        "accountId": "111122223333",
        "apiId": "a1b2c3",
        "domainName": "a1b2c3.execute-api.us-east-1.amazonaws.com",
        "domainPrefix": "a1b2c3",
        "http": http,
        "requestId": "r1",
        "routeKey": "ANY /v1/{proxy+}",
        "stage": "$default",
        "time": "23/Nov/2026:05:00:00 +0000",
        "timeEpoch": 1_795_410_000_000,
    }
    if authorizer is not None:
        context["authorizer"] = authorizer
    return {
        "version": "2.0",
        "routeKey": "ANY /v1/{proxy+}",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"content-type": "application/json", "host": "a1b2c3", **headers},
        "requestContext": context,
        "pathParameters": {"proxy": path.removeprefix("/v1/")},
        **({} if body is None else {"body": json.dumps(body)}),
        "isBase64Encoded": False,
    }
