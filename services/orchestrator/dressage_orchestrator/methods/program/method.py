"""Method `program`: collect programs → search → score the best one on report states."""

from __future__ import annotations

from dressage.api.v1 import session_pb2 as v1
from google.protobuf.message import Message

from dressage_orchestrator.clients import JudgeClient
from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.lifecycle.method import Estimate, Method, MethodSession
from dressage_orchestrator.methods.program import spec
from dressage_orchestrator.methods.program.revising import Revisions
from dressage_orchestrator.methods.program.searching import ProgramSearch
from dressage_orchestrator.methods.program.seeding import as_text, parse_text


class ProgramMethod(Method):
    """Programs of a small language, by search or by revision."""

    name = spec.NAME
    spec_type: type[Message] = v1.ProgramSpec

    def fill(self, full: v1.SessionSpec) -> None:
        """Fill in the defaults of `spec`."""
        spec.fill(full)

    def validate(self, full: v1.SessionSpec) -> None:
        """Reject a spec that contradicts itself or its environment."""
        spec.validate(full)

    def estimate(self, full: v1.SessionSpec, *, episode_steps: int) -> Estimate:
        """Return the estimate of one iteration."""
        return spec.estimate(full)

    def seconds(self, full: v1.SessionSpec, estimate: Estimate, *, cores: int, rate: float | None) -> float:
        """Return the seconds that the budget may take."""
        return spec.seconds(full, cores=cores)

    async def check_edit(self, full: v1.SessionSpec, text: str, *, judge: JudgeClient) -> None:
        """Reject a person's programs that cannot be parsed."""
        parse_text(spec.task_of(full), text, field="proposal_source")

    def goal(self, full: v1.SessionSpec) -> str:
        """Return the mean return required on report states."""
        return f"a mean return of {full.program.target:g}"

    def note(self, full: v1.SessionSpec) -> str:
        """Return what the user should know of the language's speed."""
        chosen = spec.task_of(full)
        return f"{chosen.environment}: {chosen.family.note}" if chosen.family.note else ""

    def text(self, iteration: v1.Iteration) -> str:
        """Return the chosen program; before there is one, the programs to start from."""
        proposal = iteration.program
        return proposal.program or (as_text(proposal.programs, search="") if proposal.programs else "")

    def open(self, context: SessionContext) -> MethodSession:
        """Return the method's part of a session."""
        return Revisions(context) if context.spec.program.search in spec.REVISIONS else ProgramSearch(context)
