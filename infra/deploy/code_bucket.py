"""The bucket of bundles and templates: created or taken over; its objects are never changed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import BadSetting, CountledgerError
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


_PREFIX: Final = "countledger"
# The one region whose buckets are made without naming it.
_FIRST_REGION: Final = "us-east-1"


def default_bucket(account: str, region: str) -> str:
    """The name of the bucket that is made where none is given: one for an account and region."""
    return f"{_PREFIX}-code-{account}-{region}"


def make_bucket(s3: S3Client, name: str, account: str, region: str) -> bool:
    """Make sure of a bucket of this account, closed to the public; whether it had to be made.

    Raises:
        BadSetting: another account owns a bucket of that name, or it is in another region.
    """
    if _is_ours(s3, name, account, region):
        return False
    with translated(f"CreateBucket {name}"):
        if region == _FIRST_REGION:
            s3.create_bucket(Bucket=name)
        else:
            s3.create_bucket(
                Bucket=name,
                CreateBucketConfiguration={"LocationConstraint": region},  # type: ignore[typeddict-item]  # newer regions than the types know
            )
        s3.put_public_access_block(
            Bucket=name,
            ExpectedBucketOwner=account,
            PublicAccessBlockConfiguration={
                "BlockPublicAcls": True,
                "IgnorePublicAcls": True,
                "BlockPublicPolicy": True,
                "RestrictPublicBuckets": True,
            },
        )
    return True


def take_bucket(s3: S3Client, name: str, account: str, region: str) -> None:
    """Make sure that a bucket exists, is this account's, and in this region.

    Raises:
        BadSetting: it does not exist, belongs to another account, or is in another region.
    """
    if not _is_ours(s3, name, account, region):
        raise BadSetting(f"bucket {name!r} does not exist: create it first, or leave out --bucket")


def upload(s3: S3Client, bucket: str, body: bytes, suffix: str) -> str:
    """Put a file under a key that is a hash of it, so that nothing is ever overwritten; the key."""
    key = f"{_PREFIX}/{hashlib.sha256(body).hexdigest()[:32]}{suffix}"
    with translated(f"PutObject into {bucket}"):
        s3.put_object(Bucket=bucket, Key=key, Body=body)
    return key


def _is_ours(s3: S3Client, name: str, account: str, region: str) -> bool:
    try:
        with translated(f"HeadBucket {name}"):
            found = s3.head_bucket(Bucket=name, ExpectedBucketOwner=account)
    except CountledgerError as error:
        # A HEAD has no body: only the status is known.
        text = str(error)
        if "404" in text or "NoSuchBucket" in text:
            return False
        if "403" in text:
            raise BadSetting(
                f"bucket {name!r} belongs to another account, or you may not look at it: "
                "give one of your own with --bucket"
            ) from error
        raise
    # The SDK follows a redirect to another region; Lambda takes code from its own region only.
    place = found.get("BucketRegion") or region
    if place != region:
        raise BadSetting(
            f"bucket {name!r} is in {place}, and the stack in {region}: Lambda takes code from a "
            "bucket of its own region only; give such a bucket with --bucket, or leave it out"
        )
    return True


_PARAMETER: Final = "  {name}:\n    Type: String\n"
_ARCHITECTURE: Final = "    Default: arm64\n"


def packaged(template: str, bucket: str, key: str, architecture: str = "arm64") -> str:
    """The template, whose parameters of the code name the bundle and its processor by default."""
    for name, value in (("CodeBucket", bucket), ("CodeKey", key)):
        declared = _PARAMETER.format(name=name)
        if template.count(declared) != 1:
            raise ValueError(f"the template does not declare {name} as it used to")
        template = template.replace(declared, f'{declared}    Default: "{value}"\n')
    if template.count(_ARCHITECTURE) != 1:
        raise ValueError("the template does not declare Architecture as it used to")
    return template.replace(_ARCHITECTURE, f"    Default: {architecture}\n")
