"""Limits of AWS that a template's parameters can pass, and its rules: checked before anything.

IAM and Lambda refuse what is too large in the middle of a deployment, after the tables are made.
The documents are evaluated as CloudFormation does, with names of the greatest length that it gives.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from countledger.infra.template import TemplateUnsupported
from countledger.ledger.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping

# Characters without white space: of a managed policy, and of all policies inside a role.
POLICY_MAX: Final = 6144
ROLE_MAX: Final = 10_240
# Bytes of all variables of a function.
ENVIRONMENT_MAX: Final = 4096

_NO_VALUE: Final = object()
# How CloudFormation ends a name that it makes up.
_RANDOM: Final = "-ABCDEFGHIJKLM"
_UUID: Final = "00000000-0000-0000-0000-000000000000"
_ACCOUNT: Final = "000000000000"
# A type -> the greatest length of its name, and its ARN.
_ARNS: Final = {
    "AWS::DynamoDB::GlobalTable": (255, "dynamodb:{region}:{account}:table/{name}"),
    "AWS::IAM::Role": (64, "iam::{account}:role/{name}"),
    "AWS::Kinesis::Stream": (128, "kinesis:{region}:{account}:stream/{name}"),
    "AWS::Lambda::Function": (64, "lambda:{region}:{account}:function:{name}"),
    "AWS::Logs::LogGroup": (512, "logs:{region}:{account}:log-group:{name}:*"),
    "AWS::SQS::Queue": (80, "sqs:{region}:{account}:{name}"),
}
_STREAM: Final = "/stream/2000-01-01T00:00:00.000"
_VARIABLE: Final = re.compile(r"\$\{([^!}]+)\}")


@dataclass(frozen=True, slots=True)
class Surroundings:
    stack_name: str
    region: str
    partition: str


def refuse_oversized(
    template: Mapping[str, Any], given: Mapping[str, str], around: Surroundings
) -> None:
    """Refuse parameters that make a policy or an environment larger than AWS takes."""
    for name, what, size, size_max in sizes(template, given, around):
        if size > size_max:
            longest = max(given.items(), key=lambda one: len(one[1]), default=("", ""))
            raise BadInput(
                f"{what} {name} would have {size:,} characters, and AWS takes {size_max:,}: "
                f"nothing was changed. The longest parameter is {longest[0]}: shorten it (in "
                "AlertTopicArns one * can stand for many topics), or use a shorter stack name"
            )


def refuse_broken_rules(
    template: Mapping[str, Any], given: Mapping[str, str], around: Surroundings
) -> None:
    """Refuse parameters that break a rule of the template, before the code is uploaded."""
    values = _Values(template, given, around)
    broken = [
        assertion["AssertDescription"]
        for rule in template.get("Rules", {}).values()
        if values.of(rule.get("RuleCondition", True))
        for assertion in rule["Assertions"]
        if not values.of(assertion["Assert"])
    ]
    if broken:
        raise BadInput(f"{' '.join(broken)} Nothing was changed")


def sizes(
    template: Mapping[str, Any], given: Mapping[str, str], around: Surroundings
) -> list[tuple[str, str, int, int]]:
    """What has a limit: name in the template, what it is, its size, and the limit."""
    values = _Values(template, given, around)
    found = []
    for name, resource in template["Resources"].items():
        properties = resource.get("Properties", {})
        if "Condition" in resource and not values.holds(resource["Condition"]):
            continue
        if resource["Type"] == "AWS::IAM::ManagedPolicy":
            size = _characters(values.of(properties["PolicyDocument"]))
            found.append((name, "managed policy", size, POLICY_MAX))
        elif resource["Type"] == "AWS::IAM::Role":
            documents = [one["PolicyDocument"] for one in properties.get("Policies", ())]
            size = sum(_characters(values.of(one)) for one in documents)
            found.append((name, "the policies of role", size, ROLE_MAX))
        elif resource["Type"] == "AWS::Lambda::Function":
            variables = values.of(properties.get("Environment", {}).get("Variables", {}))
            size = sum(len(f"{key}{value}".encode()) for key, value in variables.items())
            found.append((name, "the environment of function", size, ENVIRONMENT_MAX))
    return found


def _characters(document: object) -> int:
    return len(re.sub(r"\s", "", json.dumps(document)))


@dataclass(frozen=True, slots=True)
class _Values:
    """Evaluates parts of a template."""

    template: Mapping[str, Any]
    given: Mapping[str, str]
    around: Surroundings
    _known: dict[str, bool] = field(default_factory=dict)

    def holds(self, condition: str) -> bool:
        if condition not in self._known:
            self._known[condition] = bool(self.of(self.template["Conditions"][condition]))
        return self._known[condition]

    def of(self, value: Any) -> Any:  # noqa: ANN401 - a part of a template is of any type
        """A part of the template with all its references and functions evaluated."""
        if isinstance(value, list):
            parts = [self.of(one) for one in value]
            return [one for one in parts if one is not _NO_VALUE]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            name, argument = next(iter(value.items()))
            if name in {"Ref", "Condition"} or name.startswith("Fn::"):
                return self._function(name, argument)
        parts_by_key = {key: self.of(one) for key, one in value.items()}
        return {key: one for key, one in parts_by_key.items() if one is not _NO_VALUE}

    def _function(self, name: str, argument: Any) -> Any:  # noqa: ANN401, C901, PLR0911 - one each
        if name == "Ref":
            return self._reference(argument)
        if name == "Condition":
            return self.holds(argument)
        if name == "Fn::GetAtt":
            return self._attribute(*argument)
        if name == "Fn::Sub" and isinstance(argument, str):
            return _VARIABLE.sub(lambda match: str(self._named(match[1])), argument)
        if name == "Fn::If":
            return self.of(argument[1] if self.holds(argument[0]) else argument[2])
        parts = self.of(argument)
        if name == "Fn::Join":
            return str(parts[0]).join(map(str, parts[1]))
        if name == "Fn::Split":
            return str(parts[1]).split(parts[0])
        if name == "Fn::Select":
            return parts[1][int(parts[0])]
        if name == "Fn::Equals":
            return str(parts[0]) == str(parts[1])
        if name == "Fn::Contains":
            return parts[1] in parts[0]
        if name in {"Fn::Not", "Fn::And"}:
            return all(parts) if name == "Fn::And" else not parts[0]
        if name == "Fn::Or":
            return any(parts)
        raise TemplateUnsupported(f"the template uses {name}, whose length is not known here")

    def _named(self, text: str) -> Any:  # noqa: ANN401 - as above
        """What `${...}` means."""
        resource, dot, attribute = text.partition(".")
        return self._attribute(resource, attribute) if dot else self._reference(text)

    def _reference(self, name: str) -> Any:  # noqa: ANN401 - as above
        pseudo = {
            "AWS::AccountId": _ACCOUNT,
            "AWS::NoValue": _NO_VALUE,
            "AWS::Partition": self.around.partition,
            "AWS::Region": self.around.region,
            "AWS::StackName": self.around.stack_name,
        }
        if name in pseudo:
            return pseudo[name]
        declared = self.template["Parameters"].get(name)
        if declared is None:
            return self._id_of(name)
        value = self.given.get(name, declared.get("Default", ""))
        if declared["Type"].startswith(("List", "CommaDelimitedList")):
            return [one.strip() for one in str(value).split(",")]
        return value

    def _id_of(self, name: str) -> str:
        """A name as long as the one that CloudFormation will give a resource, or longer."""
        kind = self.template["Resources"][name]["Type"]
        if kind == "AWS::Lambda::EventSourceMapping":
            return _UUID
        made = f"{self.around.stack_name}-{name}{_RANDOM}"
        if kind == "AWS::SQS::Queue":
            return f"https://sqs.{self.around.region}.amazonaws.com/{_ACCOUNT}/{made[:80]}"
        longest = _ARNS[kind][0] if kind in _ARNS else len(made)
        return made[:longest]

    def _attribute(self, name: str, attribute: str) -> str:
        kind = self.template["Resources"][name]["Type"]
        if kind not in _ARNS or attribute not in {"Arn", "StreamArn"}:
            raise TemplateUnsupported(f"the length of {name}.{attribute} is not known here")
        longest, pattern = _ARNS[kind]
        made = f"{self.around.stack_name}-{name}{_RANDOM}"[:longest]
        text = pattern.format(region=self.around.region, account=_ACCOUNT, name=made)
        arn = f"arn:{self.around.partition}:{text}"
        return arn + _STREAM if attribute == "StreamArn" else arn
