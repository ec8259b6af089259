"""Environment cards of program tasks, from their descriptions.

``python -m dressage.programs.cards`` writes them into `dressage.envs`; a test checks that the files are current. A card has no
state fields and no observation: a program perceives the tests of its language.
"""

from __future__ import annotations

import json
import sys

from dressage.envs.cards import PROGRAM_ENVIRONMENT_IDS, ActionComponent, EnvironmentCard
from dressage.envs.catalogue import catalogue
from dressage.programs.families import ProgramTask, program_task


def build_card(task: ProgramTask) -> EnvironmentCard:
    """Return the card of a program task."""
    text, language = task.text, task.language
    goal = f"{text.goal[:1].lower()}{text.goal[1:].rstrip('.')}"
    note = f" On its speed: {task.family.note}." if task.family.note else ""
    actions = ", ".join(f"{number} {name}" for number, name in enumerate(language.actions))
    return EnvironmentCard(
        id=task.environment,
        title=f"{task.family.name.capitalize()}: {goal}",
        description=f"{text.map} {text.start} {text.goal} {_tests(task)}{note}",
        fields=(),
        observation_components=(),
        action=(ActionComponent("action", 0.0, len(language.actions) - 1.0, "1", f"the action: {actions}"),),
        action_kind="discrete",
        observation_size=0,
        time_step=1.0,
        max_episode_steps=task.family.max_steps(task.name),
        can_terminate=True,
        termination="as the return describes, or when a loop returns to a state in which it was before",
        stock_reward=text.returns,
        example_intents=(text.intent or goal,),
        num_actions=len(language.actions),
        methods=("program",),
        target=1.0,
    )


def _tests(task: ProgramTask) -> str:
    names = (
        f"{name} ({', '.join(arguments)})" if arguments else name for name, arguments in task.language.tests.items()
    )
    return f"A program perceives {', '.join(names)}."


def card_text(card: EnvironmentCard) -> str:
    """Return the card as its file has it."""
    return json.dumps(card.to_dict(), indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    """Write all cards."""
    for environment in PROGRAM_ENVIRONMENT_IDS:
        catalogue()[environment].card_file.write_text(card_text(build_card(program_task(environment))), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
