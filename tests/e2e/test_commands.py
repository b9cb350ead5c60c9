"""Every other command on the deployed stack, once: what it prints, its JSON, its exit code."""

import shlex
from typing import Any, Final

import pytest

from countledger.infra.local.stack import LocalStack
from tests.e2e.command import Command
from tests.e2e.steps import ANY, Story, play, problem, step, totals

_HALL: Final = "strict create NS:hall --lower 0"
_RULE: Final = "alert create NS --prefix NS: --threshold 100 --direction rising"
_SCHEDULE: Final = {
    "namespace": "NS",
    "expression": "rate(15 minutes)",
    "region": "us-east-1",
    "min_entries": 100,
    "min_age_ms": None,
    "retire": "transaction",
    "archive": None,
}
_TAKE: Final = "claim take NS ann@x.org --owner u-1"
_CHANGE: Final = "claim change NS --from ann@x.org --to ann@y.org --owner u-1"
_STORIES: Final[dict[str, Story]] = {
    "a strict counter is created, changed, refused at its bound and deleted": (
        step(
            f"{_HALL} --method marker --opening 500",
            {
                "counter": "NS:hall",
                "method": "marker",
                "value": "500",
                "lower": "0",
                "upper": None,
                "version": ANY,
                "bins": 1,
                "window_ms": 86_400_000,
                "updated_at": ANY,
                "write_units": 4,
            },
        ),
        step(
            "strict change NS:hall -2 --key o-1 --note seat=7",
            {"outcome": "applied", "counter": "NS:hall", "value": "498"},
        ),
        step("strict change NS:hall -2.0 --key o-1", {"outcome": "duplicate", "value": "498"}),
        step("strict change NS:hall -3 --key o-1", code=2),
        step(
            "strict change NS:hall -499",
            {"outcome": "bound_reached", "value": "498", "side": "lower", "bound": "0"},
            code=4,
            err="is at 498, its lower bound is 0: -499 was refused\n",
        ),
        step("strict change NS:hall 1 --key o-1 --at NOW", {"outcome": "applied"}),
        step("strict change NS:hall 1 --key o-1 --at NOW", {"outcome": "duplicate"}),
        step("strict change NS:hall 1 --key k --at 2001-01-01T00:00:00Z", code=2),
        step("strict withdraw NS:hall --key o-1 --at NOW", {"outcome": "duplicate"}, code=1),
        step("strict show NS:hall", out="NS:hall\t499\t0\t-\tmarker\t1\t24 h\t0\t499\t4\t"),
        step("strict delete NS:hall", code=2, err="its value 499, for good: give --yes"),
        step("strict delete NS:hall --yes", {"counter": "NS:hall"}),
        step("strict show NS:hall", code=2, err="does not exist"),
    ),
    "each method is created with its own settings": tuple(
        step(f"strict create NS:{n} --method {options}", facts)
        for n, (options, facts) in enumerate(
            (
                ("atomic", {"method": "atomic", "write_units": 1}),
                ("occ", {"method": "occ", "write_units": 1}),
                ("history --history 3", {"method": "history", "history": 3}),
                (
                    "request_token",
                    {"method": "request_token", "write_units": 2, "updated_at": None},
                ),
                ("marker --window 90m", {"method": "marker", "window_ms": 5_400_000}),
                ("set --max-tokens 30", {"method": "set", "max_tokens": 30}),
                ("atomic --bins 3", {"method": "atomic", "bins": 3}),
            )
        )
    ),
    "total reads a strict counter like any other, without events or freshness": (
        step(f"{_HALL} --method atomic --opening 7 --bins 3"),
        step("strict change NS:hall -1", {"outcome": "applied", "value": None}),
        step("total NS:hall", {"items": [{"value": "6", "method": "atomic", "bins": 3}]}),
        step("total NS:hall --exact", out="NS:hall\t6\t-\t-\t-\t-"),
        step(
            "total NS:hall other-NS --exact",
            {"items": [{"counter": "NS:hall"}, {"exact": {"value": "0"}}]},
        ),
    ),
    "a full set refuses like a bound, and its cost is told when it is created": (
        step("strict create NS:b --method set --max-tokens 100", err="about 4 when it holds"),
        step("strict create NS:a --method set --max-tokens 1"),
        step("strict change NS:a +1 --key seat-1"),
        step(
            "strict change NS:a 1 --key seat-2",
            {"outcome": "set_full", "value": "1", "max_tokens": 1},
            code=4,
            err="is at 1 and holds 1 keys, its maximum: this change is refused",
        ),
        step("strict change NS:a 1 --key seat-1", {"outcome": "duplicate"}),
        step("strict change NS:a 2 --key seat-1", code=2, err="takes changes of 1 and -1, not 2"),
    ),
    "a change is withdrawn for good, or was applied and stays": (
        step(f"{_HALL} --method marker --opening 9"),
        step("strict change NS:hall -1 --key in"),
        step("strict withdraw NS:hall --key out", {"outcome": "withdrawn"}),
        step("strict withdraw NS:hall --key in", {"outcome": "duplicate"}, code=1),
        step(
            "strict change NS:hall -1 --key out",
            {"outcome": "withdrawn"},
            code=2,
            err="what is new needs a new key",
        ),
        step("strict show NS:hall", {"value": "8"}),
    ),
    "bounds move while the counter is in use": (
        step("strict create NS:a --method atomic --opening 500"),
        step("strict set NS:a --upper 600 --lower -5", {"lower": "-5", "upper": "600"}),
        step("strict set NS:a --upper 400", code=2, err="above the upper bound 400"),
        step(
            "strict set NS:a --upper 400 --force",
            {"upper": "400"},
            err="changes up are refused until it is back inside",
        ),
        step("strict change NS:a 1", code=4),
        step("strict change NS:a -0.5", {"value": "499.5"}),
        step("strict set NS:a --upper none", {"lower": "-5", "upper": None}),
        step("strict create NS:b --method request_token"),
        step(
            "strict list NS",
            {"items": [{"counter": "NS:a"}, {"counter": "NS:b", "method": "request_token"}]},
        ),
        step("strict list NS", out="counter\tvalue\tlower\tupper\tmethod\t"),
    ),
    "strict counters change together, are set and read as of one moment": (
        step("strict create NS:ann --method marker --lower 0 --opening 10"),
        step("strict create NS:bob --method marker --lower 0"),
        step(
            "strict transfer NS:ann NS:bob 2.5 --key NS-1",
            {"outcome": "applied", "counter": "NS:ann, NS:bob"},
        ),
        step(
            "strict transfer NS:ann NS:bob 2.5 --key NS-1",
            {"outcome": "duplicate", "counter": "NS:ann, NS:bob"},
        ),
        step(
            "strict transfer NS:bob NS:ann 3 --key NS-2",
            {"outcome": "bound_reached", "counter": "NS:bob"},
            code=4,
            err="counter 'NS:bob' is at 2.5",
        ),
        step("strict together NS:ann=-7.5 NS:bob=+7.5 --key NS-3", {"outcome": "applied"}),
        step("set NS:bob 4 --key NS-4", {"outcome": "applied", "counter": "NS:bob", "value": "4"}),
        step("snapshot NS:ann NS:bob", {"items": [{"value": "0"}, {"value": "4"}]}),
        step("snapshot NS:ann NS:bob", out="NS:bob\t4\t"),
        step("strict withdraw --key NS-5"),
        step("strict withdraw --key NS-1", code=1, err="too late"),
    ),
    "a counter of a ledger is set by an entry that the log shows": (
        step("emit NS:a 3"),
        step("set NS:a -5 --key k-1", {"outcome": "recorded", "value": "-5", "delta": "-8"}),
        step("set NS:a -5 --key k-1", {"outcome": "duplicate", "value": "-5", "delta": "-8"}),
        step("set NS:a 1 --key k-2"),
        step(
            "entries NS:a", [{"delta": "6", "note": {"set": "1"}}, {"delta": "-8"}, {"delta": "3"}]
        ),
        totals(a=1),  # not 0, which is the total of a counter that has none yet
        step("snapshot NS:a", out="NS:a\t1\t", err="as materialized"),
    ),
    "a group is made, shown, ranked and deleted": (
        step("emit NS:ann 3"),
        step("emit NS:bob 5"),
        totals(ann=3, bob=5),
        step("group add NS NS:ann NS:bob", {"group": "NS", "added": ["NS:ann", "NS:bob"]}),
        step("group rank NS", {"group": "NS", "ranked": True, "members": 2}),
        step("emit NS:ann 9"),
        totals(ann=12),
        step("group top NS --limit 1", [{"rank": 1, "counter": "NS:ann", "value": "12"}]),
        step("group show NS", out="NS:ann\t12\t2", err="sum: 17\n"),
        step("group show NS --limit 1", {"items": [{}], "more": True, "sum": "12"}),
        step("group show NS --after NS:ann", {"items": [{"counter": "NS:bob"}], "more": False}),
        step("group list --of NS:ann", {"items": [{"name": "NS"}]}),
        step("group list", out="NS\tyes"),
        step("group unrank NS", {"ranked": False}),
        step("group remove NS NS:bob NS:none", {"removed": ["NS:bob"]}),
        step("group delete NS", {"group": "NS", "members": 1}),
        step("group show NS", code=2, err="does not exist"),
    ),
    "a namespace is ranked by the deployed materializer": (
        step("emit NS:a 3"),
        totals(a=3),
        step("namespace top NS", code=2, err="namespace rank"),
        step("namespace rank NS --no-wait", {"namespace": "NS", "ranked": True, "totals": 1}),
        step("namespace top NS", [{"rank": 1, "counter": "NS:a", "value": "3"}]),
        step("namespace counters NS", [{"counter": "NS:a", "value": "3"}]),
        step("namespace unrank NS", {"namespace": "NS", "ranked": False, "totals": 1}),
        step("namespace top NS", code=2),
    ),
    "a new counter of a ranked namespace is ranked with its first entry": (
        step("namespace create NS"),
        step("namespace rank NS --no-wait"),
        step("emit NS:new 3"),
        totals(new=3),
        step("namespace top NS", [{"rank": 1, "counter": "NS:new", "value": "3"}]),
    ),
    "numbers are drawn once each": (
        step("sequence create NS:a --first 70001", {"last": 70_000, "version": 1}),
        step("sequence draw NS:a", out="NS:a\t70001\t70001\n"),
        step(
            "sequence draw NS:a --count 1000",
            {"sequence": "NS:a", "first": 70_002, "last": 71_001},
        ),
        step("sequence draw NS:a --expected --known 71001", {"first": 71_002}),
        step("sequence show NS:a", {"last": 71_002, "version": 4}),
        step("sequence create NS:a", code=2),
        step("total NS:a", {"items": [{"value": "71002"}]}),
        *(
            step(line, code=2, err="of kind sequence")
            for line in ("verify NS:a", "entries NS:a", "emit NS:a 1", "strict change NS:a 1")
        ),
    ),
    "a value has one owner, who changes and releases it": (
        step(_TAKE, {"scope": "NS", "value": ["ann@x.org"], "owner": "u-1", "done": True}),
        step(_TAKE, {"done": False}),
        step(
            "claim take NS ann@x.org --owner u-2",
            code=4,
            err="countledger: NS 'ann@x.org' is claimed by 'u-1'\n",
        ),
        step(_CHANGE, {"value": ["ann@y.org"], "done": True}),
        step("claim show NS ann@y.org", {"owner": "u-1", "value": ["ann@y.org"], "claim_id": ANY}),
        step("claim release NS ann@y.org --owner u-1", out="NS\tann@y.org\tu-1\tyes"),
        step("claim show NS ann@y.org", {"owner": None, "claim_id": None}, code=1),
        step(_CHANGE, code=4, err="is not claimed"),
        step("claim take NS hall-1 row-3 --owner u-1 --claim-id c-1"),
        step("claim show NS hall-1", code=1),
        step("claim take NS hall-1 row-3 --owner u-2", code=4),
        step("claim release NS hall-1 row-3 --owner u-1 --claim-id c-1", {"done": True}),
        step("claim take NS hall-1 row-3 --owner u-1 --claim-id c-2"),
        step("claim release NS hall-1 row-3 --owner u-1 --claim-id c-1", {"done": False}),
        step("claim show NS hall-1 row-3", {"claim_id": "c-2"}),
    ),
    "a quota admits its limit in each window": (
        step(
            "quota create NS: --limit 10 --per month --time-zone Europe/Berlin",
            {
                "prefix": "NS:",
                "limit": "10",
                "per": "month",
                "time_zone": "Europe/Berlin",
                "method": "marker",
                "revision": 1,
                "updated_at": ANY,
                "counters": {},
            },
        ),
        step("quota create NS: --limit 11 --per month", code=2, err="exists"),
        step(
            "quota acquire NS:a 7.5 --key k",
            {
                "counter": "NS:a",
                "amount": "7.5",
                "remaining": "2.5",
                "window": ANY,
                "resets_at": ANY,
                "duplicate": False,
                "ticket": None,
                "limits": [
                    {
                        "counter": "NS:a",
                        "prefix": "NS:",
                        "per": "month",
                        "window": ANY,
                        "limit": "10",
                        "remaining": "2.5",
                        "resets_at": ANY,
                    }
                ],
            },
        ),
        step("quota acquire NS:a 7.5 --key k", {"duplicate": True}),
        step("quota acquire NS:a 3", code=4, err="7.5 of 10 are used, 3 more are too many"),
        step(
            "quota acquire NS:a 11",
            {"outcome": "denied", "counter": "NS:a", "amount": "11", "limit": "10"},
            code=4,
            err="never admitted",
        ),
        step("quota acquire NS:a", out="NS:a\t1\t"),
        step("quota reserve NS:a 1 --key r", {"remaining": "0.5"}, keeps="ticket"),
        step(
            "quota commit {ticket} 1.25",
            {"counters": ["NS:a"], "actual": "1.25", "overrun": "0.25", "duplicate": False},
        ),
        step("quota commit {ticket} 1.25", {"duplicate": True}),
        step("quota release {ticket}", code=4, err="committed"),
        step("quota reserve NS:a 0.25 --key s", {"remaining": "0"}, keeps="ticket"),
        step("quota release {ticket}", {"released": True}),
        step("quota release {ticket}", {"released": False}),
        step("quota release no-ticket", code=2, err="is of no reservation of this stack"),
        step("quota reserve NS:a 1 --key r", code=4, err="is committed (1.25)"),
        step("quota override NS:b 20", {"counter": "NS:b", "limit": "20"}),
        step("quota acquire NS:b 20", {"remaining": "0"}),
        step("quota override NS:b none", {"limit": None}),
        step("quota set NS: 9", {"prefix": "NS:", "limit": "9"}),
        step(
            "quota show NS:b",
            {"items": [{"limit": "9", "used": "20", "remaining": "0", "overridden": False}]},
        ),
        step("quota create NS: --limit 3 --per day"),
        step("quota set NS: 9", code=2, err="per, one of: day, month"),
        step("quota acquire NS:c 2 --also NS:d --key t", {"remaining": "1", "duplicate": False}),
        step("quota acquire NS:d 2 --also NS:c --key t", {"duplicate": True}),
        step("quota acquire NS:e 2 --also NS:d", code=4, err="2 of 3 are used"),
        step("quota delete NS: --per day --yes", {"prefix": "NS:", "per": "day"}),
        step("quota list", out="NS:\t9\tmonth"),
        step("quota list", {"items": [{"prefix": "NS:"}], "more": False, "unreadable": []}),
        step("quota delete NS:", code=2, err="give --yes"),
        step("quota delete NS: --yes", {"prefix": "NS:"}),
        step("quota show NS:a", code=2, err="no quota is for"),
    ),
    "windows are switched on, shown, verified and rebuilt": (
        step("namespace create NS"),
        step("windows show NS:a --last 2h", code=2, err="windows enable NS --by day"),
        step(
            "windows enable NS --by hour,day --time-zone Europe/Berlin",
            {"namespace": "NS", "by": "hour", "max_lateness_ms": None, "until": None},
        ),
        step("emit NS:a 5"),
        totals(a=5),
        step("windows show NS:a --by hour --last 2h", out="provisional"),
        step("windows list", out="NS\thour\tEurope/Berlin"),
        step("verify NS:a --windows", {"counts": {"exact": 1}, "findings": 0}),
        step("verify --windows --namespace NS", {"counts": {"exact": 1}}),
        step("verify --windows", code=2, err="give counters, --namespace, or --all"),
        step("windows rebuild NS:a --dry-run", {"counts": {"none": 1}}),
        step("repair NS:a --windows --dry-run", {"counts": {"none": 1}}),
        step("repair NS:a --archived s3://b/p", code=2, err="goes with --windows"),
        step("windows rebuild --namespace NS", {"counts": {"none": 1}, "items": []}),
        step("top NS --day today", code=2, err="windows enable NS --by hour --rank"),
        step("windows enable NS --by day --time-zone Europe/Berlin --rank", {"ranked": 4}),
        step("top NS --day today", code=2, err="were changed at"),
        step("top NS --day tomorrow", code=2, err="give a date"),
        step(
            "alert create NS --prefix NS: --threshold 100 --window day",
            {"window": "day", "direction": "rising"},
        ),
        step("alert set NS --window hour", code=2, err="windows enable NS --by hour"),
        step("alert delete NS", {"deleted": True}),
        step("windows disable NS", {"until": ANY}),
    ),
    "an alert rule lives from create to delete": (
        step(
            _RULE,
            {
                "name": "NS",
                "counter": None,
                "prefix": "NS:",
                "threshold": "100",
                "direction": "rising",
                "rearm": None,
                "step": None,
                "to": "bus",
                "evaluate_in": "us-east-1",
                "revision": ANY,
                "effective_from": ANY,
            },
        ),
        step(_RULE, code=2, err="alert set NS"),
        step(
            "alert set NS --rearm 50 --evaluate-in us-east-1", {"rearm": "50", "threshold": "100"}
        ),
        step("alert show NS", {"rearm": "50"}),
        step("alert list", out="NS\tNS:*"),
        step("alert delete NS", {"name": "NS", "deleted": True}),
        step("alert delete NS", {"name": "NS", "deleted": False}),
    ),
    "of a counter that had crossed before its rule, it is said why it does not alert": (
        step("emit NS:one 150"),
        totals(one=150),
        step(
            "alert create NS --counter NS:one --threshold 100 --direction rising --wait",
            err="NS:one is at 150, and rule NS has not alerted: it was past 100 before",
        ),
        step("alert list", out="NS\tNS:one", err="alert set NS --now"),
        step("alert set NS --threshold 151", out="NS\tNS:one", err=""),
        step("alert set NS --threshold 150", err="has not alerted"),
        step("alert set NS --now", {"published_now": 1}),
        step("alert delete NS", {"deleted": True}),
    ),
    "of counters of a prefix, and with a step it is said as well": (
        step("emit NS:one 150"),
        step("emit NS:two 20"),
        totals(one=150, two=20),
        step(
            "alert create NS --prefix NS: --threshold 10 --step 50 --direction rising",
            err="NS:one is at 150, and rule NS has not alerted: it was past 110 before",
        ),
        step("alert show NS", err="alerts when the total passes 160, the next step"),
        step("alert show NS", err="NS:two is at 20"),
        step("alert list", err=""),
        step("alert delete NS"),
    ),
    "totals beyond the threshold alert with --now": (
        step("emit NS:old 150"),
        totals(old=150),
        step("alert create silent-NS --prefix NS: --threshold 100 --direction rising"),
        step(f"{_RULE} --now", {"published_now": 1}),
        step("alert set NS --now", {"published_now": 0}),
        step("alert test NS NS:old", {"alert": {"test": True}}),
        step("alert test NS elsewhere", code=2),
        step(
            "alert log NS:old",
            [{"alert": {"rule": "NS", "threshold": "100", "new": "150"}, "reason": None}],
        ),
        step("alert log", out="NS:old"),
    ),
    "a schedule lives from create to delete": (
        step("namespace create NS"),
        step("schedule create NS --every 15m", _SCHEDULE),
        step("schedule create NS --every 15m", _SCHEDULE),
        step("schedule create NS --every 1h", code=2, err="rate(15 minutes)"),
        step(
            "schedule set NS --min-age 30d --retire delete",
            {**_SCHEDULE, "min_age_ms": 2_592_000_000, "retire": "delete"},
        ),
        step("schedule show NS", {"retire": "delete", "state": "enabled"}),
        step("schedule list", out="NS\trate(15 minutes)\t100\t30 d\tdelete"),
        step("schedule set NS --min-age none", {"min_age_ms": None, "retire": "delete"}),
        step("schedule delete NS", {"namespace": "NS", "deleted": True}),
        step("schedule show NS", code=2, err="countledger schedule create NS"),
    ),
    "a month is estimated": (
        step(
            "cost --events-per-day 1000000 --retire delete",
            {"month": ANY, "usd": ANY, "savings": ANY, "prices_as_of": ANY},
        ),
        step("cost --events-per-day 1000000", out="a month", err="would save $"),
    ),
}


@pytest.mark.parametrize("title", _STORIES)
def test_it_happens_as_told(command: Command, title: str) -> None:
    play(command, _STORIES[title])


_ARN: Final = "arn:aws:sns:us-east-1:000000000000:none"
# NS:m is a strict counter of value 5 between 0 and 10, log-NS:a a counter of a ledger.
_REFUSED: Final = {
    "strict create NS:x --method marker --lower 5 --upper 5": "leave no headroom for any change",
    "strict create NS:x --method marker --lower 0 --opening -1": "is below the lower bound 0",
    "strict create NS:x --method set --max-tokens 1639": "would pass 64 KB",
    "strict create NS:x --method marker --history 5": "history is a choice of method history",
    "strict create NS:x --method occ --bins 2": "cannot have bins",
    "strict create NS#b --method occ": "'#', which is reserved",
    "strict create NS:m --method occ": "exists, of method marker",
    "strict hold NS:bins 1 --key b": "marker",
    f"strict confirm NS:m#k{'0' * 32}": "it was never placed",
    "strict create log-NS:a --method occ": "of kind ledger; this call is for counters of kind",
    "strict change log-NS:a 1": "of kind ledger; this call is for counters of kind",
    "strict change NS:m 1 --prefer over": "for method atomic",
    "strict change NS:m 1 --key k --at 2101-01-01T00:00:00Z": "ahead",
    "strict change NS:x 1": "does not exist",
    "strict set NS:m --upper 4": "is above the upper bound 4",
    "strict set NS:m --lower 9 --upper 9 --force": "leave no headroom",
    "strict delete NS:x --yes": "does not exist",
    "strict set NS:m": "give a lower or an upper bound to set",
    "strict list no-such": "namespace 'no-such' does not exist",
    "strict together a:b --key k": "COUNTER=DELTA",
    "strict together a:b=1 a:b=2 --key k": "twice",
    "strict transfer a:b a:c -1 --key k": "below zero",
    "set a:b much --key k": "not a decimal number",
    "emit NS:m 1": "of kind strict; this call is for counters of kind ledger",
    "emit log-NS:a 1 --key k --at 2001-01-01T00:00:00Z": "horizon",
    "emit log-NS:a 1 --key k --at 2101-01-01T00:00:00Z": "ahead",
    "group add a#b a:b": "group name",
    "group top nobody-has-it --limit 0": "1 to 1000",
    "namespace top nobody-has-it": "namespace",
    f"snapshot {' '.join(f'a:{n}' for n in range(101))}": "101 counters",
    "sequence draw NS-x:a --known 3": "--known goes with --expected",
    "sequence draw NS-x:a --expected --count 2": "takes no --count",
    "sequence draw NS-x:a --count 0": "is not a whole number from 1",
    "sequence create NS-x:a --first -1": "first",
    "sequence show NS-x:a": "does not exist",
    "sequence append t '[1]' --partition id=a --sort s": "is no JSON object",
    "sequence append t '{\"a\": NaN}' --partition id=a --sort s": "NaN is no number",
    "sequence append t {} --partition id --sort s": "is not NAME=TEXT",
    "sequence append t {} --partition id:=a --sort s": "is no integer",
    "sequence append t '{\"s\": 1}' --partition id=a --sort s": "s",
    "sequence append no-such-table {} --partition id=a --sort s": "no-such-table",
    "claim take NS# a --owner u": "#",
    "claim take NS a --owner ''": "owner",
    "claim take NS a --owner u --table t": "give all of them, or none",
    "claim take NS a --owner u --table t --key-name id --item {}": "id",
    "claim change NS --from a --to a --owner u": "a",
    "claim change NS --from a --to b --owner u --expect {}": "--expect is about an item",
    "claim release NS a --owner u --table t --key []": "is no JSON object",
    "claim release NS a --owner u --table '' --key ''": "is no JSON object",
    "quota create NS --limit 1 --per day": "colon",
    "quota create NS: --limit x --per day": "limit",
    "quota create NS: --limit 1 --per week": "'minute', 'hour', 'day', 'month'",
    "quota create NS: --limit 1 --per day --time-zone Berlin": "IANA",
    "quota acquire nobody:a": "no quota is for",
    "quota acquire NS:a 0": "amount",
    f"{_RULE} --to {_ARN}": "no alert would arrive",
    f"{_RULE} --to {_ARN.replace('us-east', 'eu-west')}": "give a topic in us-east-1",
    f"{_RULE} --to {_ARN.replace('aws', 'aws-cn')}": "nothing crosses partitions",
    f"{_RULE} --evaluate-in eu-west-1": "eu-west-1",
    "alert create NS --counter NS:bins --threshold 5 --direction falling": "4 bins: no update",
    "schedule create no-such --every 1h": "does not exist",
    "schedule create NS --every 1h": "kind strict",
    "schedule create log-NS --every 1h --min-age 24h": (
        "horizon 24 h + replication bound 15 min + clock skew 1 min"
    ),
    "schedule set log-NS --every 1h": "has no schedule",
    "compact no-such:x": "namespace 'no-such'",
    "compact --namespace NS": "of kind strict",
    "compact --namespace none-such --due": "namespace 'none-such'",
    "cost --events-per-day -1": "-1",
    "repair a:b --resume x": "--resume goes with --all",
    "verify --all --segments 65": "segments",
    "export a:b --namespace a": "give counters, or --namespace",
    "export no-such-namespace:b": "does not exist",
    "import -": "give the import one with --name",
    "import no-such-file.jsonl": "cannot be read",
    "import - --name a#b": "holds a '#'",
    "delete NS:m": "--yes NS:m",
    "delete NS:m --yes NS:x": "nothing was deleted",
    "total NS:x --stack-name other": "no stack 'other'",
    "total NS:x --profile no-such-profile": "no-such-profile",
}


def test_a_refusal_is_one_line_and_writes_nothing(command: Command, stack: LocalStack) -> None:
    name = play(
        command,
        (
            step("strict create NS:m --method marker --lower 0 --upper 10 --opening 5"),
            step("strict create NS:bins --method atomic --bins 4"),
            step("emit log-NS:a 1"),
            step("total log-NS:a", {"items": [{"value": "1"}]}, waits=True),
        ),
    )
    before = _items_like(stack, name)

    wrong: list[str] = []
    for line, reason in _REFUSED.items():
        done = command(*shlex.split(line.replace("NS", name)))
        found = problem(done, None, 2, "", reason.replace("NS", name))
        wrong += [f"{line}: {found}: {done}"] * bool(found)

    assert not wrong, "\n".join(wrong)
    assert _items_like(stack, name) == before


@pytest.mark.parametrize(
    ("line", "reason", "environment"),
    [
        (
            "strict show a:b",
            "namespace 'a' does not exist",
            {"COUNTLEDGER_HOME_REGION": "eu-central-1"},
        ),
        ("strict change a:b 1", "not exist", {"COUNTLEDGER_HOME_REGION": "eu-central-1"}),
        ("schedule create a --every 1h", "home region", {"COUNTLEDGER_HOME_REGION": "eu-west-1"}),
        ("compact a:x", "merged in the home", {"COUNTLEDGER_HOME_REGION": "eu-west-1"}),
        (_RULE, "event bus 'nobody-made-it'", {"COUNTLEDGER_ALERT_BUS": "nobody-made-it"}),
        ("emit a:b 1", "COUNTLEDGER_*_TABLE", {"COUNTLEDGER_LEDGER_TABLE": "none"}),
        ("total a:b", "credentials", {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}),
        ("total a:b", "127.0.0.1:1", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}),
        ("total a:b", "Invalid endpoint", {"AWS_ENDPOINT_URL": "nonsense"}),
    ],
)
def test_a_wrong_set_up_is_refused_with_its_reason(
    command: Command, line: str, reason: str, environment: dict[str, str | None]
) -> None:
    other = Command(command.variables(environment))

    play(other, [step(line, code=2, err=reason)])


def test_two_variables_that_name_the_tables_are_enough_to_record_and_to_read(
    command: Command, stack: LocalStack
) -> None:
    """What needs more of a stack names the variable that is not set."""
    alone = {
        "COUNTLEDGER_STACK_NAME": "no-such",
        "COUNTLEDGER_LEDGER_TABLE": stack.outputs["LedgerTableName"],
        "COUNTLEDGER_COUNTERS_TABLE": stack.outputs["CountersTableName"],
    }
    unknown = "how fresh it is, is unknown: COUNTLEDGER_LEDGER_STREAM_ARN is not set"

    play(
        Command(command.variables(alone)),
        (
            step("emit NS:a 3", out="recorded"),
            step("emit NS:a 2 --wait", {"value": "5"}),
            step("total NS:a", {"items": [{"value": "5"}], "freshness": None}),
            step("total NS:a --exact", out="NS:a\t5\t5", err=unknown),
            step("entries NS:a", out="\t2\t"),
            step("alert list"),
            step(f"{_RULE} --to bus", code=2, err="is not set, and no stack"),
            step("quarantine list"),
        ),
    )


def test_shared_options_are_given_before_or_after_the_command(
    command: Command, stack: LocalStack
) -> None:
    there = f"--endpoint-url {stack.url} --region us-east-1 --stack-name {stack.name}"
    bare = dict.fromkeys(("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION"))

    play(
        Command(command.variables(bare)),
        (
            step(f"total NS:a {there} --json", out='"value": "0"'),
            step(f"{there} --json total NS:a", out='"value": "0"'),
            step(f"--stack-name no-such total NS:a {there} --output json", out='"value": "0"'),
            step(f"namespace {there} --output json list", out="["),
        ),
    )


def _items_like(stack: LocalStack, namespace: str) -> list[dict[str, Any]]:
    """Every item of a namespace in either table, the namespace's own included."""
    client = stack.client("dynamodb")
    found: list[dict[str, Any]] = []
    for output in ("LedgerTableName", "CountersTableName"):
        pages = client.get_paginator("scan").paginate(
            TableName=stack.outputs[output],
            FilterExpression="contains(#c, :n)",
            ExpressionAttributeNames={"#c": "counter"},
            ExpressionAttributeValues={":n": {"S": namespace}},
            ConsistentRead=True,
        )
        found += [dict(item) for page in pages for item in page["Items"]]
    return sorted(found, key=str)
