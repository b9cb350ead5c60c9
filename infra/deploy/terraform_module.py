"""A Terraform module around a packaged template: an `aws_cloudformation_stack`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from countledger.infra.deploy.wrappers import TEMPLATE_NAME, description_of, parameters_of, snake
from countledger.infra.template import parse_template

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TERRAFORM_TYPES: Final = {
    "Number": "number",
    "List<Number>": "list(number)",
    "CommaDelimitedList": "list(string)",
}


def terraform_files(text: str, bucket: str) -> dict[str, str]:
    """The files of a Terraform module.

    Args:
        text: the packaged template.
        bucket: the bucket of the bundle, which the template is uploaded to as well.

    Returns:
        The content of each file by its path.
    """
    template = parse_template(text)
    parameters = parameters_of(template)
    return {
        TEMPLATE_NAME: text,
        "main.tf": _MAIN_TF.format(
            template=TEMPLATE_NAME,
            arguments=_aligned(
                (name, _argument(name, one["Type"])) for name, one in parameters.items()
            ),
        ),
        "variables.tf": "\n".join(
            (
                _VARIABLES_TF.format(bucket=_hcl(bucket)),
                *(_variable(name, one) for name, one in parameters.items()),
            )
        ),
        "outputs.tf": "\n".join(
            _OUTPUT_TF.format(
                name=snake(name), description=_hcl(description_of(one)), output=_hcl(name)
            )
            for name, one in template["Outputs"].items()
        ),
        "example/main.tf": _EXAMPLE_TF,
    }


def _hcl(text: str) -> str:
    """A text of HCL, in which nothing is interpolated."""
    return json.dumps(text, ensure_ascii=False).replace("${", "$${").replace("%{", "%%{")


def _aligned(pairs: Iterable[tuple[str, str]]) -> str:
    """Attributes as `terraform fmt` aligns them."""
    listed = list(pairs)
    width = max(len(name) for name, _ in listed)
    return "\n".join(f"    {name:<{width}} = {value}" for name, value in listed)


def _argument(name: str, kind: str) -> str:
    variable = f"var.{snake(name)}"
    if kind in {"List<Number>", "CommaDelimitedList"}:
        return f'{variable} == null ? null : join(",", {variable})'
    return variable if kind == "String" else f"{variable} == null ? null : tostring({variable})"


def _variable(name: str, declared: Mapping[str, Any]) -> str:
    checked = ""
    if "AllowedValues" in declared:
        allowed = declared["AllowedValues"]
        listed = ", ".join(json.dumps(one) for one in allowed)
        checked = _VALIDATION_TF.format(
            variable=f"var.{snake(name)}",
            listed=listed,
            message=_hcl(f"It must be one of {', '.join(map(str, allowed))}."),
        )
    return _VARIABLE_TF.format(
        name=snake(name),
        type=_TERRAFORM_TYPES.get(declared["Type"], "string"),
        description=_hcl(description_of(declared)),
        checked=checked,
    )


_MAIN_TF: Final = """\
terraform {{
  required_version = ">= 1.3"
  required_providers {{
    aws = {{
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }}
  }}
}}

data "aws_s3_bucket" "code" {{
  bucket = var.bucket
}}

# The template is larger than a request may be.
resource "aws_s3_object" "template" {{
  bucket = data.aws_s3_bucket.code.id
  key    = "countledger/${{filesha256("${{path.module}}/{template}")}}.yaml"
  source = "${{path.module}}/{template}"
}}

locals {{
  # A parameter that is null has the template's default.
  parameters = {{
{arguments}
  }}
}}

resource "aws_cloudformation_stack" "countledger" {{
  name         = var.stack_name
  template_url = "https://${{data.aws_s3_bucket.code.bucket_regional_domain_name}}/${{aws_s3_object.template.key}}"
  capabilities = ["CAPABILITY_IAM"]
  parameters   = {{ for name, value in local.parameters : name => value if value != null }}
  tags         = var.tags
}}
"""

_VARIABLES_TF: Final = """\
variable "stack_name" {{
  type        = string
  default     = "countledger"
  description = "The name of the stack: COUNTLEDGER_STACK_NAME of apps and of the command line."
}}

variable "bucket" {{
  type        = string
  default     = {bucket}
  description = "The bucket that the template is uploaded to, in the region of the stack."
}}

variable "tags" {{
  type        = map(string)
  default     = {{}}
  description = "Tags of the stack and its resources, except its tables."
}}
"""

_VARIABLE_TF: Final = """\
variable "{name}" {{
  type        = {type}
  default     = null
  description = {description}
{checked}}}
"""

_VALIDATION_TF: Final = """
  validation {{
    condition     = {variable} == null ? true : contains([{listed}], {variable})
    error_message = {message}
  }}
"""

_OUTPUT_TF: Final = """\
output "{name}" {{
  description = {description}
  value       = lookup(aws_cloudformation_stack.countledger.outputs, {output}, null)
}}
"""

_EXAMPLE_TF: Final = """\
provider "aws" {
  region = "eu-west-1"
}

module "countledger" {
  source = "../"

  stack_name    = "shop"
  ingest_stream = "on-demand"
}

resource "aws_iam_role_policy_attachment" "app" {
  role       = "my-app"
  policy_arn = module.countledger.emit_policy_arn
}
"""
