"""IAM takes policies of so many characters: ours fit, however long the names of a stack are.

No linter can tell, for the names are known only once the stack is made.
"""

import pytest

from countledger.infra.deploy.template_limits import Surroundings, refuse_oversized, sizes
from countledger.infra.template import load_template, parse_template
from countledger.ledger.errors import BadInput

# A stack's name has up to 128 characters: beyond this, and with every option, deploy refuses it.
LONGEST = Surroundings("s" * 120, "ap-southeast-1", "aws")
# Every option taken.
EVERYTHING = {
    "AlarmTopicArn": "arn:aws:sns:ap-southeast-1:123456789012:" + "t" * 64,
    "AlertBusName": "b" * 64,
    "AlertTopicArns": ",".join(["arn:aws:sns:ap-southeast-1:123456789012:" + "t" * 32] * 4),
    "ArchiveBucketArn": "arn:aws:s3:::" + "b" * 63,
    "AuditMode": "repair",
    "BackupCopyVaultArn": "arn:aws:backup:ap-southeast-1:123456789012:backup-vault:" + "v" * 50,
    "BackupSchedule": "cron(0 3 * * ? *)",
    "AuditSchedule": "rate(1 day)",
    "HttpApi": "iam",
    "IngestStream": "on-demand",
    "KmsKeyArn": "arn:aws:kms:ap-southeast-1:123456789012:key/" + "k" * 36,
}


@pytest.mark.parametrize(
    ("name", "size", "size_max"),
    [(name, size, most) for name, _, size, most in sizes(load_template(), EVERYTHING, LONGEST)],
)
def test_what_has_a_limit_fits(name: str, size: int, size_max: int) -> None:
    assert size <= size_max, name


def test_every_condition_counts() -> None:
    """A part behind a condition that does not hold is not counted."""
    few = {name: size for name, _, size, _ in sizes(load_template(), {}, LONGEST)}
    all_of_them = {name: size for name, _, size, _ in sizes(load_template(), EVERYTHING, LONGEST)}

    assert few["OperatePolicy"] < all_of_them["OperatePolicy"]
    assert "KinesisPolicy" not in few


_SMALL = """
Parameters: {Names: {Type: CommaDelimitedList, Default: ""}}
Resources:
  One:
    Type: AWS::Lambda::Function
    Properties: {Environment: {Variables: {NAMES: !Join [",", !Ref Names]}}}
"""


def test_a_limit_is_what_still_passes() -> None:
    template = parse_template(_SMALL)
    refuse_oversized(template, {"Names": "n" * 4091}, LONGEST)

    with pytest.raises(BadInput, match=r"environment of function One .* 4,097 .* Names"):
        refuse_oversized(template, {"Names": "n" * 4092}, LONGEST)
