"""Whether calls to AWS stay on this machine."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import urlsplit

_SERVICE_IDS: Final = {"dynamodbstreams": "DYNAMODB_STREAMS"}
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def is_loopback(endpoint_url: str | None, service: str) -> bool:
    """Whether a service's calls stay on this machine, by what is given or by AWS_ENDPOINT_URL*."""
    own = f"AWS_ENDPOINT_URL_{_SERVICE_IDS.get(service, service.upper())}"
    url = endpoint_url or os.environ.get(own) or os.environ.get("AWS_ENDPOINT_URL", "")
    return urlsplit(url).hostname in _LOOPBACK
