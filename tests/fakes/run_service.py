"""`RunService` for trainer processes: hands out assignments one after another, records reports, grants files of a folder.

As the orchestrator does it, an item is accepted once, and an unfinished assignment goes to the next trainer with what the
trainers before it finished.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.internal.v1 import run_service_pb2_grpc as pb_grpc

RUN = "sessions/s1/runs/train"


class FakeRunService(pb_grpc.RunServiceServicer):
    """Use as a context manager.

    :param store: folder of the artifacts; keys of the only assignment are relative to it, those of several to ``{store}/{id}``.
    :param assignments: what to do, in order.
    :param keep: do not give the lease back when all is done; the trainer waits for more.
    """

    def __init__(self, store: Path, *assignments: pb.Assignment, keep: bool = False) -> None:
        self.store, self.assignments, self._keep = store, list(assignments), keep
        self.reports: queue.Queue[tuple[float, pb.Report]] = queue.Queue()
        self.accepted: dict[tuple[int, str], pb.Report] = {}
        self.repeated: list[str] = []
        """Items that were reported once more, by another trainer or the same."""
        self.sent: list[pb.Assignment] = []
        self._out: queue.Queue[pb.WorkResponse | None] = queue.Queue()
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
        out = self._out = queue.Queue()
        threading.Thread(target=self._receive, args=(request_iterator, out), daemon=True).start()
        while (response := out.get()) is not None:
            yield response
            if response.HasField("no_more_work"):
                return

    def _receive(self, requests: Iterator[pb.WorkRequest], out: queue.Queue[pb.WorkResponse | None]) -> None:
        try:
            for request in requests:
                self._handle(request, out)
        except grpc.RpcError:  # the trainer is gone
            pass
        out.put(None)

    def _handle(self, request: pb.WorkRequest, out: queue.Queue[pb.WorkResponse | None]) -> None:
        kind = request.WhichOneof("message")
        if kind == "hello":
            out.put(pb.WorkResponse(welcome=pb.Welcome(session="s1", progress_interval_seconds=0.1)))
            out.put(self._next())
        elif kind == "report":
            report = request.report
            key = (report.assignment, report.item)
            if report.item and key in self.accepted:
                self.repeated.append(report.item)
            elif report.item:
                self.accepted[key] = report
            self.reports.put((time.monotonic(), report))
            out.put(pb.WorkResponse(report_accepted=pb.ReportAccepted(sequence=report.sequence)))
            if report.WhichOneof("body") == "result":
                out.put(self._next())
        elif kind == "transfer_request":
            requested = request.transfer_request
            grants = pb.TransferGrants(id=requested.id)
            folder = self.store if len(self.assignments) == 1 else self.store / str(requested.assignment)
            for key in (*requested.put, *requested.get):
                grants.grants.add(key=key, url=(folder / key).as_uri())
            out.put(pb.WorkResponse(transfer_grants=grants))

    def _next(self) -> pb.WorkResponse:
        for assignment in self.assignments:
            if (assignment.id, "result") not in self.accepted:
                self.sent.append(self.with_what_is_finished(assignment))
                return pb.WorkResponse(assignment=self.sent[-1])
        if self._keep:  # says nothing
            return pb.WorkResponse(report_accepted=pb.ReportAccepted(sequence=10**9))
        return pb.WorkResponse(no_more_work=pb.NoMoreWork())

    def with_what_is_finished(self, assignment: pb.Assignment) -> pb.Assignment:
        """The assignment as the next trainer gets it."""
        created = pb.Assignment()
        created.CopyFrom(assignment)
        items = {item: report for (number, item), report in self.accepted.items() if number == assignment.id}
        for item, report in items.items():
            created.finished_items.append(item)
            kind = report.WhichOneof("body")
            if kind == "checkpoint":
                created.checkpoint = report.checkpoint.key
            elif kind == "policy" and item.replace("policy/", "evaluation/") not in items:
                created.pending_evaluations.add().CopyFrom(report.policy.policy)
            elif kind == "member" and report.member.HasField("failure"):
                created.stopped[report.member.member].CopyFrom(report.member.failure)
        return created

    def send(self, response: pb.WorkResponse) -> None:
        """Send a message to the trainer that connected last."""
        self._out.put(response)

    def cancel(self, number: int, reason: str = "superseded") -> None:
        """Cancels an assignment, as if its result were there, and hands out the next."""
        self.accepted[number, "result"] = pb.Report()
        self.send(pb.WorkResponse(cancel_assignment=pb.CancelAssignment(assignment=number, reason=reason)))
        self.send(self._next())

    def results(self) -> dict[int, pb.AssignmentResult]:
        """What was accepted as results, by assignment."""
        return {number: report.result for (number, item), report in self.accepted.items() if item == "result"}

    def start_trainer(self, scratch: Path, *more: str, attempt: int = 1) -> subprocess.Popen[bytes]:
        """A real trainer process that dials this service."""
        environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "DRESSAGE_ENVIRONMENTS") if name in os.environ},
            "DRESSAGE_RUN_TOKEN": "token",
            "OMP_NUM_THREADS": "1",
            # Nothing of a test is left in the user's cache.
            "DRESSAGE_RUN_COMPILED_CACHE": str(self.store.with_name("compiled")),
        }
        command = [sys.executable, "-m", "dressage_trainer", "--address", self.address, "--run", RUN]
        command += ["--attempt", str(attempt), "--scratch", str(scratch), *more]
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
