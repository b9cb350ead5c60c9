"""What `countledger up` prints for a shell."""

from countledger.infra.cli.engine import export_lines
from countledger.ledger.settings import OUTPUTS, PREFIX


def test_no_setting_of_another_stack_stays_in_the_shell() -> None:
    """Each output of a stack has a setting; one of another stack would win over the new stack."""
    other = {PREFIX + setting.upper(): "of another stack" for setting in OUTPUTS}
    ours = {"COUNTLEDGER_LEDGER_TABLE": "l", "AWS_REGION": "us-east-1"}

    unset, *exports = export_lines(ours, {**other, "AWS_PROFILE": "mine", "HOME": "/"})

    assert set(unset.split()) == {"unset", "AWS_PROFILE", *other} - ours.keys()
    assert exports == ["export COUNTLEDGER_LEDGER_TABLE=l", "export AWS_REGION=us-east-1"]
