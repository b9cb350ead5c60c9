"""A file that is emitted by a process that is killed again and again is counted once."""

import json
import signal
import subprocess
import time
from pathlib import Path
from random import Random

from countledger import CountLedger
from tests.e2e.command import Command

_LINES = 4_000


def test_a_file_is_counted_once_however_often_its_emit_is_killed(
    command: Command, client: CountLedger, name: str, tmp_path: Path
) -> None:
    random = Random(name)  # noqa: S311 - moments
    file = tmp_path / "events.jsonl"
    lines = [{"counter": f"{name}:a", "delta": n} for n in range(1, _LINES + 1)]
    for n in range(0, _LINES, 100):
        lines[n]["key"] = f"k{n}"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    place = tmp_path / "events.jsonl.place"
    line = command.line("emit", "--file", str(file), "--resume", "--json")

    kills = 0
    while kills < 4:
        process = subprocess.Popen(
            line, env=command.variables(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        while not place.exists() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(random.uniform(0, 1.2))
        if process.poll() is not None:
            process.communicate()
            break
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1

    done = command("emit", "--file", str(file), "--resume", "--json")

    assert done.code == 0, done.err
    assert done.json["recorded"] + done.json["duplicates"] == _LINES
    exact = client.exact(f"{name}:a")
    assert (exact.value, exact.entries) == (_LINES * (_LINES + 1) // 2, _LINES)
    assert kills
    refused = command("emit", "--file", str(file))
    assert (refused.code, "give --resume" in refused.err) == (2, True)
    again = command("emit", "--file", str(file), "--resume", "--json")
    assert again.json == done.json
    assert client.exact(f"{name}:a").entries == _LINES
