"""`EnvironmentService`, based on the environment cards."""

from __future__ import annotations

from typing import Any

from dressage.api.v1 import environment_service_pb2 as pb
from dressage.envs.cards import EnvironmentCard, list_cards, load_card
from dressage.envs.describe import describe
from dressage.envs.xml_models import xml_model

from dressage_orchestrator import threads
from dressage_orchestrator.api import paging
from dressage_orchestrator.database.pages import fitting


class EnvironmentServicer:
    """Lists environments and adds custom ones."""

    def __init__(self, pages: paging.PageTokens) -> None:
        self._pages = pages

    async def GetEnvironment(self, request: pb.GetEnvironmentRequest, context: Any) -> pb.Environment:
        return _environment(load_card(request.name.removeprefix("environments/")))

    async def GetEnvironmentModel(self, request: pb.GetEnvironmentModelRequest, context: Any) -> pb.EnvironmentModel:
        model = await threads.run(threads.REQUESTS, xml_model, request.name.removeprefix("environments/"))
        message = pb.EnvironmentModel(name=request.name, path=model.path, xml=model.xml)
        for path, data in model.files.items():
            message.files.add(path=path, data=data)
        return message

    async def ListEnvironments(self, request: pb.ListEnvironmentsRequest, context: Any) -> pb.ListEnvironmentsResponse:
        after = self._pages.decode(request.page_token, "environments") or ""
        size = paging.page_size(request.page_size)
        cards = sorted((card for card in list_cards() if card.id > after), key=lambda card: card.id)
        page = [_environment(card) for card in cards[:size]]
        page = page[: fitting([entry.ByteSize() for entry in page])]
        token = self._pages.encode(cards[len(page) - 1].id, "environments") if len(cards) > len(page) else ""
        return pb.ListEnvironmentsResponse(environments=page, next_page_token=token)


def _environment(card: EnvironmentCard) -> pb.Environment:
    message = pb.Environment(
        name=f"environments/{card.id}",
        title=card.title,
        description=card.description,
        observation_size=card.observation_size,
        time_step=card.time_step,
        max_episode_steps=card.max_episode_steps,
        termination=card.termination,
        scales=card.scales,
        example_intents=card.example_intents,
        text=describe(card),
        action_kind=card.action_kind,
        num_actions=card.num_actions,
        num_observations=card.num_observations,
        methods=card.methods,
        target=card.target,
        pack=card.pack,
        cameras=card.cameras,
    )
    for field in card.fields:
        message.fields.add(name=field.name, shape=field.shape, unit=field.unit, meaning=field.meaning)
    for part in card.action:
        message.actions.add(name=part.name, low=part.low, high=part.high, unit=part.unit, meaning=part.meaning)
    return message
