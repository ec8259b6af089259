"""Method `number`: an author proposes numbers, a function scores them. A plug-in is this file and an entry point."""

import re
from collections.abc import Callable
from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition, InvalidArgument
from dressage_orchestrator.lifecycle import conversations, method
from dressage_orchestrator.lifecycle.steering import Directions
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_FIELDS = {"NumberSpec": ("target", "start", "scale"), "NumberProposal": ("number",)}
_FILE = descriptor_pb2.FileDescriptorProto(name="tests/number.proto", package="tests", syntax="proto3")
for _name, _fields in _FIELDS.items():
    _doubles: Any = [{"name": field, "number": number, "type": 1} for number, field in enumerate(_fields, 1)]
    _FILE.message_type.add(name=_name, field=_doubles)
(_POOL := descriptor_pool.Default()).AddSerializedFile(_FILE.SerializeToString())
_DESCRIPTORS = map(_POOL.FindMessageTypeByName, ["tests.NumberSpec", "tests.NumberProposal"])
NumberSpec, NumberProposal = map(message_factory.GetMessageClass, _DESCRIPTORS)


class NumberSession(method.MethodSession):
    def __init__(self, context: Any) -> None:
        self.context, self.store, self.spec = context, context.store, method.custom_spec(context.spec, NumberSpec)

    def revise(self, number: int, directions: Directions) -> method.Proposal:
        if number == 1 and self.spec.start:
            return method.Proposal(f"{self.spec.start:g}")
        return method.Proposal(self.context.step(f"ask:{number}", lambda: self._ask(number, directions)))

    def _ask(self, number: int, directions: Directions) -> str:
        brief, tried = conversations.brief(self.context), v1.Iteration()
        if number > 1:
            tried = self.store.iteration(directions.rebase or number - 1)
        brief.intent = "\n".join([brief.intent, f"{METHOD.text(tried)} scores {tried.score:.3f}", *directions.notes])
        task = agent_pb.Task(key=conversations.key_of(self.context, f"iterations/{number}/number"))
        task.reward_author.brief.CopyFrom(brief)
        answer = conversations.converse(self.context, number, task)
        self.store.update_iteration(number, v1.Iteration(author=answer.model, parent=tried.name), ["author", "parent"])
        return answer.reward.reasoning.strip()

    def check(self, number: int, proposal: method.Proposal) -> method.Proposal:
        def check() -> None:
            if not _NUMBER.fullmatch(proposal.text):
                raise FailedPrecondition(f"the proposal {proposal.text!r} is no number", reason="NO_NUMBER")
            changes = v1.Iteration()
            changes.custom.Pack(NumberProposal(number=float(proposal.text)))
            self.store.update_iteration(number, changes, ["custom"])
            self.context.put_text(number, "policy/number.txt", proposal.text)

        self.context.step(f"check:{number}:{proposal.version}", check)
        return proposal

    def evaluate(self, number: int, proposal: method.Proposal) -> method.EvaluationResult:
        return self._score(f"evaluate:{number}", proposal, lambda s: self.store.record_score(number, s))

    def confirm(self, number: int, proposal: method.Proposal) -> method.EvaluationResult:
        return self._score(f"confirm:{number}", proposal, lambda s: self.store.confirm(number, score=s))

    def _score(self, step: str, proposal: method.Proposal, record: Callable[[float], Any]) -> method.EvaluationResult:
        score = 1 / (1 + abs(float(proposal.text) - self.spec.target) / self.spec.scale)
        self.context.step(step, lambda: record(score))
        return method.EvaluationResult(score >= self.context.spec.pass_threshold, score)

    def deliverable(self) -> method.Deliverable | None:
        best = self.store.get().best_iteration
        return method.Deliverable(int(best.rpartition("/")[2]), f"{best}/policy") if best else None


class NumberMethod(method.Method):
    name, spec_type = "number", NumberSpec

    def fill(self, spec: v1.SessionSpec) -> None:
        filled = method.custom_spec(spec, NumberSpec)
        filled.scale = filled.scale or 1
        spec.custom.Pack(filled)

    def validate(self, spec: v1.SessionSpec) -> None:
        if (scale := method.custom_spec(spec, NumberSpec).scale) < 0:
            raise InvalidArgument(field="spec.custom.scale", value=scale, expected="a positive number")

    def estimate(self, spec: v1.SessionSpec, *, episode_steps: int) -> method.Estimate:
        return method.Estimate(model_calls=1, input_tokens=100, output_tokens=10)

    async def check_edit(self, spec: v1.SessionSpec, text: str, *, judge: Any) -> None:
        if not _NUMBER.fullmatch(text):
            raise InvalidArgument(field="proposal_source", value=text, expected="a number")

    def text(self, iteration: v1.Iteration) -> str:
        iteration.custom.Unpack(proposal := NumberProposal())
        return f"{proposal.number:g}"

    def open(self, context: Any) -> NumberSession:
        return NumberSession(context)


METHOD = NumberMethod()
