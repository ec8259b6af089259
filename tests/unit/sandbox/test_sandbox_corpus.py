"""The corpus of hostile programs, as root and as an ordinary user, next to neighbours whose results must not change.

Programs that only try something share a sandboxed process. Programs that break it have one each.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from dressage.sandbox.capabilities import capabilities

from tests.unit.sandbox.corpus import CALLS, FATAL, GENERATED, HOARDS, RAW, SECRET

_ORDINARY = 65534
_SECONDS = 300


@pytest.fixture(scope="module", params=["same user", "ordinary user"])
def outcomes(request):
    """What each program of the corpus did."""
    if not capabilities().sufficient:
        pytest.skip(f"no sandbox here: {capabilities().missing}")
    uid = _ORDINARY if request.param == "ordinary user" else 0
    if uid and os.geteuid() != 0:
        pytest.skip("the tests run as an ordinary user already")
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), *filter(None, sys.path)])}
    # Not below pytest's folder: every pytest that starts closes that to other users.
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(here / "corpus_runner.py"), str(uid), folder]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS)
    if "no mount namespace" in done.stderr or "cannot mount" in done.stderr:
        pytest.skip("other users cannot enter the interpreter's folder, and no mount is allowed here")
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["uid"] == (uid or os.geteuid())
    return result


def test_the_corpus_has_its_size():
    assert len(RAW) + len(GENERATED) + len(FATAL) >= 100


def test_no_program_reaches_outside(outcomes):
    refused = outcomes["raw"]["outcomes"]
    assert set(refused) == set(RAW)
    assert {name: outcome for name, outcome in refused.items() if outcome.startswith("did:")} == {}
    kinds = {"PermissionError", "OSError", "MemoryError", "ValueError", "gaierror", "nothing", "FileNotFoundError"}
    assert {name: outcome for name, outcome in refused.items() if outcome not in kinds} == {}


def test_no_raw_system_call_succeeds(outcomes):
    assert outcomes["calls"]["succeeded"] == []
    assert len(outcomes["calls"]["known"]) >= 0.8 * len(CALLS)


def test_no_trick_of_the_language_leads_outside(outcomes):
    tried = outcomes["generated"]["outcomes"]
    assert set(tried) == set(GENERATED)
    assert {name: outcome for name, outcome in tried.items() if outcome.startswith("did:")} == {}
    assert {outcome for outcome in tried.values() if outcome.endswith("SyntaxError")} == set()


def test_a_broken_process_is_a_named_failure(outcomes):
    assert set(outcomes["fatal"]) == set(FATAL)
    assert {name: reply for name, reply in outcomes["fatal"].items() if "failure" not in reply} == {}


def test_no_program_keeps_more_than_it_may(outcomes):
    ends = {name: reply.get("failure", reply.get("error")) for name, reply in outcomes["hoards"].items()}
    assert set(ends) == set(HOARDS)
    assert ends == {
        "keeps pages in shared memory": "PermissionError",
        "keeps pages of shared zeros": "PermissionError",
        "keeps page tables": "memory",
        "keeps removed files open": "killed",
        "keeps removed files mapped": "killed",
    }


def test_neighbours_are_bit_equal_and_nothing_is_left(outcomes):
    assert outcomes["neighbours"] and outcomes["undisturbed"][0]
    assert [reply for reply in outcomes["neighbours"] if reply != outcomes["undisturbed"]] == []
    assert [Path(path).name for path in outcomes["left"]] == ["secret"]
    assert not Path("/tmp/sandbox-escape").exists() and not Path("/tmp/sandbox-escape.npy").exists()
    assert SECRET not in json.dumps(outcomes)
    assert outcomes["affinity"] == len(os.sched_getaffinity(0))
