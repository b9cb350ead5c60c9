"""The bundle's bytes depend on its sources only, and its size is held to Lambda's limit."""

import ast
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from countledger.infra.deploy import bundle
from countledger.infra.deploy.bundle import (
    OWN,
    SERVICES,
    BundleFailed,
    interpreter_of,
    pack,
)
from countledger.ledger import connection


def test_equal_files_give_equal_bytes_whatever_their_order_and_times() -> None:
    packed = pack({"b.py": b"2", "a.py": b"1"})

    assert packed.content == pack({"a.py": b"1", "b.py": b"2"}).content
    with zipfile.ZipFile(io.BytesIO(packed.content)) as archive:
        entries = archive.infolist()
    assert [entry.filename for entry in entries] == ["a.py", "b.py"]
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    # Lambda's user must be able to read them.
    assert {entry.external_attr >> 16 for entry in entries} == {0o100644}


def test_its_size_is_told() -> None:
    packed = pack({"a": b"x" * 3 * 1024 * 1024})

    assert packed.unzipped_bytes == 3 * 1024 * 1024
    assert "3.0 MB unzipped (limit 250.0 MB), 1 files" in packed.summary()


def test_more_than_lambda_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the upload, with both sizes."""
    monkeypatch.setattr(bundle, "MAX_UNZIPPED_BYTES", 1024 * 1024)

    with pytest.raises(BundleFailed, match=r"2\.0 MB unzipped; Lambda takes 1\.0 MB"):
        pack({"a": b"x" * 2 * 1024 * 1024})


def test_our_part_is_the_package_without_infra_but_for_the_api() -> None:
    names = dict(bundle._own_files())

    assert "countledger/__init__.py" in names
    assert "countledger/py.typed" in names
    assert "countledger/consumers/handler.py" in names
    assert "countledger/ledger/errors.py" in names
    assert "countledger/infra/http/functions.py" in names
    assert not [name for name in names if name.startswith("countledger/infra/cli")]
    assert not [name for name in names if "page/" in name or "__pycache__" in name]
    assert "countledger/__main__.py" not in names


def test_the_bundle_has_what_the_api_imports() -> None:
    """Also what it imports at the first request for the state of the stack."""
    code = (
        "import sys, json, countledger.infra.http.functions, countledger.infra.status.gathering, "
        "countledger.infra.status.facts, countledger.infra.status.findings; "
        "print(json.dumps([n for n in sys.modules if n.startswith('countledger.')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    names = dict(bundle._own_files())
    loaded = [name.replace(".", "/") for name in json.loads(done.stdout)]

    assert [
        one for one in loaded if f"{one}.py" not in names and f"{one}/__init__.py" not in names
    ] == []
    assert "countledger/infra/template.yaml" in names


def test_the_lock_of_the_functions_agrees_with_the_lock_of_all() -> None:
    """What is tested is what is deployed: each pin is one of the repository's lock file."""
    everything = bundle.LOCK_PATH.with_name("requirements.lock").read_text(encoding="utf-8")
    pins = [
        line.split(" ")[0]
        for line in bundle.LOCK_PATH.read_text(encoding="utf-8").splitlines()
        if line and line[0].isalpha()
    ]

    assert any(pin.startswith("aws-lambda-powertools==") for pin in pins)
    for pin in pins:
        assert f"\n{pin} " in everything, pin


def test_the_sdks_models_are_those_of_the_services_that_are_called() -> None:
    """A client of another one could not be made in a deployed function."""
    source = Path(connection.__file__).read_text(encoding="utf-8")
    asked = {
        call.args[0].value
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "_client"
        and isinstance(call.args[0], ast.Constant)
    }

    assert asked == SERVICES


def test_models_of_other_services_are_left_out(tmp_path: Path) -> None:
    """What no service owns stays: endpoints, retries."""
    data = tmp_path / "botocore" / "data"
    for name in ("dynamodb", "polly"):
        (data / name).mkdir(parents=True)
        (data / name / "service-2.json").write_text("{}")
    (data / "endpoints.json").write_text("{}")

    bundle._remove_what_no_function_reads(tmp_path)

    assert sorted(path.name for path in data.iterdir()) == ["dynamodb", "endpoints.json"]


def test_bytecode_is_never_compared_with_its_source_and_always_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []
    for seed in ("1", "2"):
        stage = tmp_path / seed
        stage.mkdir()
        (stage / "a.py").write_text("def f(x): return x in {'a', 'b', 'c', 'd'}\n")
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        interpreter = interpreter_of(OWN.python_version)
        assert interpreter is not None
        bundle._compile(stage, interpreter)
        compiled.append(next((stage / "__pycache__").iterdir()).read_bytes())

    assert compiled[0] == compiled[1]
    assert int.from_bytes(compiled[0][4:8], "little") == 0b01
    assert b"/var/task/a.py" in compiled[0]


def test_without_an_interpreter_of_its_version_a_bundle_has_no_bytecode() -> None:
    assert interpreter_of("2.0") is None
    assert "without bytecode" in pack({"a": b"x"}).summary()
