"""Specs, exit codes and messages of command lines, functions and files, as a server of this machine receives and answers them.

All services run on a data folder of their own. `CreateSession` and `CreateBenchmark` keep what they receive and start nothing;
everything else is real: a spec is validated by the server and completed by `EstimateSession`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from tests.golden.record import Files, digest, lines
from tests.golden.texts import clean_folder, invoked

RUN = 'run "hop forward" --env Hopper-v5'
SEARCH = 'run "balance the pole" --env CartPole-v1 --method'

SPECS = f"""
{RUN}
run "run forward at 2 m/s" --env HalfCheetah-v5 --seeds 2 --seed 7 --steps 600k --iterations 4 --threshold 0.5
run "walk forward" --env environments/Walker2d-v5 --env-option terminate_when_unhealthy=false --env-option max-episode-steps=200
{RUN} --env-option reset_noise_scale=0.01
{RUN} --model openai/gpt-4.1 --model judge=anthropic/claude-sonnet-4 --model video=gemini/gemini-2.5-pro --budget-dollars 2 -y
{RUN} --model openai/o4-mini --thinking high --thinking judge=low --provider-wait 30 -y
{RUN} --config fast:learning_rate=1e-3,epochs=4,hidden_sizes=64x64 --config slow:learning_rate=1e-4,target_kl=0.02
{RUN} --config all:num_envs=8,num_steps=256,minibatch_size=128,epochs=3,discount=0.98,gae_lambda=0.9,clip_range=0.1 --variants
{RUN} --config all:entropy_coef=0.01,value_coef=0.7,max_grad_norm=1,reward_clip=5,desired_kl=0.01 --variants
{RUN} --algorithm sac --config own:replay_size=5000,warmup_steps=50,updates_per_step=0.5,target_rate=0.01
{RUN} --variants --tune --no-early-stop
{RUN} --no-tune --early-stop --patience 3 --checkpoint best --from-parent always
{RUN} --checkpoint last --from-parent never --pool local
{RUN} --video all --video-option fps=4 --video-option votes=3 --video-option window_seconds=2.5 --model openai/gpt-4.1 -y
{RUN} --video none --approve
{RUN} --budget-tokens 500k --budget-steps 2M --budget-minutes 12.5
{RUN} --reward reward.py --judge judge.py
{RUN} --reward reward.py --model openai/gpt-4.1 --criteria criteria.json -y
{RUN} --set judge-last-checkpoint-only=yes --set seeds=4
{RUN} --set evaluation_episodes=6
run "balance the pole" --env CartPole-v1
run "stand up" --env Humanoid-v5
run "walk forward" --env Ant-v5 --config wide:observation_inputs=27
{SEARCH} parameters
{SEARCH} parameters --target 450 --iterations 20
{SEARCH} parameters --set search=random --budget-steps 100k
{SEARCH} code --model openai/gpt-4.1 --set policy_source=@policy.py -y
{SEARCH} code --model openai/gpt-4.1 --target 400 -y
run "put a marker in each corner" --env karel/FourCorners --method program
run "go" --env minigrid/LavaGap --method program --target 0.5
run -f session.yaml
run -f session.yaml --seeds 4 --env Walker2d-v5
run "hop high" -f session.yaml --steps 100k --config one:epochs=2
run -f search.yaml
run --replay recording
run --replay recording --seeds 2 --iterations 1
train reward.py --env Hopper-v5
train reward.py --env HalfCheetah-v5 --seeds 2 --steps 50k --config a:minibatch_size=64 --algorithm sac --seed 3
train reward.py --env Hopper-v5 --backend jax --env-option max_episode_steps=100
bench cases.csv
bench cases.json --flat --seeds 2 --steps 100k --iterations 2 --model openai/gpt-4.1 --budget-dollars 1
bench cases.csv --gate 0.5 --method parameters --target 10
"""
"""Accepted command lines."""

WRONG = f"""
run
run hop
run --env Hopper-v5
run "" --env Hopper-v5
run hop --env Hoppper-v5
run hop --env atari/Pong
run juggle --env Hopper-v5
{RUN} --nonsense
{RUN} --seeds 0
{RUN} --seeds four
{RUN} --seeds 101
{RUN} --seed -1
{RUN} --steps 0
{RUN} --steps 1.5
{RUN} --steps 1e30
{RUN} --iterations 0
{RUN} --iterations 1001
{RUN} --threshold 0
{RUN} --threshold 1.5
{RUN} --threshold high
{RUN} --config learning_rate=1
{RUN} --config a:speed=1
{RUN} --config a:epochs=four
{RUN} --config a:epochs=0
{RUN} --config a:epochs=1,epochs=2
{RUN} --config a:learning_rate=7
{RUN} --config a:discount=1.5
{RUN} --config a:hidden_sizes=x
{RUN} --config a:hidden_sizes=0x64
{RUN} --config a:num_envs=99999999999
{RUN} --config a:num_envs=4096,num_steps=4096
{RUN} --config a: --config a:
{RUN} --config a:replay_size=100
{RUN} --config a:observation_inputs=nothing
{RUN} --algorithm dqn
{RUN} --algorithm sac --config a:clip_range=0.1
run "balance the pole" --env CartPole-v1 --algorithm sac
{RUN} --backend torch
{RUN} --pool x
{RUN} --env-option speed=1
{RUN} --env-option max_episode_steps=0
{RUN} --env-option max_episode_steps=ten
{RUN} --env-option max_episode_steps=5 --env-option max_episode_steps=6
run "swim forward" --env Swimmer-v5 --env-option terminate_when_unhealthy=false
{RUN} --video some
{RUN} --video all
{RUN} --video-option fps=0
{RUN} --video-option zoom=2
{RUN} --from-parent sometimes
{RUN} --checkpoint first
{RUN} --patience 0
{RUN} --patience 2 --no-early-stop
{RUN} --set speed=1
{RUN} --set seeds=four
{RUN} --set seeds
{RUN} --target 3
{RUN} --method nonsense
{RUN} --method parameters --seeds 3
{RUN} --method parameters --reward reward.py
{RUN} --method program
run "reach the top" --env MountainCar-v0
run go --env karel/Maze
{SEARCH} code
{SEARCH} parameters --target high
{SEARCH} parameters --set nonsense=1
{RUN} --model judge=
{RUN} --model chef=openai/gpt-4.1
{RUN} --model openai/gpt-4.1 --thinking enormous -y
{RUN} --thinking high
{RUN} --model gpt-4.1 -y
{RUN} --provider-wait -1
{RUN} --provider-wait 20000
{RUN} --budget-dollars -1
{RUN} --budget-tokens 0
{RUN} --budget-minutes 0
{RUN} --api-base http://localhost:1
{RUN} --reward missing.py
{RUN} --reward empty.py
{RUN} --reward wrong.py --judge judge.py
{RUN} --judge .
{RUN} --criteria missing.json
{RUN} --criteria wrong.json
{RUN} --quiet --verbose
{RUN} --fail-below x
{RUN} --address nowhere
run --replay missing
run --replay recording --env Hopper-v5
run hop --replay recording
run -f missing.yaml
run -f wrong.yaml
run -f wrong_field.yaml
run -f wrong_value.yaml
run -f wrong_range.yaml
run -f session.yaml --pool x
run -f session.yaml --replay recording
run -f session.yaml --method parameters
train
train reward.py
train missing.py --env Hopper-v5
train reward.py --env Hopper-v5 --iterations 2
train reward.py --env Hopper-v5 --steps -3
train reward.py --env karel/Maze
bench
bench missing.csv
bench wrong.csv
bench wrong.json
bench cases.csv --resume b1
bench cases.csv --gate 2
bench cases.csv --parallel 2
bench cases.csv --env Hopper-v5
bench wrong_experiment.yaml
bench wrong_method.yaml
bench wrong_environment.yaml
bench experiment.yaml --seeds 2
elicit hop
elicit juggle --env Hopper-v5
elicit "hop forward" --env Nowhere-v0
check missing.py --env Hopper-v5
eval nothing
eval 7f
render nothing --out x.mp4
export nothing --format onnx --out x.onnx
export nothing --format tar --out x
sessions
sessions show
sessions show nothing
sessions show sessions/../x
sessions list --state sleeping
sessions cancel nothing
sessions watch nothing
sessions steer nothing
sessions steer nothing --note faster
sessions approve nothing
sessions extend nothing --iterations 0
sessions compare nothing
runs list nothing
runs show nothing
envs show Nowhere-v0
envs show
envs add nowhere.xml
envs remove mjcf:nothing
artifacts list nothing
artifacts get sessions/nothing/x
benchmarks show nothing
programs eval karel/Maze missing.txt
programs sample nowhere
report nothing
report @latest --html
nonsense
--nonsense
"""
"""Refused command lines."""

PRINTED = """
envs show HalfCheetah-v5
envs show CartPole-v1
elicit "hop forward" --env Hopper-v5
elicit "hop forward" --env Hopper-v5 --json
sessions list
run "hop forward" --env Hopper-v5 --seeds 2 --config a:epochs=3 --dump
run -f session.yaml --threshold 0.9 --dump
"""
"""Command lines whose whole output is recorded."""

FILES = {
    "reward.py": "def reward(state, action, next_state, memory, np):\n    return {'up': next_state.z}\nTERMS = {'up': 'm'}\n",
    "judge.py": "def judge(episode, np):\n    return 1.0\n",
    "policy.py": "class Policy:\n    def act(self, observation):\n        return 0\n",
    "empty.py": "\n",
    "wrong.py": "def reward(:\n",
    "criteria.json": '{"criteria": [{"title": "Hops", "description": "It hops."}]}',
    "wrong.json": '[{"name": 1}]',
    "session.yaml": "intent: hop forward\nenvironment: environments/Hopper-v5\nreward:\n  seeds: 2\n"
    "  steps_per_member: 20000\n  configs:\n  - id: a\n    hyperparameters: {epochs: 2, hidden_sizes: [32, 32]}\n"
    "budget: {dollars: 1.5, wall_time: 600s}\nmax_iterations: 2\n",
    "search.yaml": "intent: balance\nenvironment: environments/CartPole-v1\nparameters: {target: 450}\n",
    "wrong.yaml": "intent: [\n",
    "wrong_field.yaml": "intent: hop\nenvironment: environments/Hopper-v5\nrewards: {}\n",
    "wrong_value.yaml": "intent: hop\nenvironment: environments/Hopper-v5\nreward: {seeds: many}\n",
    "wrong_range.yaml": "intent: hop\nenvironment: environments/Hopper-v5\nreward: {seeds: 1000}\n",
    "recording/session.json": '{"intent": "hop forward", "environment": "environments/Hopper-v5", "reward": {"seeds": 3}}',
    "recording/llm/1.json": "{}",
    "cases.csv": "env_id,instruction,category,difficulty\nHopper-v5,hop forward,hop,easy\nAnt-v5,walk forward,walk,hard\n",
    "cases.json": '[{"intent": "hop forward", "environment": "Hopper-v5"}]',
    "wrong.csv": "environment,intent\nHopper-v5,hop\n",
    "experiment.yaml": "name: small\nenvironments: [CartPole-v1]\nmethods:\n- {name: search, parameters: {}}\nruns: 1\n",
    "wrong_experiment.yaml": "name: small\nenvironment: [CartPole-v1]\n",
    "wrong_method.yaml": "name: small\nenvironments: [CartPole-v1]\nmethods:\n- {name: a, nonsense: {}}\nruns: 1\n",
    "wrong_environment.yaml": "name: small\nenvironments: [Nowhere-v0]\nmethods:\n- {name: a, parameters: {}}\nruns: 1\n",
}


def _calls() -> dict[str, Callable[[Any], Any]]:
    """Return calls of the Python package by their text."""
    hop = dict(intent="hop forward", env="Hopper-v5")
    arguments: dict[str, dict[str, Any]] = {
        "run": hop,
        "run many": dict(
            **hop, seeds=2, seed=3, steps=5000, iterations=2, threshold=0.6, approve=True, budget_minutes=3.0,
            configs={"fast": {"learning_rate": 1e-3, "hidden_sizes": (64, 64)}}, env_options={"max_episode_steps": 99},
            early_stop=False, variants=True, tune=False, checkpoint="best", from_parent="never", video="none",
        ),
        "run roles": dict(**hop, model=["openai/gpt-4.1", "judge=gemini/gemini-2.5-pro"], thinking="low",
                          video_options={"fps": 4}, budget_dollars=1.0, budget_tokens=1000, budget_steps=9_000_000),
        "run search": dict(intent="balance", env="CartPole-v1", method="parameters", target=400, settings={}),
        "run reward": dict(**hop, reward=FILES["reward.py"], judge="judge.py", criteria=["It hops"]),
        "wrong env": dict(intent="hop", env="Hopper"),
        "wrong nothing": {},
        "wrong intent": dict(intent="juggle", env="Hopper-v5"),
        "wrong seeds": dict(**hop, seeds=1000),
        "wrong seed": dict(**hop, seed=-1),
        "wrong steps": dict(**hop, steps=-1),
        "wrong threshold": dict(**hop, threshold=2.0),
        "wrong config": dict(**hop, configs={"a": {"speed": 1}}),
        "wrong range": dict(**hop, configs={"a": {"epochs": 0}}),
        "wrong sizes": dict(**hop, configs={"a": {"hidden_sizes": 64}}),
        "wrong algorithm": dict(**hop, algorithm="dqn"),
        "wrong env option": dict(**hop, env_options={"speed": 1}),
        "wrong video": dict(**hop, video="some"),
        "wrong method": dict(**hop, method="nonsense"),
        "wrong method option": dict(**hop, method="parameters", seeds=2),
        "wrong role": dict(**hop, model=["chef=openai/gpt-4.1"]),
        "wrong reward": dict(**hop, reward=Path("missing.py")),
        "wrong judge": dict(**hop, judge="missing.py"),
        "wrong criteria": dict(**hop, criteria=[{"name": "x"}]),
        "wrong replay": dict(replay="recording", env="Hopper-v5"),
    }  # fmt: skip

    def calls(dressage: Any, values: dict[str, Any]) -> Any:
        return dressage.run(**values, detach=True, quiet=True)

    table = {name: lambda package, values=values: calls(package, values) for name, values in arguments.items()}
    quiet = dict(detach=True, quiet=True)
    table["train"] = lambda package: package.train("reward.py", "Hopper-v5", seeds=2, steps=1000, **quiet)
    table["wrong train"] = lambda package: package.train("reward.py", "Hopper-v5", algorithm="dqn", **quiet)
    table["wrong session"] = lambda package: package.result("nothing")
    return table


_KEYS = {f"{provider}_API_KEY": "none" for provider in ("OPENAI", "ANTHROPIC", "GEMINI")}


class Server:
    """A server of this machine that keeps the specs it receives instead of running them."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self._complete: dict[str, Any] = {}

    @contextlib.contextmanager
    def running(self, folder: Path) -> Iterator[None]:
        from dressage.client.loop import LoopThread
        from dressage.local.stack import LocalStack
        from dressage_orchestrator.api.benchmarks import BenchmarkServicer
        from dressage_orchestrator.api.sessions import SessionServicer

        estimate = SessionServicer.EstimateSession

        async def estimated(servicer: Any, request: Any, context: Any) -> Any:
            answer = await estimate(servicer, request, context)
            self._complete = _dict(answer.spec)
            return answer

        patches = [
            mock.patch.object(SessionServicer, "EstimateSession", estimated),
            mock.patch.object(SessionServicer, "CreateSession", self._created),
            mock.patch.object(BenchmarkServicer, "CreateBenchmark", self._created),
        ]
        loop = LoopThread()
        with contextlib.ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            services = loop.run(LocalStack.start(folder / "home", hold=True, recordings=folder))
            stack.callback(loop.stop)
            stack.callback(lambda: loop.run(services.stop()))
            yield

    async def _created(self, request: Any, context: Any) -> Any:
        import grpc

        document = _dict(request)
        for name in ("requestId", "sessionId", "benchmarkId"):
            document.pop(name, None)
        complete = {"complete": digest(self._complete)} if "spec" in document else {}
        self.received.append({**document, **complete})
        await context.abort(grpc.StatusCode.ABORTED, "recorded")


def _dict(message: Any) -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(message)


def record() -> Files:
    import shlex

    import dressage

    server, specs, codes = Server(), {}, {}
    messages: list[str] = []
    with clean_folder(**_KEYS) as folder, server.running(folder):
        for path, content in FILES.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(content)

        def tidy(text: str) -> str:
            return text.replace(str(folder), "FOLDER").replace("\r", "")

        def run(command: str, *, whole: bool = False) -> None:
            server.received.clear()
            arguments = shlex.split(command)
            detached = ["--detach"] if arguments[:1] in (["run"], ["train"]) and not whole else []
            code, out, err = invoked([*arguments, *detached])
            if server.received:
                specs[command] = server.received[-1]
            else:
                codes[command] = code
                messages.append(f"$ dressage {command}\n{tidy((out if whole else '') + err)}[{code}]\n")

        for command in filter(None, SPECS.splitlines() + WRONG.splitlines()):
            run(command)
        for command in filter(None, PRINTED.splitlines()):
            run(command, whole=True)
        for name, call in _calls().items():
            server.received.clear()
            try:
                call(dressage)
            except Exception as error:
                kind = type(error).__name__
                if server.received:
                    specs[f"dressage: {name}"] = server.received[-1]
                    continue
                codes[f"dressage: {name}"] = kind
                messages.append(f">>> {name}\n{kind}: {tidy(str(error))}\n")
    return {
        "equal/specs.json": lines(specs),
        "equal/exit_codes.json": lines(codes),
        "read/messages.txt": "\n".join(messages),
    }
