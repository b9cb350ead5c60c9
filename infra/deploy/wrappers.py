"""What the Terraform module and the CDK construct have in common: names and words of the template.

Both have the template beside them, a variable for each parameter, and an output for each output.
They are written on request and not kept anywhere, so they cannot differ from the template. What
they say of a parameter are the template's own words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

TEMPLATE_NAME: Final = "countledger.yaml"
# What the bundle decides: the packaged template has it as defaults.
_OF_THE_BUNDLE: Final = frozenset({"CodeBucket", "CodeKey", "Architecture"})
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def snake(name: str) -> str:
    """The name of a parameter or output as Terraform and Python spell names."""
    return _WORD.sub("_", name).lower()


def parameters_of(template: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The parameters that a user of a wrapper gives, by name."""
    return {name: one for name, one in template["Parameters"].items() if name not in _OF_THE_BUNDLE}


def description_of(declared: Mapping[str, Any]) -> str:
    """The description of a parameter or output, in one line."""
    return " ".join(str(declared["Description"]).split())
