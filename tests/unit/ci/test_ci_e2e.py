"""`.ci/e2e.py` with pytest itself on small files, and `.ci/run` and `.ci/cluster` with a stand-in for the cluster's folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

CI = Path(__file__).parents[3] / ".ci"
PYTEST = f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {sys.executable} -m pytest -c /dev/null --rootdir . -p no:cacheprovider -q"
HANG = "import time\ndef test_{name}():\n    print('hangs')\n    time.sleep(600)\n"
PASS = "def test_{name}():\n    open('{name}.ran', 'a').write('x')\n"
FAIL = "def test_{name}():\n    open('{name}.ran', 'a').write('x')\n    raise SystemError('broken')\n"
# Fails at its first run only, as on a machine that stood still.
FLAKY = "import os\n" + PASS + "    assert os.path.getsize('{name}.ran') > 1\n"
SKIP = "import pytest\ndef test_{name}():\n    pytest.skip('KUBECONFIG names no cluster')\n"
CLOSE_FAILS = (
    "import pytest\n@pytest.fixture\ndef server():\n    yield\n    raise SystemError('it leaks')\n"
    "def test_{name}(server):\n    pass\n"
)


def run_e2e(folder: Path, *, seconds: float, command: str = "", **tests: str) -> subprocess.CompletedProcess[str]:
    """`.ci/e2e.py` on one file for each of the tests, in their order."""
    for name, text in tests.items():
        (folder / f"test_{name}.py").write_text(text.format(name=name))
    files = " ".join(f"test_{name}.py" for name in tests)
    command = command or f"{PYTEST} ${{E2E_TESTS:-{files}}}"
    arguments = [sys.executable, str(CI / "e2e.py"), str(seconds), "bash", "-c", command]
    return subprocess.run(arguments, cwd=folder, env=surroundings(), capture_output=True, text=True, timeout=120)


def surroundings() -> dict[str, str]:
    """The environment without the options of the pytest that runs this test, whose plug-ins the inner one does not load."""
    return {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}


def runs(folder: Path, name: str) -> int:
    marks = folder / f"{name}.ran"
    return marks.stat().st_size if marks.exists() else 0


def test_all_pass(tmp_path: Path) -> None:
    done = run_e2e(tmp_path, seconds=60, a=PASS, b=PASS)
    assert done.returncode == 0 and "e2e: 2 passed, 0 failed, 0 skipped, 0 left out" in done.stdout, done
    assert runs(tmp_path, "a") == runs(tmp_path, "b") == 1 and "broken off" not in done.stdout


def test_a_hang_before_any_test_fails_within_the_limit(tmp_path: Path) -> None:
    began = time.monotonic()
    done = run_e2e(tmp_path, seconds=1, command="sleep 600 & sleep 600")
    assert done.returncode == 1 and time.monotonic() - began < 30, done
    assert "broken off after 1 s" in done.stdout and "no test passed although a cluster is up" in done.stdout


def test_two_of_three_pass_and_the_third_is_named(tmp_path: Path) -> None:
    done = run_e2e(tmp_path, seconds=8, a=PASS, b=PASS, c=HANG)
    assert done.returncode == 0 and "e2e: 2 passed, 0 failed, 0 skipped, 1 left out" in done.stdout, done
    assert "e2e: passed:\n  test_a.py::test_a\n  test_b.py::test_b\n" in done.stdout
    assert "e2e: left out:\n  test_c.py::test_c\n" in done.stdout and "broken off after 8 s" in done.stdout


def test_a_failing_file_runs_once_more_alone(tmp_path: Path) -> None:
    done = run_e2e(tmp_path, seconds=60, a=PASS, b=FAIL)
    assert done.returncode == 1 and "e2e: failed:\n  test_b.py::test_b\n" in done.stdout, done
    assert "runs once more: test_b.py\n" in done.stdout
    assert runs(tmp_path, "a") == 1 and runs(tmp_path, "b") == 2


def test_a_pass_at_the_second_attempt_is_enough(tmp_path: Path) -> None:
    done = run_e2e(tmp_path, seconds=60, a=PASS, b=FLAKY)
    assert done.returncode == 0 and "e2e: 2 passed, 0 failed" in done.stdout, done
    assert runs(tmp_path, "a") == 1 and runs(tmp_path, "b") == 2


def test_a_failure_stays_one_where_the_limit_comes_first(tmp_path: Path) -> None:
    slow = "import os, time\n" + PASS + "    assert os.path.getsize('{name}.ran') > 1 and not time.sleep(600)\n"
    done = run_e2e(tmp_path, seconds=12, a=PASS, b=slow)
    assert done.returncode == 1 and "e2e: failed:\n  test_b.py::test_b\n" in done.stdout, done
    assert "broken off" in done.stdout and runs(tmp_path, "b") == 2


def test_fixtures_that_fail_to_close_fail(tmp_path: Path) -> None:
    done = run_e2e(tmp_path, seconds=60, a=PASS, b=CLOSE_FAILS)
    assert done.returncode == 1 and "e2e: failed:\n  test_b.py::test_b\n" in done.stdout, done


def test_only_skipped_tests_are_no_success(tmp_path: Path) -> None:
    done = run_e2e(tmp_path, seconds=60, a=SKIP)
    assert done.returncode == 1 and "no test passed although a cluster is up" in done.stdout, done


def test_a_command_that_fails_without_a_failing_test_fails(tmp_path: Path) -> None:
    done = run_e2e(tmp_path, seconds=60, a=PASS, command=f"{PYTEST} test_a.py; exit 3")
    assert done.returncode == 1 and "runs once more: all of it" in done.stdout, done
    assert runs(tmp_path, "a") == 2


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with `.ci` alone, programs that only write their names, and a cluster's folder next to it."""
    root = tmp_path / "checkout"
    shutil.copytree(CI, root / ".ci")
    programs = {"make": 'echo "make $*" >> ran\n[ "$1" != e2e ] || eval "$E2E"', "sleep": ""}
    programs["df"] = 'printf "Avail\\n%s\\n" ${FREE:-100}'
    cluster = {"up": "exit ${UP:-0}", "extras": "", "down": "echo down >> ran"}
    cluster |= {"image": 'echo "image $2" >> ran\necho built\nexit ${IMAGE:-0}'}
    for folder, scripts in (("checkout/bin", programs), ("shared/cluster", cluster)):
        (tmp_path / folder).mkdir(parents=True)
        for name, text in scripts.items():
            (tmp_path / folder / name).write_text(f"#!/bin/bash\n{text}\n")
            (tmp_path / folder / name).chmod(0o755)
    built = tmp_path / "cache/dressage-cluster/v1/bin"
    built.mkdir(parents=True)
    (built / "minio").touch()
    (root / "test_a.py").write_text(PASS.format(name="a"))
    return root


def ci_run(checkout: Path, **environment: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    path = f"{checkout / 'bin'}:{os.environ['PATH']}"
    settings = {"PATH": path, "XDG_CACHE_HOME": str(checkout.parent / "cache"), "E2E": f"{PYTEST} test_a.py"}
    done = subprocess.run(
        [str(checkout / ".ci/run")],
        env={**surroundings(), **settings, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done, (checkout / "ran").read_text().splitlines()


QUICK = ["make lint", "make audit", "make test-console-quick"]


def test_run_prepares_the_cluster_during_lint_and_then_tests(checkout: Path) -> None:
    done, ran = ci_run(checkout)
    assert done.returncode == 0, done
    services = ("orchestrator", "llm-agent", "judge", "renderer", "trainer", "console")
    substitutes = ("test-postgresql", "test-nginx", "test-minio")
    images = [f"image dressage-{name}:dev" for name in (*services, *substitutes)]
    assert [line for line in ran if line in QUICK] == QUICK and [line for line in ran if line in images] == images
    assert ran[len(QUICK) + len(images) :] == ["make e2e", "down", "make test"]
    assert "e2e: 1 passed, 0 failed, 0 skipped, 0 left out" in done.stdout


def test_full_runs_everything(checkout: Path) -> None:
    done, ran = ci_run(checkout, FULL="1", E2E="")
    assert done.returncode == 1 and "make e2e-full" in ran and "make test-console" in ran, done


@pytest.mark.parametrize("there", [True, False])
def test_run_names_e2e_where_no_cluster_comes_up(checkout: Path, there: bool) -> None:
    if not there:
        shutil.rmtree(checkout.parent / "shared")
    done, ran = ci_run(checkout, UP="1")
    assert done.returncode == 0 and "make e2e: skipped, this machine cannot create a cluster" in done.stdout, done
    assert "make lint" in ran and ran[-1] == "make test" and "make e2e" not in ran


def test_run_names_e2e_where_the_disk_is_nearly_full(checkout: Path) -> None:
    done, ran = ci_run(checkout, FREE="24")
    assert done.returncode == 0 and "no cluster: 24 GiB of disk are free, 25 are needed" in done.stderr, done
    assert ran == [*QUICK, "down", "make test"]


def test_run_fails_where_an_image_cannot_be_built(checkout: Path) -> None:
    done, ran = ci_run(checkout, IMAGE="1")
    assert done.returncode == 1 and "the image orchestrator is not built" in done.stderr, done
    assert set(ran) == {*QUICK, "image dressage-orchestrator:dev", "down"} and ran[-1] == "down"


def test_run_fails_where_nothing_of_e2e_ran_in_time(checkout: Path) -> None:
    done, ran = ci_run(checkout, DRESSAGE_E2E_SECONDS="8", E2E="tail -f /dev/null")
    assert done.returncode == 1 and "no test passed although a cluster is up" in done.stdout, done
    assert ran[-1] == "down" and "make test" not in ran
