"""The Terraform module and the CDK construct have what the packaged template has.

Python parses both. Terraform's own checks run where `terraform` is installed (with the providers of
the folder COUNTLEDGER_TERRAFORM_PLUGINS), the CDK's where `make test-cdk` has installed it.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hcl2
import pytest

from countledger.infra.deploy.bundle import packaged
from countledger.infra.deploy.region_change import without
from countledger.infra.deploy.wrappers import cdk_files, snake, terraform_files
from countledger.infra.template import load_template, template_text

ROOT = Path(__file__).parents[3]
TEXT = packaged(template_text(), "my-bucket", "code.zip", "x86_64")
TEMPLATE = load_template()
PARAMETERS = set(TEMPLATE["Parameters"]) - {"CodeBucket", "CodeKey", "Architecture"}
FUNCTIONS = {
    name for name, one in TEMPLATE["Resources"].items() if one["Type"] == "AWS::Lambda::Function"
}
MODULE = terraform_files(TEXT, "my-bucket")
CONSTRUCT = cdk_files(TEXT)
CDK = ROOT / ".cache/cdk/bin/python"


def written(folder: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def plain(value: Any) -> Any:  # noqa: ANN401 - as the parser gives it
    """The parser keeps the quotes of texts."""
    return value.strip('"') if isinstance(value, str) else value


def blocks(file: str, kind: str) -> dict[str, Any]:
    """The blocks of a kind, by their labels."""
    found = hcl2.loads(MODULE[file])[kind]
    return {plain(name): body for one in found for name, body in one.items()}


def test_a_module_has_a_variable_for_each_parameter_and_passes_it_on() -> None:
    variables = blocks("variables.tf", "variable")

    names = {snake(name) for name in PARAMETERS}
    assert set(variables) == names | {"stack_name", "bucket", "tags"}
    assert plain(variables["bucket"]["default"]) == "my-bucket"
    (local,) = hcl2.loads(MODULE["main.tf"])["locals"]
    passed = {plain(name): str(value) for name, value in local["parameters"].items()}
    assert set(passed) == PARAMETERS
    assert all(f"var.{snake(name)}" in value for name, value in passed.items())


def test_a_module_passes_on_what_the_commands_for_regions_have_changed() -> None:
    """Terraform ignores a parameter only if it has passed it: so these are never left out."""
    (main,) = hcl2.loads(MODULE["main.tf"])["resource"][1].values()
    (stack,) = main.values()
    (local,) = hcl2.loads(MODULE["main.tf"])["locals"]
    passed = {plain(name): str(value) for name, value in local["parameters"].items()}
    changed = {*without({"HomeRegion": "eu"}, "eu", "us"), "ReplicaRegions", "RegionKmsKeyArns"}

    ignored = re.findall(r"[A-Za-z]*Region[A-Za-z]*", str(stack["lifecycle"]))
    assert set(ignored) == changed
    assert all('== null ? ""' in passed[name] for name in changed)
    (limits,) = stack["timeouts"]
    assert {plain(limits[one]) for one in ("create", "update", "delete")} == {"6h"}


def test_a_module_has_an_output_for_each_output() -> None:
    outputs = blocks("outputs.tf", "output")

    assert set(outputs) == {snake(name) for name in TEMPLATE["Outputs"]}
    assert all(f'"{name}"' in str(outputs[snake(name)]["value"]) for name in TEMPLATE["Outputs"])


def test_what_a_description_says_is_not_evaluated() -> None:
    text = TEXT.replace("What the functions log.", 'What "${var.x}" and %{if} are.')
    described = terraform_files(text, "b")["variables.tf"]

    assert '"What \\"$${var.x}\\" and %%{if} are."' in described


def test_a_construct_has_an_argument_for_each_parameter_and_a_property_for_each_output() -> None:
    tree = ast.parse(CONSTRUCT["countledger_construct.py"])
    (construct,) = (one for one in ast.walk(tree) if isinstance(one, ast.ClassDef))
    methods = {one.name: one for one in construct.body if isinstance(one, ast.FunctionDef)}

    arguments = {one.arg for one in methods["__init__"].args.kwonlyargs}
    assert arguments == {snake(name) for name in PARAMETERS}
    properties = {name for name in methods if not name.startswith("_")}
    assert properties == {snake(name) for name in TEMPLATE["Outputs"]}
    given = next(one for one in ast.walk(methods["__init__"]) if isinstance(one, ast.Dict))
    named = [one.value for one in given.keys if isinstance(one, ast.Constant)]
    values = [one.id for one in given.values if isinstance(one, ast.Name)]
    assert set(named) == PARAMETERS
    assert [snake(str(name)) for name in named] == values


def test_a_construct_is_formatted(tmp_path: Path) -> None:
    folder = written(tmp_path, CONSTRUCT)
    line = [sys.executable, "-m", "ruff", "format", "--isolated", "--check", str(folder)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not installed")
def test_terraform_formats_and_validates_the_module_and_its_example(tmp_path: Path) -> None:
    folder = written(tmp_path, MODULE)
    known = {**os.environ, "TF_CLI_CONFIG_FILE": os.devnull, "CHECKPOINT_DISABLE": "1"}

    def terraform(*arguments: str, at: Path) -> subprocess.CompletedProcess[str]:
        line = ["terraform", *arguments]
        return subprocess.run(line, cwd=at, env=known, capture_output=True, text=True, check=False)

    formatted = terraform("fmt", "-check", "-diff", "-recursive", at=folder)
    assert formatted.returncode == 0, formatted.stdout
    plugins = os.environ.get("COUNTLEDGER_TERRAFORM_PLUGINS")
    if plugins is None:
        pytest.skip("formatted; COUNTLEDGER_TERRAFORM_PLUGINS names no folder of providers")
    started = terraform("init", f"-plugin-dir={plugins}", at=folder / "example")
    assert started.returncode == 0, started.stderr
    validated = terraform("validate", "-json", at=folder / "example")
    assert json.loads(validated.stdout)["valid"] is True, validated.stdout


@pytest.mark.skipif(not CDK.exists(), reason="`make test-cdk` installs the CDK")
def test_the_cdk_synthesises_the_example(tmp_path: Path) -> None:
    folder = written(tmp_path, CONSTRUCT)
    lists = 'ledger_write_units=[50, 900], alert_topic_arns=["arn:aws:sns:eu-west-1:1:a"]'
    app = (folder / "app.py").read_text().replace('ingest_stream="on-demand"', lists)
    for name, text in (("app", CONSTRUCT["app.py"]), ("lists", app)):
        (folder / f"{name}.py").write_text(text)
        known = {**os.environ, "CDK_OUTDIR": str(folder / name)}
        line = [str(CDK), f"{name}.py"]
        done = subprocess.run(
            line, cwd=folder, env=known, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    made = json.loads((folder / "app/shop.template.json").read_text())
    assert set(TEMPLATE["Resources"]) <= set(made["Resources"])
    assert made["Resources"]["Ledger"]["Type"] == "AWS::DynamoDB::GlobalTable"
    kept = TEMPLATE["Resources"]["Ledger"]["DeletionPolicy"]
    assert made["Resources"]["Ledger"]["DeletionPolicy"] == kept
    assert set(TEMPLATE["Outputs"]) <= set(made["Outputs"])
    assert set(made["Parameters"]) >= PARAMETERS - {"IngestStream"}
    assert "IngestStream" not in made["Parameters"]
    assert "on-demand" in json.dumps(made["Conditions"]["HasIngest"])
    (role,) = (one for name, one in made["Resources"].items() if name.startswith("App"))
    assert role["Properties"]["ManagedPolicyArns"] == [{"Ref": "EmitPolicy"}]
    listed = json.loads((folder / "lists/shop.template.json").read_text())
    least = listed["Resources"]["Ledger"]["Properties"]["WriteProvisionedThroughputSettings"]
    assert "50" in json.dumps(least)


@pytest.mark.skipif(not CDK.exists(), reason="`make test-cdk` installs the CDK")
def test_the_cdk_deploys_the_code_of_each_release(tmp_path: Path) -> None:
    """`cdk deploy` keeps the value of each parameter of the stack: none of them is of the code."""
    codes = []
    for key in ("first.zip", "second.zip"):
        folder = written(tmp_path / key, cdk_files(packaged(template_text(), "my-bucket", key)))
        known = {**os.environ, "CDK_OUTDIR": str(folder / "out")}
        line = [str(CDK), "app.py"]
        done = subprocess.run(
            line, cwd=folder, env=known, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        made = json.loads((folder / "out/shop.template.json").read_text())
        codes.append({name: made["Resources"][name]["Properties"]["Code"] for name in FUNCTIONS})

    for code, key in zip(codes, ("first.zip", "second.zip"), strict=True):
        expected = {"S3Bucket": "my-bucket", "S3Key": key}
        assert code == dict.fromkeys(FUNCTIONS, expected)
