"""The header of every run, settings of all tests, and which tests `make test` leaves out."""

import os
import signal
from functools import cache
from pathlib import Path
from typing import Final

import botocore.loaders
import pytest
from hypothesis import settings

from tests.browser.binary import chromium
from tests.engines.binaries import dynoxide_binary


def pytest_report_header() -> str:
    """Which engines the contract suite runs on, and which browser."""
    extra = "dynoxide" if dynoxide_binary().is_file() else "(no dynoxide: `make dynoxide`)"
    browser = chromium() or "(no chromium: the tests of the dashboard are skipped)"
    return f"engines: moto, ministack, {extra}; browser: {browser}"


# How long an example takes says what else the machine is doing: performance is a benchmark.
settings.register_profile("countledger", deadline=None)
settings.load_profile("countledger")

# The transport that every user has. `make test-all` runs the faults and the engines over the fast
# one as well, and tests/transport compares both.
os.environ.setdefault("COUNTLEDGER_TRANSPORT", "boto3")

# Hundreds of sessions of boto3 begin here, and each would read the SDK's models again.
botocore.loaders.create_loader = cache(botocore.loaders.create_loader)

# A job in the background ignores Ctrl-C, and what it starts inherits that, unless undone here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_TESTS: Final = Path(__file__).parent
# What `make test` leaves to `make test-all`, so that it takes minutes only. The promises of these
# tests are also covered by tests that stay: on another engine, in the simulation, in a shorter way.
_THOROUGH: Final = (
    "browser",
    "e2e",
    "faults/test_killed.py",
    "faults/test_matrix_in_a_loop.py",
    "regions",
    "tools/bench/test_ways.py",
    "tools/mutation/test_running.py",
    "tools/scaling",
    "tools/smoke",
)
_STAYS: Final = (
    "e2e/test_cli.py",
    "e2e/test_deployed.py",
    "e2e/test_permissions.py",
    "e2e/test_persist.py",
    "e2e/test_readme.py",
)
# The same of single tests, by a part of their name.
_THOROUGH_TESTS: Final = (
    "a_stack_has_all_that_it_had",
    "a_stack_of_another_template_is_updated",
    "alerts_fire_by_the_states_that_were_kept",
    "streams_are_read_on_from_where_they_were_read",
    "every_main_path_holds_before_and_after",
    "a_pool_of_processes_hands_the_error",
    "each_step_is_that_of_the_table_and_is_taken_once[falling",
    "each_possible_cell_is_reached_and_no_impossible_one",
    "each_short_history_alerts_as_a_walk_does",
    "examples_of_a_page_run_as_they_are[docs/",
    "no_answer_contradicts_the_document",
    "no_answer_of_ten_thousand",
    "the_generated_client",
    "the_bundle_runs_where_the_checkout_does",  # what it holds is checked beside it
    "the_deployers_policy_is_what_deploy_and_destroy_call",
    "the_tool_notices_what_it_must",
    "verify_finds_the_drift_of_a_total_that_was_altered",
    # Many processes: one of each kind of fork stays, and the simulation's spools.
    "suspended_as_its_process_forks",
    "whatever_happens_each_event_counts_once",
    # The other seven eighths of the simulation's seeds, without which not everything has happened.
    "the other seeds]",
    "many_seeds_have_the_focus",
    "everything_has_happened",
    # The explorer has the schedules of groups; the two that stay are of all calls.
    "another_call_deletes_while_it_is_to_be_made_again",
    "first_ranked_during_a_removal",
    "died_while_its_group_was_deleted",
    "when_a_late_write_of_an_earlier_call_has_landed",
    # What they check in an event loop is checked in every transport, or by one operation each.
    "a_session_of_an_app_has_the_fixtures",
    "acknowledged_is_stored[fast-awaited",
    "acknowledged_is_stored[fast-looped",
    "acknowledged_is_stored[boto3-looped",
    "acknowledged_is_stored[boto3-record-by_multiprocessing",
    "acknowledged_is_stored[boto3-buffered",
    "acknowledged_is_stored[fast-record-by_multiprocessing",
    "gives_up_after_a_reset_hands_the_entry_back[recorded-None",
    "nothing_was_sent_is_unreachable[boto3 in a loop",
    "nothing_was_sent_is_unreachable[fast in a loop",
    "means_the_same_to_every_transport[boto3-stored, then silence",
    "applied[",
    "means_the_same_to_every_transport[boto3 in a loop",
    "means_the_same_to_every_transport[fast in a loop",
    "says_what_it_may_have_done[",
)
# `make test` runs the contract suite in memory, and this part of it on engines: what compares them
# with the tables in memory, and what of a request or a stream those do not have.
_ON_ENGINES: Final = {
    "moto": (),
    "dynoxide": (),
    "ministack": (
        "engines/test_claims.py::test_a_condition_on_an_index",
        "engines/test_claims.py::test_a_table_that_is_not_there",
        "engines/test_numbers.py::test_a_foreign_spelling",
        "engines/test_record.py",
        "engines/test_repair.py::test_a_walk",
        "engines/test_simulated_table.py",
        "engines/test_stream.py",
    ),
    "event loop": ("engines/test_record.py", "engines/test_snapshot.py"),
}
# A fork that skips Python's hooks leaves the interpreter's own lock as it was: where another thread
# of the process was about to take it, the child may wait for ever, whatever our code does.
_WITHOUT_HOOKS: Final = ("libc", "without_hooks", "hooks skipped")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what only `make test-all` runs."""
    for item in items:
        name = item.path.relative_to(_TESTS).as_posix()
        parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
        again = name.startswith("engines/") and any(
            str(one) in _ON_ENGINES and not f"{name}::{item.name}".startswith(_ON_ENGINES[str(one)])
            for one in parameters
        )
        slow = any(part in item.name for part in _THOROUGH_TESTS)
        if again or slow or (name.startswith(_THOROUGH) and not name.startswith(_STAYS)):
            item.add_marker(pytest.mark.thorough)
        if any(kind in item.name for kind in _WITHOUT_HOOKS):
            item.add_marker(pytest.mark.long)
