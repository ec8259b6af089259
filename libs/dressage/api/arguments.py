"""Arguments of sessions: options of the command line, keywords of Python, and their fields of the API.

Generated from `(argument)` in protos/ by `make proto`; do not edit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from dressage.argument import Argument, Criteria, Source


SESSION: tuple[Argument, ...] = (
    Argument(
        name='intent',
        paths=('intent',),
        flag='INTENT',
        kind='text',
        help='The behaviour, in words.',
        single=True,
    ),
    Argument(
        name='env',
        paths=('environment',),
        flag='--env',
        kind='text',
        help='Environment, such as Hopper-v5; see `dressage envs list`.',
        metavar='ID',
        single=True,
    ),
    Argument(
        name='env_options',
        paths=('environment_options',),
        flag='--env-option',
        kind='fields',
        help='Option of the environment: max_episode_steps, terminate_when_unhealthy or reset_noise_scale; repeatable.',
        metavar='NAME=VALUE',
        train=True,
    ),
    Argument(
        name='model',
        paths=('model', 'roles', 'roles.model'),
        flag='--model',
        kind='roles',
        help='Language model as litellm names it, or template/v1 for none; with ROLE for one role (judge, video, review, …).',
        group='models',
        metavar='[ROLE=]NAME',
    ),
    Argument(
        name='thinking',
        paths=('thinking', 'roles.thinking'),
        flag='--thinking',
        kind='roles',
        help='Reasoning effort: off, minimal, low, medium, high, xhigh or max, up to what the model offers.',
        group='models',
        metavar='[ROLE=]EFFORT',
        choices=('off', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'),
    ),
    Argument(
        name='api_base',
        paths=('roles.api_base',),
        flag='--api-base',
        kind='roles',
        help="API endpoint of the language model's provider; with ROLE for one role.",
        group='models',
        metavar='[ROLE=]URL',
    ),
    Argument(
        name='provider_wait',
        paths=('provider_wait',),
        flag='--provider-wait',
        kind='minutes',
        help='How long to wait for a model provider that is down, within the budget.',
        unset='10',
        group='models',
        metavar='MINUTES',
        minimum=0.0,
        maximum=5256000.0,
    ),
    Argument(
        name='method',
        paths=('method_spec',),
        flag='--method',
        kind='text',
        help='Method that proposes and scores policies.',
        unset='reward',
        group='iterations',
        metavar='NAME',
    ),
    Argument(
        name='iterations',
        paths=('max_iterations',),
        flag='--iterations',
        kind='integer',
        help='Maximum number of iterations.',
        unset='5',
        group='iterations',
        metavar='N',
        minimum=1,
        maximum=1000,
    ),
    Argument(
        name='approve',
        paths=('approve_before_evaluation',),
        flag='--approve',
        kind='switch',
        help='Wait for `dressage sessions approve` before each evaluation.',
        unset='off',
        group='iterations',
        single=True,
    ),
    Argument(
        name='reward',
        paths=('reward.reward_source',),
        flag='--reward',
        kind='source',
        help='First reward.',
        unset='a model writes it',
        group='iterations',
        metavar='FILE',
        single=True,
    ),
    Argument(
        name='target',
        paths=('parameters.target', 'code.target', 'program.target'),
        flag='--target',
        kind='number',
        help='Mean return from which a search method succeeds.',
        unset="that of the environment's card",
        group='iterations',
        metavar='X',
    ),
    Argument(
        name='settings',
        paths=('custom',),
        flag='--set',
        kind='fields',
        help='Setting of the method; repeatable, also for lists.',
        group='iterations',
        metavar='FIELD=VALUE',
    ),
    Argument(
        name='seed',
        paths=('seed',),
        flag='--seed',
        kind='count',
        help='First training seed.',
        unset='0',
        group='training',
        metavar='N',
        maximum=1000000000,
        train=True,
    ),
    Argument(
        name='pool',
        paths=('pool',),
        flag='--pool',
        kind='text',
        help="Pool of trainers: gpu, or one of the cluster's.",
        unset='its default',
        group='training',
        metavar='NAME',
        train=True,
        single=True,
    ),
    Argument(
        name='seeds',
        paths=('reward.seeds',),
        flag='--seeds',
        kind='integer',
        help='Number of seeds for each config.',
        unset='3',
        group='training',
        metavar='N',
        minimum=1,
        maximum=100,
        train=True,
    ),
    Argument(
        name='configs',
        paths=('reward.configs',),
        flag='--config',
        kind='configs',
        help='Further hyperparameters to train with; repeatable.',
        group='training',
        metavar='ID:NAME=VALUE,…',
        train=True,
    ),
    Argument(
        name='backend',
        paths=('reward.backend',),
        flag='--backend',
        kind='choice',
        help='jax: stacked members; sb3: Stable-Baselines3, if installed.',
        unset='jax',
        group='training',
        metavar='jax|sb3',
        choices=('jax', 'sb3'),
        train=True,
        single=True,
    ),
    Argument(
        name='algorithm',
        paths=('reward.algorithm',),
        flag='--algorithm',
        kind='choice',
        help='Algorithm of the training; sac only for continuous actions.',
        unset='ppo',
        group='training',
        metavar='ppo|sac',
        choices=('ppo', 'sac'),
        train=True,
        single=True,
    ),
    Argument(
        name='tune',
        paths=('reward.tune_hyperparameters',),
        flag='--tune',
        kind='switch',
        help='Let the author change hyperparameters, networks and steps between iterations.',
        unset='on with a language model',
        group='training',
    ),
    Argument(
        name='variants',
        paths=('reward.config_variants',),
        flag='--variants',
        kind='switch',
        help='Also train with a conservative and an aggressive config.',
        unset='off',
        group='training',
    ),
    Argument(
        name='early_stop',
        paths=('reward.early_stop',),
        flag='--early-stop',
        kind='switch',
        help='End a training once it passes or no longer improves; continue while it improves.',
        unset='unless configs are compared',
        group='training',
    ),
    Argument(
        name='steps',
        paths=('reward.max_steps_per_member', 'reward.steps_per_member'),
        flag='--steps',
        kind='count',
        help="Environment steps for each seed, such as 600k: at most, where a training's progress decides.",
        unset='4 × preset',
        group='training',
        metavar='N',
        minimum=1,
        maximum=100000000000,
        train=True,
    ),
    Argument(
        name='checkpoint',
        paths=('reward.checkpoint',),
        flag='--checkpoint',
        kind='choice',
        help='Checkpoint of each seed that is judged and delivered.',
        unset='best',
        group='training',
        metavar='last|best',
        choices=('last', 'best'),
        prefix='CHECKPOINT_CHOICE_',
    ),
    Argument(
        name='patience',
        paths=('reward.patience',),
        flag='--patience',
        kind='integer',
        help='Checkpoints in a row without a rise after which a training ends that has its expected steps.',
        unset='2',
        group='training',
        metavar='N',
        minimum=1,
        maximum=100,
    ),
    Argument(
        name='from_parent',
        paths=('reward.from_parent',),
        flag='--from-parent',
        kind='choice',
        help="Whether an iteration continues from its parent's policies.",
        unset='auto: the author decides',
        group='training',
        metavar='auto|never|always',
        choices=('auto', 'never', 'always'),
        prefix='FROM_PARENT_',
    ),
    Argument(
        name='threshold',
        paths=('pass_threshold',),
        flag='--threshold',
        kind='number',
        help='Score from which a session succeeds.',
        unset='0.7',
        group='judgment',
        metavar='X',
        minimum=0.001,
        maximum=1.0,
    ),
    Argument(
        name='judge',
        paths=('judge_source',),
        flag='--judge',
        kind='source',
        help='Judge.',
        unset='a model writes it',
        group='judgment',
        metavar='FILE',
        single=True,
    ),
    Argument(
        name='criteria',
        paths=('criteria',),
        flag='--criteria',
        kind='criteria',
        help='Criteria, as `dressage elicit --out` writes them.',
        group='judgment',
        metavar='FILE',
        single=True,
    ),
    Argument(
        name='video',
        paths=('video_judging',),
        flag='--video',
        kind='choice',
        help='Rollouts that a vision model judges; only: as deciding, without a code judge.',
        unset='deciding',
        group='judgment',
        metavar='deciding|none|all|only',
        choices=('deciding', 'none', 'all', 'only'),
        prefix='VIDEO_JUDGING_',
    ),
    Argument(
        name='video_options',
        paths=('video_options',),
        flag='--video-option',
        kind='fields',
        help='What the vision model is shown: fps, window_seconds, votes, motion_trail or camera; repeatable.',
        group='judgment',
        metavar='NAME=VALUE',
    ),
    Argument(
        name='budget_steps',
        paths=('budget.env_steps',),
        flag='--budget-steps',
        kind='count',
        help='Limit for the environment steps of all iterations.',
        group='limits',
        metavar='N',
        minimum=1,
    ),
    Argument(
        name='budget_dollars',
        paths=('budget.dollars',),
        flag='--budget-dollars',
        kind='number',
        help='Limit for the cost of model calls, in dollars.',
        group='limits',
        metavar='X',
        minimum=0.0,
    ),
    Argument(
        name='budget_tokens',
        paths=('budget.tokens',),
        flag='--budget-tokens',
        kind='count',
        help='Limit for the tokens of model calls.',
        group='limits',
        metavar='N',
        minimum=1,
    ),
    Argument(
        name='budget_minutes',
        paths=('budget.wall_time',),
        flag='--budget-minutes',
        kind='minutes',
        help='Limit for the wall-clock time, in minutes.',
        group='limits',
        metavar='MINUTES',
        minimum=0.01,
        maximum=5256000.0,
    ),
)
"""Arguments of a session, by fields of `SessionSpec`."""

STEER: tuple[Argument, ...] = (
    Argument(
        name='note',
        paths=('note',),
        flag='NOTE',
        kind='text',
        help='A direction for the next revision.',
    ),
    Argument(
        name='reward',
        paths=('proposal_source',),
        flag='--reward',
        kind='source',
        help='Reward, or proposal of another method, to evaluate next; replaces a waiting proposal.',
        metavar='FILE',
        alias='--proposal',
    ),
    Argument(
        name='criteria',
        paths=('criteria',),
        flag='--criteria',
        kind='criteria',
        help='New criteria, as `dressage elicit --out` writes them.',
        metavar='FILE',
    ),
    Argument(
        name='rebase_to',
        paths=('rebase_to',),
        flag='--rebase-to',
        kind='integer',
        help='Iteration that the next revision starts from.',
        unset="the reviser's choice",
        metavar='N',
        maximum=100000,
    ),
    Argument(
        name='from_parent',
        paths=('from_parent',),
        flag='--from-parent',
        kind='choice',
        help="Whether an iteration continues from its parent's policies.",
        unset='auto: the author decides',
        metavar='auto|never|always',
        choices=('auto', 'never', 'always'),
        prefix='FROM_PARENT_',
    ),
)
"""Arguments of `dressage sessions steer`, by fields of `SteerSessionRequest`."""

METHODS = ('reward', 'parameters', 'code', 'program', 'custom')
"""Fields of `SessionSpec` that are the settings of a method."""


if TYPE_CHECKING:  # commands do not need them, and they take milliseconds

    class TrainSettings(TypedDict, total=False):
        """Keywords of `dressage.train`."""

        env_options: Mapping[str, Any] | None
        """Option of the environment: max_episode_steps, terminate_when_unhealthy or reset_noise_scale; repeatable."""
        seed: int | None
        """First training seed [0]."""
        pool: str | None
        """Pool of trainers: gpu, or one of the cluster's [its default]."""
        seeds: int | None
        """Number of seeds for each config [3]."""
        configs: Mapping[str, Mapping[str, Any]] | None
        """Further hyperparameters to train with; repeatable."""
        backend: Literal["jax", "sb3"] | None
        """jax: stacked members; sb3: Stable-Baselines3, if installed [jax]."""
        algorithm: Literal["ppo", "sac"] | None
        """Algorithm of the training; sac only for continuous actions [ppo]."""
        steps: int | None
        """Environment steps for each seed, such as 600k: at most, where a training's progress decides [4 × preset]."""


    class RunSettings(TrainSettings, total=False):
        """Keywords of `dressage.run`."""

        model: str | Sequence[str] | None
        """Language model as litellm names it, or template/v1 for none; with ROLE for one role (judge, video, review, …)."""
        thinking: str | Sequence[str] | None
        """Reasoning effort: off, minimal, low, medium, high, xhigh or max, up to what the model offers."""
        api_base: str | Sequence[str] | None
        """API endpoint of the language model's provider; with ROLE for one role."""
        provider_wait: float | None
        """How long to wait for a model provider that is down, within the budget [10]."""
        method: str | None
        """Method that proposes and scores policies [reward]."""
        iterations: int | None
        """Maximum number of iterations [5]."""
        approve: bool | None
        """Wait for `dressage sessions approve` before each evaluation [off]."""
        reward: Source | None
        """First reward [a model writes it]."""
        target: float | None
        """Mean return from which a search method succeeds [that of the environment's card]."""
        settings: Mapping[str, Any] | None
        """Setting of the method; repeatable, also for lists."""
        tune: bool | None
        """Let the author change hyperparameters, networks and steps between iterations [on with a language model]."""
        variants: bool | None
        """Also train with a conservative and an aggressive config [off]."""
        early_stop: bool | None
        """End a training once it passes or no longer improves; continue while it improves [unless configs are compared]."""
        checkpoint: Literal["last", "best"] | None
        """Checkpoint of each seed that is judged and delivered [best]."""
        patience: int | None
        """Checkpoints in a row without a rise after which a training ends that has its expected steps [2]."""
        from_parent: Literal["auto", "never", "always"] | None
        """Whether an iteration continues from its parent's policies [auto: the author decides]."""
        threshold: float | None
        """Score from which a session succeeds [0.7]."""
        judge: Source | None
        """Judge [a model writes it]."""
        criteria: Criteria | None
        """Criteria, as `dressage elicit --out` writes them."""
        video: Literal["deciding", "none", "all", "only"] | None
        """Rollouts that a vision model judges; only: as deciding, without a code judge [deciding]."""
        video_options: Mapping[str, Any] | None
        """What the vision model is shown: fps, window_seconds, votes, motion_trail or camera; repeatable."""
        budget_steps: int | None
        """Limit for the environment steps of all iterations."""
        budget_dollars: float | None
        """Limit for the cost of model calls, in dollars."""
        budget_tokens: int | None
        """Limit for the tokens of model calls."""
        budget_minutes: float | None
        """Limit for the wall-clock time, in minutes."""
