"""`RunService` for one trainer process: hands out one assignment, records reports, grants files of a folder."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from concurrent import futures
from pathlib import Path

import grpc
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.internal.v1 import run_service_pb2_grpc as pb_grpc

RUN = "sessions/s1/iterations/1/runs/train"


class FakeRunService(pb_grpc.RunServiceServicer):
    """Use as a context manager.

    :param store: folder of the artifacts; keys are relative to it.
    """

    def __init__(self, store: Path, assignment: pb.Assignment) -> None:
        self.store, self.assignment = store, assignment
        self.reports: queue.Queue[tuple[float, pb.Report]] = queue.Queue()
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        pb_grpc.add_RunServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._trainer: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> FakeRunService:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._trainer is not None and self._trainer.poll() is None:
            self._trainer.kill()
            self._trainer.wait(10)
        self._server.stop(0.5)

    def Work(self, request_iterator, context):
        ended = threading.Event()
        for request in request_iterator:
            kind = request.WhichOneof("message")
            if kind == "hello":
                yield pb.WorkResponse(welcome=pb.Welcome(session="s1", progress_interval_seconds=0.1))
                yield pb.WorkResponse(assignment=self.assignment)
            elif kind == "report":
                self.reports.put((time.monotonic(), request.report))
                yield pb.WorkResponse(report_accepted=pb.ReportAccepted(sequence=request.report.sequence))
                if request.report.WhichOneof("body") in ("done", "failed"):
                    yield pb.WorkResponse(no_more_work=pb.NoMoreWork())
                    ended.set()
                    return
            elif kind == "transfer_request":
                asked = request.transfer_request
                grants = pb.TransferGrants(id=asked.id)
                for key in (*asked.put, *asked.get):
                    grants.grants.add(key=key, url=(self.store / key).as_uri())
                yield pb.WorkResponse(transfer_grants=grants)

    def start_trainer(self, scratch: Path, *, attempt: int = 1) -> subprocess.Popen[bytes]:
        """A real trainer process that dials this service."""
        environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "DRESSAGE_RUN_TOKEN": "token",
            "OMP_NUM_THREADS": "1",
            # Nothing of a test is left in the user's cache.
            "DRESSAGE_RUN_COMPILED_CACHE": str(self.store.with_name("compiled")),
        }
        command = [sys.executable, "-m", "dressage_trainer", "--address", self.address, "--run", RUN]
        command += ["--attempt", str(attempt), "--scratch", str(scratch)]
        self._trainer = subprocess.Popen(command, env=environment)
        return self._trainer

    def wait_for(self, body: str, *, timeout: float = 120.0) -> tuple[float, pb.Report]:
        """The next report of a kind, and when it came; others are dropped."""
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            try:
                when, report = self.reports.get(timeout=left)
            except queue.Empty:
                break
            if report.WhichOneof("body") == body:
                return when, report
        raise AssertionError(f"no {body} report in {timeout} s")
