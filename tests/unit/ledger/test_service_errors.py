"""One table from what the SDK raises to our errors."""

import pytest
from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError

from countledger.ledger.departure import leave
from countledger.ledger.errors import (
    AccessDenied,
    BadSetting,
    CountledgerError,
    NoCredentials,
    RequestRejected,
    ServiceFailed,
    SetupError,
    SumOverflow,
    TableNotFound,
    TargetRefused,
    Throttled,
    Unclear,
    Unreachable,
)
from countledger.ledger.service_errors import translated
from tests.transport.proof import refused_connection

_URL = "https://dynamodb.eu-west-1.amazonaws.com/"
_REFUSED = refused_connection()


def _answer(code: str, status: int = 400, message: str = "The reason.\n  More.") -> Exception:
    return sdk.ClientError(
        {
            "Error": {"Code": code, "Message": message},
            "ResponseMetadata": {"HTTPStatusCode": status},  # type: ignore[typeddict-item]
        },
        "PutItem",
    )


def _translate(error: Exception) -> CountledgerError:
    with pytest.raises(CountledgerError) as caught, translated("PutItem on my-table"):
        raise error
    assert caught.value.__cause__ is error
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("PutItem on my-table: ")
    return caught.value


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("ResourceNotFoundException", 400, TableNotFound),
        ("AccessDeniedException", 400, AccessDenied),
        ("AccessDenied", 403, AccessDenied),
        ("UnrecognizedClientException", 400, NoCredentials),
        ("InvalidClientTokenId", 403, NoCredentials),
        ("InvalidSignatureException", 400, NoCredentials),
        ("SignatureDoesNotMatch", 403, NoCredentials),
        ("MissingAuthenticationTokenException", 400, NoCredentials),
        ("MissingAuthenticationToken", 403, NoCredentials),
        ("ExpiredToken", 403, NoCredentials),
        ("ExpiredTokenException", 400, NoCredentials),
        ("RequestExpired", 400, NoCredentials),
        ("ValidationException", 400, RequestRejected),
        ("ValidationError", 400, RequestRejected),
        ("SerializationException", 400, RequestRejected),
        ("ItemCollectionSizeLimitExceededException", 400, RequestRejected),
        ("ProvisionedThroughputExceededException", 400, Throttled),
        ("ThrottlingException", 400, Throttled),
        ("Throttling", 400, Throttled),
        ("RequestLimitExceeded", 400, Throttled),
        ("TransactionConflictException", 400, Throttled),
        ("ReplicatedWriteConflictException", 400, Throttled),
        ("NotFound", 404, TargetRefused),
        ("AuthorizationError", 403, AccessDenied),
        ("KMSAccessDenied", 400, AccessDenied),
        ("Throttled", 429, Throttled),
        ("InternalServerError", 500, Unclear),
        ("ServiceUnavailable", 503, Unclear),
        ("503", 503, Unclear),
        ("504", 504, Unclear),
        ("403", 403, Unclear),
        ("307", 307, Unclear),
        ("SomethingNew", 400, ServiceFailed),
    ],
)
def test_every_code_has_its_class(code: str, status: int, kind: type[CountledgerError]) -> None:
    error = _translate(_answer(code, status))

    assert type(error) is kind
    assert code in str(error)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Number overflow. Attempting to store a number with magnitude larger", SumOverflow),
        ("Attempting to store more than 38 significant digits in a Number", SumOverflow),
        # Taken for an invalid item, it would send every record into the quarantine.
        ("The provided key element does not match the schema", TableNotFound),
        ("One or more parameter values were invalid", RequestRejected),
    ],
)
def test_a_validation_error_is_classified_by_its_message(
    message: str, kind: type[CountledgerError]
) -> None:
    assert type(_translate(_answer("ValidationException", 400, message))) is kind


def test_the_exit_code_says_who_has_to_act() -> None:
    """2 the caller or the operator, 3 the service, 5 a sum that is too long."""
    assert {kind.exit_code for kind in (BadSetting, SetupError, NoCredentials)} == {2}
    assert {kind.exit_code for kind in (ServiceFailed, Throttled, Unclear, RequestRejected)} == {3}
    assert issubclass(SumOverflow, RequestRejected)
    assert SumOverflow.exit_code == 5


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (sdk.NoCredentialsError(), NoCredentials),
        (sdk.PartialCredentialsError(provider="env", cred_var="AWS_X"), NoCredentials),
        (sdk.CredentialRetrievalError(provider="sso", error_msg="gone"), NoCredentials),
        (sdk.UnauthorizedSSOTokenError(), NoCredentials),
        (sdk.SSOTokenLoadError(error_msg="expired"), NoCredentials),
        (sdk.TokenRetrievalError(provider="sso", error_msg="expired"), NoCredentials),
        (sdk.LoginRefreshRequired(), NoCredentials),
        (sdk.NoAuthTokenError(), NoCredentials),
        (sdk.NoRegionError(), BadSetting),
        (sdk.ProfileNotFound(profile="p"), BadSetting),
        (sdk.InvalidRegionError(region_name="no region"), BadSetting),
        (sdk.ConfigParseError(path="~/.aws/config", error_msg="line 1"), BadSetting),
        (sdk.InvalidConfigError(error_msg="no source_profile"), BadSetting),
        (sdk.EndpointConnectionError(endpoint_url=_URL, error=_REFUSED), Unreachable),
        (sdk.ConnectTimeoutError(endpoint_url=_URL, error=_REFUSED), Unreachable),
        (sdk.ProxyConnectionError(proxy_url=_URL, error=_REFUSED), Unreachable),
        (sdk.SSLError(endpoint_url=_URL, error=OSError("handshake", _REFUSED)), Unreachable),
        (sdk.EndpointConnectionError(endpoint_url=_URL, error=OSError("reset")), Unclear),
        (sdk.ConnectTimeoutError(endpoint_url=_URL), Unclear),
        (sdk.ProxyConnectionError(proxy_url=_URL, error=OSError("reset")), Unclear),
        (sdk.SSLError(endpoint_url=_URL, error=OSError("CERTIFICATE_VERIFY_FAILED")), Unclear),
        (sdk.SSLError(endpoint_url=_URL, error=OSError("[SSL: WRONG_VERSION_NUMBER]")), Unclear),
        (sdk.SSLError(endpoint_url=_URL, error=OSError("UNEXPECTED_EOF_WHILE_READING")), Unclear),
        (sdk.ReadTimeoutError(endpoint_url=_URL), Unclear),
        (sdk.ConnectionClosedError(endpoint_url=_URL), Unclear),
        (sdk.HTTPClientError(error="two\nlines"), Unclear),
        (sdk.ResponseStreamingError(error="cut"), Unclear),
        (sdk.IncompleteReadError(actual_bytes=1, expected_bytes=2), Unclear),
        (ResponseParserError("Unable to parse response: a proxy's page"), Unclear),
        (sdk.ParamValidationError(report="TableName is too short"), SetupError),
        (sdk.MissingDependencyException(msg="crt"), SetupError),
        (ValueError("Invalid endpoint: localhost"), BadSetting),
    ],
)
def test_every_exception_of_the_sdk_has_its_class(
    error: Exception, kind: type[CountledgerError]
) -> None:
    assert type(_translate(error)) is kind


@pytest.mark.parametrize("error", [AttributeError("'list' has no 'get'"), sdk.NoCredentialsError()])
def test_what_follows_an_attempt_may_have_been_applied(error: Exception) -> None:
    """Whatever it is: an answer that the SDK does not survive, or a second signature."""
    with pytest.raises(Unclear), translated("PutItem on my-table"):
        _fail_after_leaving(error)


def _fail_after_leaving(error: Exception) -> None:
    leave()
    raise error


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (_answer("ResourceNotFoundException"), "COUNTLEDGER_"),
        (_answer("AccessDeniedException"), "policy"),
        (_answer("ExpiredTokenException"), "AWS_PROFILE"),
        (sdk.NoCredentialsError(), "AWS_PROFILE"),
        (sdk.NoRegionError(), "AWS_REGION"),
        (sdk.EndpointConnectionError(endpoint_url=_URL, error=_REFUSED), "AWS_ENDPOINT_URL"),
        (ValueError("Invalid endpoint: localhost"), "http://127.0.0.1"),
    ],
)
def test_what_a_person_can_correct_comes_with_advice(error: Exception, advice: str) -> None:
    assert advice in str(_translate(error)).rpartition(";")[2]


@pytest.mark.parametrize("error", [ValueError("another"), KeyError("x"), TypeError("y")])
def test_what_is_not_the_sdks_goes_through_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)), translated("x"):
        raise error


@pytest.mark.parametrize(
    "message",
    [
        "Signature expired: 20261122T100000Z is now earlier than 20261122T114500Z",
        "Signature not yet current: 20261122T120000Z is still later than 20261122T114500Z",
    ],
)
def test_a_wrong_clock_is_named(message: str) -> None:
    """The credentials are right."""
    error = _translate(_answer("InvalidSignatureException", 400, message))

    assert isinstance(error, NoCredentials)
    assert str(error).endswith("; set the clock of this machine")
