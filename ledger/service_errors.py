"""One table from what botocore raises to the errors of this library."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from botocore import exceptions as sdk

from countledger.ledger.errors import (
    AccessDenied,
    BadSetting,
    CountledgerError,
    NoCredentials,
    RequestRejected,
    ServiceFailed,
    TableNotFound,
    Throttled,
    TokenMismatch,
    Unclear,
    Unreachable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_BY_CODE: Final[dict[str, type[CountledgerError]]] = {
    "ResourceNotFoundException": TableNotFound,
    "AccessDenied": AccessDenied,
    "AccessDeniedException": AccessDenied,
    "UnrecognizedClientException": NoCredentials,
    "InvalidSignatureException": NoCredentials,
    "InvalidClientTokenId": NoCredentials,
    "MissingAuthenticationTokenException": NoCredentials,
    "ExpiredToken": NoCredentials,
    "ExpiredTokenException": NoCredentials,
    "ValidationException": RequestRejected,
    "ValidationError": RequestRejected,
    "SerializationException": RequestRejected,
    "ItemCollectionSizeLimitExceededException": RequestRejected,
    "ProvisionedThroughputExceededException": Throttled,
    "ThrottlingException": Throttled,
    "Throttling": Throttled,
    "RequestLimitExceeded": Throttled,
    "TransactionConflictException": Throttled,
    "ReplicatedWriteConflictException": Throttled,
    "IdempotentParameterMismatchException": TokenMismatch,
    # An earlier request with this token is being carried out: its end is not known yet.
    "TransactionInProgressException": Unclear,
}
_ADVICE: Final[dict[type[CountledgerError], str]] = {
    TableNotFound: "check the stack name, the region and COUNTLEDGER_*_TABLE",
    AccessDenied: "attach the stack's emit, read, operate or compact policy to this identity",
    NoCredentials: "set AWS_PROFILE or AWS_ACCESS_KEY_ID / AWS_SECRET_ACCESS_KEY, or sign in again",
    Unreachable: "check the network, the region and AWS_ENDPOINT_URL (`countledger status`)",
}
_SERVER_FAULT: Final = 500


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn what the SDK raises inside into this library's errors.

    Args:
        what: the call and its object, as in `PutItem on my-table`, for the message.
    """
    try:
        yield
    except sdk.ClientError as error:
        raise _from_answer(what, error) from error
    except (sdk.NoCredentialsError, sdk.PartialCredentialsError, sdk.CredentialRetrievalError) as e:
        raise _explain(NoCredentials, what, e) from e
    except (sdk.NoRegionError, sdk.ProfileNotFound, sdk.InvalidRegionError) as e:
        raise BadSetting(f"{what}: {e}; set AWS_REGION and AWS_PROFILE to ones that exist") from e
    except (
        sdk.EndpointConnectionError,
        sdk.ConnectTimeoutError,
        sdk.ProxyConnectionError,
        sdk.SSLError,
    ) as e:
        raise _explain(Unreachable, what, e) from e
    except (sdk.HTTPClientError, sdk.ResponseStreamingError) as e:
        raise Unclear(f"{what}: no clear answer ({e})") from e
    except ValueError as e:
        if "Invalid endpoint" not in str(e):
            raise
        raise BadSetting(f"{what}: {e}; give a URL such as http://127.0.0.1:4566") from e


def _from_answer(what: str, error: sdk.ClientError) -> CountledgerError:
    code = error.response["Error"]["Code"]
    status = error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
    if status >= _SERVER_FAULT and code not in _BY_CODE:
        return Unclear(f"{what}: no clear answer ({code})")
    return _explain(_BY_CODE.get(code, ServiceFailed), what, error)


def _explain(kind: type[CountledgerError], what: str, error: Exception) -> CountledgerError:
    if isinstance(error, sdk.ClientError):
        answer = error.response["Error"]
        reason = f"{answer['Code']}: {answer.get('Message', '')}"
    else:
        reason = str(error)
    advice = _ADVICE.get(kind)
    text = " ".join(f"{what}: {reason}".split()).rstrip(".")
    return kind(f"{text}; {advice}" if advice else text)
