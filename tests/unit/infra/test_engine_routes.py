"""How the local engine finds the service of a request.

Importing the engine reads the environment, so the tests run in a process of their own.
"""

import subprocess
import sys

_PROCESS = """
from ministack.core import router
from countledger.infra.local.engine_process import patch_service_quotas_is_a_service

patch_service_quotas_is_a_service()
scope = "AKIA/20260101/us-east-1/servicequotas/aws4_request"
headers = {"authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"}
assert router.detect_service("POST", "/", headers, {}) == "servicequotas"
assert router._KNOWN_AWS_SERVICE_NAMES is None, "the models of all services were loaded"
"""


def test_service_quotas_is_known_without_the_models_of_all_services() -> None:
    """Loading them takes seconds, in which the engine answers nobody."""
    done = subprocess.run(
        [sys.executable, "-c", _PROCESS], check=False, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
