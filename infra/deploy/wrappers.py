"""What the Terraform module and the CDK construct have in common: names and words of the template.

Both have the template beside them, a variable for each parameter, and an output for each output.
They are written on request and not kept anywhere, so they cannot differ from the template. What
they say of a parameter are the template's own words.
"""

from __future__ import annotations

import json
import re
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from countledger.infra.deploy.region_change import OF_REGIONS, REPLICA_TIMEOUT_S
from countledger.infra.template import parse_template

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


TEMPLATE_NAME: Final = "countledger.yaml"
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def snake(name: str) -> str:
    """The name of a parameter or output as Terraform and Python spell names."""
    return _WORD.sub("_", name).lower()


def description_of(declared: Mapping[str, Any]) -> str:
    """The description of a parameter or output, in one line."""
    return " ".join(str(declared["Description"]).split())


# A Terraform module around a packaged template: an `aws_cloudformation_stack`.


_TERRAFORM_TYPES: Final = {
    "Number": "number",
    "List<Number>": "list(number)",
    "CommaDelimitedList": "list(string)",
}


def terraform_files(text: str, bucket: str) -> dict[str, str]:
    """The content of each file of a Terraform module, by path.

    The template, which is packaged, is uploaded to the bucket of the bundle.
    """
    template = parse_template(text)
    parameters = template["Parameters"]
    return {
        TEMPLATE_NAME: text,
        "main.tf": _MAIN_TF.format(
            template=TEMPLATE_NAME,
            arguments=_aligned(
                (name, _argument(name, one["Type"])) for name, one in parameters.items()
            ),
            ignored="\n".join(f'      parameters["{name}"],' for name in OF_REGIONS),
            timeout=f"{REPLICA_TIMEOUT_S // 3600}h",
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
    if name in OF_REGIONS:
        joined = f'join(",", {variable})' if kind == "CommaDelimitedList" else variable
        return f'{variable} == null ? "" : {joined}'
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
    described = description_of(declared)
    if name in OF_REGIONS:
        described += " For a new stack only: later the stack keeps what it has."
    return _VARIABLE_TF.format(
        name=snake(name),
        type=_TERRAFORM_TYPES.get(declared["Type"], "string"),
        description=_hcl(described),
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
  # A parameter that is null has the template's default. Those that are ignored below are always
  # passed, since Terraform reads only what it has passed.
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

  # `countledger region add`, `remove` and `promote` change these in the stack. Terraform reads what
  # the stack has, and passes that on.
  lifecycle {{
    ignore_changes = [
{ignored}
    ]
  }}

  # A replica of a large table takes hours.
  timeouts {{
    create = "{timeout}"
    update = "{timeout}"
    delete = "{timeout}"
  }}
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


# A construct of the AWS CDK for Python around a packaged template: a `CfnInclude`.


_PYTHON_TYPES: Final = {
    "Number": "int",
    "List<Number>": "Sequence[int]",
    "CommaDelimitedList": "Sequence[str]",
}


def cdk_files(text: str) -> dict[str, str]:
    """The content of each file of a CDK construct for Python and its example app, by path."""
    template = parse_template(text)
    parameters, outputs = template["Parameters"], template["Outputs"]
    return {
        TEMPLATE_NAME: text,
        "countledger_construct.py": _CONSTRUCT_PY.format(
            template=TEMPLATE_NAME,
            arguments="".join(
                f"        {snake(name)}: {_PYTHON_TYPES.get(one['Type'], 'str')} | None = None,\n"
                for name, one in parameters.items()
            ),
            documented="".join(
                _documented(snake(name), description_of(one)) for name, one in parameters.items()
            ),
            given="".join(f'            "{name}": {snake(name)},\n' for name in parameters),
            outputs="\n".join(
                _PROPERTY_PY.format(
                    name=snake(name), output=name, description=_wrapped(description_of(one), 8)
                )
                for name, one in outputs.items()
            ),
        ),
        "app.py": _APP_PY,
    }


def _wrapped(text: str, indent: int) -> str:
    """A docstring's text: further lines are indented."""
    return f"\n{' ' * indent}".join(wrap(text.replace("\\", "\\\\"), 88 - indent))


def _documented(name: str, description: str) -> str:
    lines = wrap(f"{name}: {description}", 84, break_long_words=False)
    return "".join(
        f"{' ' * (12 if place == 0 else 16)}{line}\n" for place, line in enumerate(lines)
    )


_CONSTRUCT_PY: Final = '''\
"""countledger as a construct of the AWS CDK; generated by `countledger package --cdk`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aws_cdk import Token, cloudformation_include
from constructs import Construct

_TEMPLATE = Path(__file__).resolve().parent / "{template}"


class Countledger(Construct):
    """The resources of countledger, in the stack of its scope.

    A stack takes one of them. Its name is what apps give in COUNTLEDGER_STACK_NAME.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
{arguments}    ) -> None:
        """Include the template, which names the functions' code itself.

        `cdk deploy` keeps the stack's value of a parameter that is None; a new stack has the
        template's default.

        Args:
            scope: the stack.
            id: of the construct.
{documented}        """
        super().__init__(scope, id)
        given = {{
{given}        }}
        self.include = cloudformation_include.CfnInclude(
            self,
            "Template",
            template_file=str(_TEMPLATE),
            parameters={{name: one for name, one in given.items() if one is not None}},
        )

    def _output(self, name: str) -> str:
        return Token.as_string(self.include.get_output(name).value)

{outputs}'''

_PROPERTY_PY: Final = '''\
    @property
    def {name}(self) -> str:
        """{description}"""
        return self._output("{output}")
'''

_APP_PY: Final = '''\
"""An app with countledger in a stack of its own, and a role that may record."""

from aws_cdk import App, Stack, aws_iam
from countledger_construct import Countledger

app = App()
stack = Stack(app, "shop")
countledger = Countledger(stack, "Countledger", ingest_stream="on-demand")
service = aws_iam.ServicePrincipal("lambda.amazonaws.com")
role = aws_iam.Role(stack, "App", assumed_by=service)
emit = countledger.emit_policy_arn
role.add_managed_policy(
    aws_iam.ManagedPolicy.from_managed_policy_arn(stack, "Emit", emit)
)
app.synth()
'''
