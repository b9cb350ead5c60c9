"""The packaged template is the template, but for where its code lies."""

import pytest

from countledger.infra.deploy.code_bucket import packaged
from countledger.infra.template import load_template, parse_template, template_text


def test_only_the_defaults_of_the_code_are_added() -> None:
    """Whoever deploys it needs to give no parameter."""
    made = parse_template(packaged(template_text(), "my-bucket", "countledger/1.zip"))
    parameters = made["Parameters"]

    assert parameters["CodeBucket"].pop("Default") == "my-bucket"
    assert parameters["CodeKey"].pop("Default") == "countledger/1.zip"
    assert made == load_template()
    assert all("Default" in one for name, one in parameters.items() if "Code" not in name)


def test_a_template_of_another_shape_is_refused() -> None:
    """Never a template without its code."""
    with pytest.raises(ValueError, match="CodeBucket"):
        packaged("Parameters: {}", "b", "k")
