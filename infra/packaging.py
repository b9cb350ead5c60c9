"""The template with a bundle of functions in it: ready for whatever deploys it."""

from __future__ import annotations

from typing import Final

_PARAMETER: Final = "  {name}:\n    Type: String\n"


def packaged(template: str, bucket: str, key: str) -> str:
    """The template, whose parameters of the code say by default where the bundle lies."""
    for name, value in (("CodeBucket", bucket), ("CodeKey", key)):
        declared = _PARAMETER.format(name=name)
        if template.count(declared) != 1:
            raise ValueError(f"the template does not declare {name} as it used to")
        template = template.replace(declared, f'{declared}    Default: "{value}"\n')
    return template
