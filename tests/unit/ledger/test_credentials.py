"""Credentials in a fork: no lock that nobody opens again, no connection of the parent's."""

from tests.unit.ledger.processes import printed

# The process forks while another thread refreshes, as any thread does that signs in time.
FORKING = """
import os, signal, threading
from datetime import UTC, datetime, timedelta
import boto3, botocore.session
from botocore.credentials import RefreshableCredentials
from botocore.httpsession import URLLib3Session
from botocore.utils import IMDSFetcher
from countledger.ledger.connection import Connection
from countledger.ledger.processes import is_forked
from countledger.ledger.settings import Settings

refreshing, go_on, main = threading.Event(), threading.Event(), threading.main_thread()
instance = IMDSFetcher()
sts = boto3.client("sts", "eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")

def refresh():
    instance, sts  # what it fetches credentials by
    if not is_forked() and threading.current_thread() is not main:
        refreshing.set()
        go_on.wait(20)
    later = datetime.now(UTC) + timedelta(hours=1)
    who = "CHILD" if is_forked() else "PARENT"
    return dict(access_key=who, secret_key="s", token="t", expiry_time=later.isoformat())

core = botocore.session.Session()
core._credentials = RefreshableCredentials(
    "OLD", "s", "t", datetime.now(UTC) - timedelta(hours=1), refresh, "by-hand"
)
session = boto3.Session(region_name="eu-west-1", botocore_session=core)
dynamo = Connection(Settings(), session).dynamo("none")
pools = lambda: [id(one._manager.pools) for one in (instance._session, sts._endpoint.http_session)]
before = pools()
thread = threading.Thread(target=core._credentials.get_frozen_credentials)
thread.start()
refreshing.wait(20)
child = os.fork()
if child == 0:
    signal.alarm(20)
    dynamo.client.meta
    print(core.get_credentials().get_frozen_credentials().access_key, flush=True)
    print(len(set(pools()) & set(before)), flush=True)
    dynamo.client.meta
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
go_on.set()
thread.join()
dynamo.client.meta
print(core.get_credentials().get_frozen_credentials().access_key, pools() == before)
"""


def test_a_fork_refreshes_credentials_of_the_callers_by_itself() -> None:
    """The same credentials, not those that the default chain would find."""
    words = printed(FORKING)

    assert words == ["CHILD", "0", "0", "PARENT", "True"]
