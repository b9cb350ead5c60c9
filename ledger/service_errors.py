"""One table from what botocore raises to the errors of this library."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError

from countledger.ledger.errors import (
    AccessDenied,
    BadSetting,
    CountledgerError,
    NoCredentials,
    RequestRejected,
    ServiceFailed,
    SetupError,
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
    "SignatureDoesNotMatch": NoCredentials,
    "InvalidClientTokenId": NoCredentials,
    "MissingAuthenticationToken": NoCredentials,
    "MissingAuthenticationTokenException": NoCredentials,
    "ExpiredToken": NoCredentials,
    "ExpiredTokenException": NoCredentials,
    "RequestExpired": NoCredentials,
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
    TableNotFound: "check the table, the stack name, the region and COUNTLEDGER_*_TABLE",
    AccessDenied: "attach the stack's policy for what it does (docs/permissions.md)",
    NoCredentials: "set AWS_PROFILE or AWS_ACCESS_KEY_ID / AWS_SECRET_ACCESS_KEY, or sign in again",
    BadSetting: "set AWS_REGION and AWS_PROFILE to ones that exist",
    Unclear: "no clear answer came",
    Unreachable: "check the network, the region and AWS_ENDPOINT_URL (`countledger status`)",
}
_OTHER_SCHEMA: Final = "does not match the schema"
_SERVER_FAULT: Final = 500
_CREDENTIALS: Final = (
    sdk.NoCredentialsError,
    sdk.PartialCredentialsError,
    sdk.CredentialRetrievalError,
    sdk.TokenRetrievalError,
    sdk.NoAuthTokenError,
    sdk.SSOError,
    sdk.LoginError,
)
_CONFIGURATION: Final = (
    sdk.NoRegionError,
    sdk.ProfileNotFound,
    sdk.InvalidRegionError,
    sdk.ConfigNotFound,
    sdk.ConfigParseError,
    sdk.InvalidConfigError,
)
_NO_CONNECTION: Final = (
    sdk.EndpointConnectionError,
    sdk.ConnectTimeoutError,
    sdk.ProxyConnectionError,
)
# These fail in the handshake, before a request is sent. Any other break of TLS may come behind it.
_HANDSHAKE: Final = ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER")
# The last one is no error of the service: what came is not in its language.
_NO_ANSWER: Final = (
    sdk.HTTPClientError,
    sdk.IncompleteReadError,
    sdk.ChecksumError,
    ResponseParserError,
)
_BAD_URL: Final = ("Invalid endpoint", "Invalid IPv6 URL")


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
    except _CREDENTIALS as error:
        raise _explain(NoCredentials, what, error) from error
    except _CONFIGURATION as error:
        raise _explain(BadSetting, what, error) from error
    except _NO_CONNECTION as error:
        raise _explain(Unreachable, what, error) from error
    except sdk.SSLError as error:
        nothing_sent = any(reason in str(error) for reason in _HANDSHAKE)
        raise _explain(Unreachable if nothing_sent else Unclear, what, error) from error
    except _NO_ANSWER as error:
        raise _explain(Unclear, what, error) from error
    except sdk.BotoCoreError as error:
        # It never left this machine: a name that cannot be, a part of the SDK that is missing.
        raise _explain(SetupError, what, error) from error
    except (ValueError, ArithmeticError) as error:
        ours = _before_sending(what, error)
        if ours is None:
            raise
        raise ours from error


def _before_sending(what: str, error: Exception) -> CountledgerError | None:
    """What a request is refused for before it is made; None: no error of the SDK's."""
    if isinstance(error, ArithmeticError):
        # boto3 spells no number that the service would have to round.
        return RequestRejected(f"{what}: a number needs more than 38 digits")
    if str(error).startswith(_BAD_URL):
        return BadSetting(f"{what}: {error}; give an endpoint such as http://127.0.0.1:4566")
    return None


def _from_answer(what: str, error: sdk.ClientError) -> CountledgerError:
    code = error.response["Error"]["Code"]
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code == "ValidationException" and _OTHER_SCHEMA in error.response["Error"].get(
        "Message", ""
    ):
        # A matter of set-up, not of the one item: it would fail for every other one as well.
        return _explain(TableNotFound, what, error)
    if status >= _SERVER_FAULT and code not in _BY_CODE:
        return _explain(Unclear, what, error)
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
