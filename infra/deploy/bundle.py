"""Builds the bundle of the Lambda functions: our package and what it needs, for Lambda's platform.

`countledger deploy` builds it by itself; `make bundle` writes it to a file. Dependencies come from
`requirements-functions.lock`, by hash and as wheels only. The same sources give the same bytes.
Bytecode is in it if this machine has an interpreter of the functions' version; a cold start then
compiles nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import countledger
from countledger.ledger.errors import BadSetting, CountledgerError
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3 import S3Client


# The bucket of bundles and templates: created or taken over; its objects are never changed.


_PREFIX: Final = "countledger"
# The one region whose buckets are made without naming it.
_FIRST_REGION: Final = "us-east-1"


def default_bucket(account: str, region: str) -> str:
    return f"{_PREFIX}-code-{account}-{region}"


def make_bucket(s3: S3Client, name: str, account: str, region: str) -> bool:
    """Make sure of a bucket of this account, closed to the public; whether it had to be made."""
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
    """Make sure that a bucket exists, is this account's, and in this region."""
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


# What the bundle decides. These are parameters of the template, whose values `countledger deploy`
# always gives. A packaged template has none of them: other tools keep the value that a parameter
# has over a default of the next release, and would go on running the bundle of the first one.
_OF_THE_BUNDLE: Final = ("CodeBucket", "CodeKey", "Architecture")
_GROUP: Final = (
    f"      - Label: {{default: Code}}\n        Parameters: [{', '.join(_OF_THE_BUNDLE)}]\n"
)


def packaged(template: str, bucket: str, key: str, architecture: str = "arm64") -> str:
    """The template, whose resources themselves name the bundle and its processor."""
    if template.count(_GROUP) != 1:
        raise ValueError(f"the template does not list {', '.join(_OF_THE_BUNDLE)} as it used to")
    template = template.replace(_GROUP, "")
    for name, value in zip(_OF_THE_BUNDLE, (bucket, key, architecture), strict=True):
        template, declared = re.subn(rf"^  {name}:\n(    .*\n)+", "", template, flags=re.MULTILINE)
        template, used = re.subn(rf"!Ref {name}\b", json.dumps(value), template)
        if declared != 1 or not used:
            raise ValueError(f"the template does not declare and use {name} as it used to")
    return template


_LOCK_NAME: Final = "requirements-functions.lock"
_INFRA: Final = Path(__file__).resolve().parents[1]
# In `infra` in an installed package, at the top of a checkout.
_INSTALLED: Final = _INFRA / _LOCK_NAME
LOCK_PATH: Final = _INSTALLED if _INSTALLED.is_file() else _INFRA.parent / _LOCK_NAME

# Lambda's limit for code and layers, unpacked; and what it takes without a detour over S3, which
# we always make.
MAX_UNZIPPED_BYTES: Final = 250 * 1024 * 1024
DIRECT_UPLOAD_BYTES: Final = 50 * 1024 * 1024

# `infra` deploys the functions, with a command line; it runs nowhere but at the user's. Of it only
# the HTTP API is a function as well, with what it needs; its dashboard is not.
_NOT_OURS_TO_RUN: Final = frozenset({"infra", "__main__.py"})
_OF_THE_API: Final = (
    "__init__.py",
    "calls",
    "deploy/__init__.py",
    "deploy/account_limits.py",
    "deploy/region_checks.py",
    "deploy/stack_operation.py",
    "http",
    "local/__init__.py",
    "local/mappings.py",
    "status",
    "template.py",
    "template.yaml",
)
_PAGE: Final = "page"
# What an installer leaves beside the packages.
_NO_PACKAGE: Final = frozenset({"bin", ".lock"})
_CACHE: Final = "__pycache__"
# Where Lambda unpacks the bundle, as tracebacks name it.
_TASK: Final = "/var/task"
# What a function may make a client of: the services of `ledger/connection.py`.
SERVICES: Final = frozenset(
    {
        "cloudformation",
        "cloudwatch",
        "dynamodb",
        "dynamodbstreams",
        "events",
        "kinesis",
        "lambda",
        "s3",
        "scheduler",
        "sns",
        "sqs",
        "sts",
    }
)
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say
_MODE: Final = 0o100644


class BundleFailed(CountledgerError):
    """The bundle could not be built, or is larger than Lambda takes."""


@dataclass(frozen=True, slots=True)
class BundleTarget:
    """What a bundle is built for; no platform: this machine's."""

    python_version: str
    platform: str | None


LAMBDA: Final = {
    "arm64": BundleTarget("3.13", "aarch64-manylinux_2_28"),
    "x86_64": BundleTarget("3.13", "x86_64-manylinux_2_28"),
}
# For the local engine, whose functions run on the interpreter that runs it.
OWN: Final = BundleTarget(f"{sys.version_info.major}.{sys.version_info.minor}", None)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle, ready to be uploaded; with bytecode a function starts without compiling."""

    content: bytes
    unzipped_bytes: int
    files: int
    has_bytecode: bool = False

    def summary(self) -> str:
        return (
            f"{_megabytes(len(self.content))} zipped, {_megabytes(self.unzipped_bytes)} unzipped"
            f" (limit {_megabytes(MAX_UNZIPPED_BYTES)}), {self.files} files,"
            f" {'with' if self.has_bytecode else 'without'} bytecode"
        )


def build_bundle(target: BundleTarget, *, lock: Path = LOCK_PATH) -> Bundle:
    """Fetch the locked dependencies for the target and pack them with our package."""
    if not lock.is_file():
        raise BundleFailed(f"{lock} does not exist: reinstall countledger, or use a checkout")
    if find_spec("uv") is None:
        raise BundleFailed("the bundle is built by uv: pip install 'countledger[deploy]'")
    with tempfile.TemporaryDirectory(prefix="countledger-bundle-") as directory:
        stage = Path(directory)
        _fetch(target, lock, stage)
        for name, path in _own_files():
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, stage / name)
        _remove_what_no_function_reads(stage)
        interpreter = interpreter_of(target.python_version)
        if interpreter is not None:
            _compile(stage, interpreter)
        files = {name: path.read_bytes() for name, path in _staged_files(stage)}
    return replace(pack(files), has_bytecode=interpreter is not None)


def _remove_what_no_function_reads(stage: Path) -> None:
    """Models of the hundreds of services that the functions never call: two thirds of it all."""
    for model in (stage / "botocore" / "data").iterdir():
        if model.is_dir() and model.name not in SERVICES:
            shutil.rmtree(model)


def interpreter_of(python_version: str) -> str | None:
    """An interpreter of this machine that writes the target's bytecode, or None."""
    if python_version == OWN.python_version:
        return sys.executable
    command = [sys.executable, "-m", "uv", "python", "list", "--only-installed"]
    command += ["--output-format", "json", "--no-python-downloads", python_version]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - ours
    found = json.loads(done.stdout) if done.returncode == 0 else []
    paths = (one["path"] for one in found if one["implementation"] == "cpython")
    return next(paths, None)


def _compile(stage: Path, interpreter: str) -> None:
    """Write bytecode that is never compared with its source; equal sources give equal bytes."""
    command = [interpreter, "-I", "-m", "compileall", "-q", "-j", "1"]
    command += ["--invalidation-mode", "unchecked-hash", "-s", str(stage), "-p", _TASK, str(stage)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(  # noqa: S603 - ours
        command, check=False, capture_output=True, text=True, env=environment
    )
    if done.returncode != 0:
        raise BundleFailed(f"the bytecode could not be compiled: {done.stdout.strip()}")


def pack(files: dict[str, bytes]) -> Bundle:
    """Zip files so that equal files give equal bytes."""
    unzipped_bytes = sum(len(content) for content in files.values())
    if unzipped_bytes > MAX_UNZIPPED_BYTES:
        raise BundleFailed(
            f"the bundle has {_megabytes(unzipped_bytes)} unzipped;"
            f" Lambda takes {_megabytes(MAX_UNZIPPED_BYTES)}"
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, on any system: its modes count
            entry.external_attr = _MODE << 16
            archive.writestr(entry, files[name])
    return Bundle(buffer.getvalue(), unzipped_bytes, len(files))


def _fetch(target: BundleTarget, lock: Path, into: Path) -> None:
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", str(into)]
    command += ["--python-version", target.python_version]
    if target.platform is not None:
        command += ["--python-platform", target.platform]
    # The lock is complete and hashed: nothing is resolved, and nothing is built here.
    command += ["--only-binary", ":all:", "--no-deps", "--require-hashes", "-r", str(lock)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - ours
    if done.returncode != 0:
        raise BundleFailed(f"the dependencies could not be fetched: {done.stderr.strip()}")


def _staged_files(stage: Path) -> Iterator[tuple[str, Path]]:
    for path in stage.iterdir():
        if path.name not in _NO_PACKAGE:
            yield from _files_of(path, Path(path.name), caches=True)


def _own_files() -> Iterator[tuple[str, Path]]:
    for path in Path(countledger.__file__).parent.iterdir():
        if path.name not in _NOT_OURS_TO_RUN:
            # In a checkout a package is a link.
            yield from _files_of(path.resolve(), Path("countledger") / path.name)
    for name in _OF_THE_API:
        for inner, path in _files_of(_INFRA / name, Path("countledger/infra") / name):
            if _PAGE not in Path(inner).parts:
                yield inner, path


def _files_of(path: Path, name: Path, *, caches: bool = False) -> Iterator[tuple[str, Path]]:
    """The files of a directory, or the file itself, by their names in the bundle."""
    if path.name == _CACHE and not caches:
        return
    if path.is_file():
        yield name.as_posix(), path
        return
    for inner in path.iterdir():
        yield from _files_of(inner, name / inner.name, caches=caches)


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1024 / 1024:.1f} MB"


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the bundle of the Lambda functions.")
    parser.add_argument("--out", type=Path, required=True, help="the zip file to write")
    parser.add_argument(
        "--architecture",
        choices=[*LAMBDA, "own"],
        default="arm64",
        help="Lambda's processor, or this machine and interpreter (for the local engine)",
    )
    arguments = parser.parse_args()
    try:
        bundle = build_bundle(LAMBDA.get(arguments.architecture, OWN))
    except BundleFailed as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_bytes(bundle.content)
    sys.stdout.write(f"{arguments.out}: {bundle.summary()}\n")
    if len(bundle.content) > DIRECT_UPLOAD_BYTES:
        sys.stdout.write("It is over 50 MB zipped: only an upload through S3 can take it.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
