"""`IntentService`, based on the elicitor of llm-agent."""

from __future__ import annotations

import hashlib
from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import intent_service_pb2 as pb
from dressage.api.v1 import session_pb2 as v1
from dressage.envs.cards import load_card
from dressage.errors import InvalidArgument

from dressage_orchestrator.clients import AgentClient, require_model
from dressage_orchestrator.database import sessions
from dressage_orchestrator.models import TEMPLATE
from dressage_orchestrator.ownership import caller
from dressage_orchestrator.service import Sessions


class IntentServicer:
    """Elicits criteria of an intent before a session."""

    def __init__(self, agent: AgentClient, service: Sessions, *, default_model: str) -> None:
        self._agent = agent
        self._service = service
        self._default_model = default_model

    async def Elicit(self, request: pb.ElicitRequest, context: Any) -> pb.ElicitResponse:
        if not request.intent.strip():
            raise InvalidArgument(field="intent", value=request.intent, expected="a description of the behaviour")
        environment = load_card(request.environment.removeprefix("environments/")).id
        brief = agent_pb.Brief(intent=request.intent, environment=environment)
        # The key is the digest of caller and request, so that llm-agent answers a repeated request from its journal.
        who = caller()
        question = who.encode() + b"\0" + request.SerializeToString(deterministic=True)
        key = "elicit/" + hashlib.sha256(question).hexdigest()[:32]
        model = request.model or self._default_model
        if model != TEMPLATE:
            await require_model(self._agent, v1.RoleModel(model=model), field="model")
            await self._service.read(lambda tx: self._service.quotas.check_elicitation(tx, who))
        task = agent_pb.Task(key=key, model=model, elicitor=agent_pb.ElicitorTask(brief=brief))
        result = await self._agent.converse(task)
        if result.cost.dollars > 0:
            await self._service.transact(lambda tx: sessions.record_charge(tx, who, key, result.cost.dollars))
        return pb.ElicitResponse(
            criteria=result.elicitor.criteria, questions=result.elicitor.questions, cost=result.cost
        )
