"""One table from what botocore raises to the errors of this library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError

from countledger.ledger.attributes import decode
from countledger.ledger.departure import attempts_noted, never_sent
from countledger.ledger.errors import (
    AccessDenied,
    BadSetting,
    ConditionFailed,
    CountledgerError,
    LeaseEnded,
    NoCredentials,
    Reason,
    RequestRejected,
    ServiceFailed,
    SetupError,
    SumOverflow,
    TableNotFound,
    TargetRefused,
    Throttled,
    TokenMismatch,
    TransactionCancelled,
    Unclear,
    Unreachable,
)
from countledger.ledger.suspension import Interrupted, note_write

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item
    from countledger.ledger.departure import SentAttempts
    from countledger.ledger.dynamo import Meter

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
    # An earlier request with this token is under way: its result is not known yet.
    "TransactionInProgressException": Unclear,
    # SNS has names of its own.
    "NotFound": TargetRefused,
    "AuthorizationError": AccessDenied,
    "KMSAccessDenied": AccessDenied,
    "Throttled": Throttled,
}
_ADVICE: Final[dict[type[CountledgerError], str]] = {
    TableNotFound: "check the table, the stack name, the region and COUNTLEDGER_*_TABLE",
    AccessDenied: "attach the stack's policy for what it does (docs/permissions.md)",
    NoCredentials: "set AWS_PROFILE or AWS_ACCESS_KEY_ID / AWS_SECRET_ACCESS_KEY, or sign in again",
    BadSetting: "set AWS_REGION and AWS_PROFILE to ones that exist",
    Unclear: "no clear answer came",
    Unreachable: "check the network, the region and AWS_ENDPOINT_URL (`countledger status`)",
}
_CONFLICT: Final = "TransactionConflictException"
_IN_PROGRESS: Final = "TransactionInProgressException"
# What calls that only read begin with, in every service.
_READ_VERBS: Final = ("Get", "BatchGet", "TransactGet", "Query", "Scan", "Describe", "List", "Head")
_UNANSWERED: Final = "no answer came; this was a read and changed nothing: try again"
# With these the SDK repeats a call, whatever the answer says.
_PASSING: Final = (500, 502, 503, 504)
_OTHER_SCHEMA: Final = "does not match the schema"
# What the service says of a sum, or a number, that needs more than 38 digits.
_OVERFLOW: Final = ("number overflow", "number underflow", "38 significant digits")
# What the service says of a request that is signed for another time.
_OTHER_TIME: Final = ("signature expired", "signature not yet current")
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
# The last one is no error of the service: the answer is not in its format.
_NO_ANSWER: Final = (
    sdk.ConnectionError,
    sdk.HTTPClientError,
    sdk.IncompleteReadError,
    sdk.ChecksumError,
    ResponseParserError,
)
_CONDITION_FAILED: Final = "ConditionalCheckFailedException"
_CANCELLED: Final = "TransactionCanceledException"
_BAD_URL: Final = ("Invalid endpoint", "Invalid IPv6 URL")


class translated:  # noqa: N801 - a context manager
    """Turn what the SDK raises inside into this library's errors.

    `what` names the one call and its object for the message, as in `PutItem on my-table`.

    An error of set-up (`Unreachable`, `NoCredentials`, ...) says that nothing was sent, by proof.
    Where a request may have left, what is not an answer of the service is `Unclear`, whatever it
    is.
    """

    __slots__ = ("_attempts", "_noted", "_what")

    def __init__(self, what: str) -> None:
        self._what, self._noted = what, attempts_noted()

    def __enter__(self) -> None:
        self._attempts = self._noted.__enter__()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._noted.__exit__()
        meaning: BaseException | None = error
        if isinstance(error, Exception) and not isinstance(error, CountledgerError):
            meaning = _meaning_of(error, self._attempts, self._what) or error
        elif isinstance(error, Interrupted):
            self._attempts.withdrawn = True
            error.left = self._attempts.maybe_applied or self._attempts.begun
        if isinstance(meaning, ConditionFailed | TransactionCancelled):
            meaning.maybe_applied = self._attempts.unclear
        elif self._attempts.unclear and isinstance(meaning, Throttled | Unreachable | LeaseEnded):
            meaning = Unclear(f"{meaning}; an earlier attempt got no clear answer")
        if _may_be_applied(meaning) and not self._what.startswith(_READ_VERBS):
            note_write()
        if meaning is not error and meaning is not None:
            raise meaning from error


class conditions:  # noqa: N801 - likewise
    """Turn failed conditions into errors of their own before they pass for failed calls."""

    __slots__ = ("_meter", "_write_units")

    def __init__(self, meter: Meter, write_units: float = 1.0) -> None:
        self._meter, self._write_units = meter, write_units

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, sdk.ClientError):
            return
        answer: Any = error.response
        code = answer["Error"]["Code"]
        if code not in {_CONDITION_FAILED, _CANCELLED}:
            return
        self._meter.refused(self._write_units)
        if code == _CONDITION_FAILED:
            raise ConditionFailed(_found(answer)) from error
        reasons = answer.get("CancellationReasons", [])
        raise TransactionCancelled(
            tuple(Reason(one.get("Code", "None"), _found(one)) for one in reasons)
        ) from error


def _found(answer: Any) -> Item | None:  # noqa: ANN401 - an error's answer, or a reason in one
    """The item that a failed condition met."""
    item = answer.get("Item")
    return decode(item) if item else None


def _may_be_applied(error: BaseException | None) -> bool:
    """Whether a call that ended so may have been carried out."""
    return error is None or isinstance(error, Unclear) or getattr(error, "left", False)


def _meaning_of(error: Exception, attempts: SentAttempts, what: str) -> CountledgerError | None:
    """This library's error; None: a fault of the caller's, which is raised as it is."""
    if isinstance(error, sdk.ClientError):
        return _from_answer(what, error)
    kind = _kind_of(error)
    if attempts.maybe_applied or (attempts.begun and kind is not Unreachable):
        kind = Unclear
    return _before_sending(what, error) if kind is None else _explain(kind, what, error)


def may_pass(error: Exception) -> bool:
    """Whether a call that failed so may succeed a moment later: what the SDK would repeat.

    A conflict with a transaction is not repeated at once: its caller may have to read again.
    """
    if isinstance(error, sdk.ClientError):
        code = error.response["Error"]["Code"]
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        throttled = _BY_CODE.get(code) is Throttled and code != _CONFLICT
        return throttled or code == _IN_PROGRESS or status in _PASSING
    return isinstance(error, sdk.ConnectionError | sdk.HTTPClientError)


def _kind_of(error: Exception) -> type[CountledgerError] | None:
    """What an error means if the call made one attempt; None: it is no error of the SDK's."""
    if isinstance(error, _CREDENTIALS):
        return NoCredentials
    if isinstance(error, _CONFIGURATION):
        return BadSetting
    if isinstance(error, _NO_ANSWER):
        return Unreachable if never_sent(error) else Unclear
    if isinstance(error, sdk.BotoCoreError):
        # It never left this machine: an invalid name, or a missing part of the SDK.
        return SetupError
    return None


def _before_sending(what: str, error: Exception) -> CountledgerError | None:
    """What a request is refused for before it is made; None: no error of the SDK's."""
    if isinstance(error, ArithmeticError):
        # boto3 spells no number that the service would have to round.
        return SumOverflow(f"{what}: a number needs more than 38 digits")
    if isinstance(error, ValueError) and str(error).startswith(_BAD_URL):
        return BadSetting(f"{what}: {error}; give an endpoint such as http://127.0.0.1:4566")
    return None


def _from_answer(what: str, error: sdk.ClientError) -> CountledgerError:
    code = error.response["Error"]["Code"]
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code == "ValidationException":
        message = error.response["Error"].get("Message", "")
        if _OTHER_SCHEMA in message:
            # A matter of set-up, not of this item: it would fail for every other item as well.
            return _explain(TableNotFound, what, error)
        if any(words in message.lower() for words in _OVERFLOW):
            return _explain(SumOverflow, what, error)
    if any(words in error.response["Error"].get("Message", "").lower() for words in _OTHER_TIME):
        return _explain(NoCredentials, what, error, "set the clock of this machine")
    # botocore uses the status as the code if the answer is not in the service's format.
    foreign = code.isdigit()
    if (foreign or status >= _SERVER_FAULT) and code not in _BY_CODE:
        return _explain(Unclear, what, error)
    return _explain(_BY_CODE.get(code, ServiceFailed), what, error)


def _explain(
    kind: type[CountledgerError], what: str, error: Exception, advice: str | None = None
) -> CountledgerError:
    if isinstance(error, sdk.ClientError):
        answer = error.response["Error"]
        reason = f"{answer['Code']}: {answer.get('Message', '')}"
    else:
        reason = str(error)
    if kind is Unclear and what.startswith(_READ_VERBS):
        advice = _UNANSWERED
    advice = advice or _ADVICE.get(kind)
    text = " ".join(f"{what}: {reason}".split()).rstrip(".")
    return kind(f"{text}; {advice}" if advice else text)
