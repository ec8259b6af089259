"""Runs all services in this process, on loopback, with SQLite and a folder.

Each service has its own server on a free port, so that only the addresses differ from a cluster. Services start from the
leaves to the orchestrator, and the console after it if it is requested; they stop in reverse. The orchestrator locks the
data folder; a full stack writes `server.json`, so that other commands use it. Other users of the machine reach the loopback
ports: every call must send the token in that file, which like the data folder is private to the user. Only the settings of
llm-agent read API keys; trainers start with a clean environment.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self, TextIO

from dressage import errors
from dressage.addresses import is_private, split_address
from dressage.client.discovery import SERVER_FILE
from dressage.installation import install_command

if TYPE_CHECKING:
    from dressage.serving.server import RunningService

_STOP_SECONDS = 60.0
_LOG_BYTES = 20_000_000
_RECORDINGS_FILE = "recordings.path"
_MAX_RECORDINGS = 20

Stop = Callable[[], Awaitable[None]]


@dataclass
class LocalStack:
    """The running services of one machine. Create it with `start`, end it with `stop`."""

    address: str
    """`host:port` of the public API for processes of this machine, without TLS."""
    artifacts: Path
    """Folder of the artifact store."""
    token: str = field(repr=False)
    """The public API's bearer token."""
    public: str = ""
    """`host:port` of the public API for other machines, if it listens for them."""
    console: str | None = None
    """URL of the console; None if it was not requested."""
    _stops: list[Stop] = field(default_factory=list)

    @classmethod
    async def start(
        cls,
        data_dir: Path,
        *,
        full: bool = True,
        hold: bool = False,
        address: str = "127.0.0.1:0",
        token: str | None = None,
        tls: tuple[Path, Path] | None = None,
        api_base: str | None = None,
        api_bases: Sequence[str] = (),
        metrics: str | None = None,
        recordings: Path | None = None,
        console: str | None = None,
        log: TextIO | None = None,
    ) -> Self:
        """Start the services on a data folder, which is created if missing.

        :param full: False for a stack that only reads and records, and does not resume sessions.
        :param hold: leave interrupted sessions alone until a request concerns them.
        :param address: of the public API; any address except loopback requires a token.
        :param token: bearer token of the public API; by default one that is generated for the data folder.
        :param tls: files of certificate chain and private key, for the address; None: no TLS.
        :param api_base: API endpoint of the language model's provider.
        :param api_bases: further endpoints, which sessions may choose for single roles.
        :param metrics: host:port of the Prometheus metrics of all services; None: no metrics.
        :param recordings: folder of recorded sessions, for models named `recorded/NAME`; those that earlier stacks on
            this data folder were given are searched after it, so that an interrupted replay can be continued.
        :param console: host:port of the console, under the same rule as `address`; None: no console.
        :param log: output of the log as text; by default JSON lines in `logs/server.log` of the data folder.
        :raises FailedPrecondition: if another server runs on the folder, or an extra is not installed.
        :raises InvalidArgument: for an invalid setting.
        """
        check_exposure(address, token)
        if console is not None:
            check_exposure(console, token, field="console")
        if metrics is not None:
            split_address(f"0.0.0.0{metrics}" if metrics.startswith(":") else metrics, field="metrics")
        _make_folder(data_dir)
        token = token or _own_token(data_dir)
        _configure_logs(data_dir, log)
        stack = cls(address="", artifacts=data_dir / "artifacts", token=token)
        common = {"store_url": str(stack.artifacts), "auth_token": None, "metrics_address": None}
        # The metrics are per process, so one service exposes those of all.
        public = {
            **common,
            "metrics_address": metrics,
            "auth_token": token,
            "address": address,
            "tls_cert": tls and tls[0],
            "tls_key": tls and tls[1],
            "data_dir": data_dir,
            "hold": hold,
            "database_url": None,
        }
        try:
            if not full and "recover" in _settings_type("dressage_orchestrator").model_fields:
                api = await stack._launch("dressage_orchestrator", {**public, "recover": False})
                stack.address = stack.public = api.address
                return stack
            recording_folders = recordings_of(data_dir, recordings)
            leaves = await stack._launch_leaves(common, _model_settings(api_base, api_bases, recording_folders))
            await stack._launch_public({**public, **leaves}, console)
            stack._announce(data_dir / SERVER_FILE)
        except BaseException:
            await stack.stop()
            raise
        return stack

    async def _launch_public(self, values: dict[str, Any], console: str | None) -> None:
        """Start the orchestrator, and the console if it is requested."""
        settings = _settings_of("dressage_orchestrator", values)
        api = await self._start("dressage_orchestrator", settings)
        self.address, self.public = _reachable(api.local_address), api.address
        if console is None:
            return
        front = {**values, "address": console, "orchestrator_address": self.address, "metrics_address": None}
        # People log in where the orchestrator's signed tokens come from.
        front |= {"oidc_issuer": settings.oidc_issuer, "oidc_client_id": settings.oidc_audience}
        page = await self._launch("dressage_console", front)
        self.console = f"{'https' if values['tls_cert'] else 'http'}://{_reachable(page.address)}"

    async def _launch_leaves(self, common: dict[str, Any], model: dict[str, Any]) -> dict[str, str]:
        """Start the services that the orchestrator calls; returns their addresses and its tokens, by setting.

        Each pair of services has a token of its own.
        """
        settings: dict[str, dict[str, str]] = {"judge": {}, "orchestrator": {}}

        async def launch(name: str, *callers: str, **values: Any) -> None:
            tokens = {caller: secrets.token_urlsafe(24) for caller in callers}
            service = await self._launch(f"dressage_{name}", {**common, **values, "peer_tokens": tokens})
            for caller, token in tokens.items():
                settings[caller].update({f"{name}_address": service.address, f"{name}_token": token})

        await launch("llm_agent", "orchestrator", "judge", **model)
        await launch("renderer", "orchestrator", "judge")
        await launch("judge", "orchestrator", **settings["judge"])
        return settings["orchestrator"]

    async def _launch(self, package: str, values: dict[str, Any]) -> RunningService:
        """Start one service with those of the settings that it has."""
        return await self._start(package, _settings_of(package, values))

    async def _start(self, package: str, settings: Any) -> RunningService:
        wiring = _import_service(f"{package}.wiring")
        service: RunningService = await wiring.start(settings)
        self._stops.append(service.stop)
        return service

    def _announce(self, path: Path) -> None:
        """Write address and token for other commands of this user; the file is removed when the stack stops."""
        from dressage.artifacts.atomic import write_bytes

        facts = {"address": self.address, "pid": os.getpid(), "token": self.token}
        write_bytes(path, json.dumps(facts).encode())

        async def withdraw() -> None:
            path.unlink(missing_ok=True)

        self._stops.append(withdraw)

    async def stop(self) -> None:
        """Stop the services in reverse order, each with a timeout. A second call does nothing."""
        while self._stops:
            stop = self._stops.pop()
            try:
                await asyncio.wait_for(stop(), _STOP_SECONDS)
            except TimeoutError:
                import structlog

                structlog.get_logger("dressage.cli").warning("a service did not stop in time", seconds=_STOP_SECONDS)


def _make_folder(data_dir: Path) -> None:
    from dressage.artifacts.atomic import PRIVATE_FOLDER, make_private_folder

    try:
        make_private_folder(data_dir)
        if data_dir.stat().st_uid == os.geteuid():  # a folder of another user, such as a mounted volume, stays as it is
            data_dir.chmod(PRIVATE_FOLDER)
    except OSError as error:
        raise errors.InvalidArgument(
            field="data_dir",
            problem=f"cannot be created: {error.strerror}",
            value=str(data_dir),
            expected="a folder that can be written to",
        ) from error


def recordings_of(data_dir: Path, latest: Path | None) -> list[Path]:
    """The folders of recorded sessions that stacks on the data folder were given, the latest first.

    An interrupted replay of any of them can be continued. Folders that do not exist are left out.
    """
    from dressage.artifacts.atomic import write_bytes

    path = data_dir / _RECORDINGS_FILE
    try:
        folders = [Path(os.fsdecode(name)) for name in path.read_bytes().split(b"\0") if name]
    except OSError:
        folders = []
    if latest is not None:
        latest = latest.absolute()
        folders = [latest, *(folder for folder in folders if folder != latest)][:_MAX_RECORDINGS]
        write_bytes(path, b"\0".join(os.fsencode(folder) for folder in folders))
    return [folder for folder in folders if folder.is_dir() or folder == latest]


def _model_settings(api_base: str | None, api_bases: Sequence[str], recordings: Sequence[Path]) -> dict[str, Any]:
    """Settings of llm-agent; those that are not given are read from the environment."""
    settings: dict[str, Any] = {}
    if api_base:
        settings["api_base"] = api_base
    if api_bases:
        settings["api_bases"] = dict.fromkeys(api_bases, "")
    if recordings:
        settings["recordings"], *earlier = map(str, recordings)
        settings["earlier_recordings"] = tuple(earlier)
    return settings


def _own_token(data_dir: Path) -> str:
    """The token of a data folder, generated on first use. It is kept, so that clients survive a restart of the server."""
    from dressage.artifacts.atomic import write_bytes

    path = data_dir / "api_token.secret"
    write_bytes(path, secrets.token_urlsafe(32).encode(), if_absent=True)
    return path.read_text("ascii")


def _reachable(address: str) -> str:
    """The address at which commands of this machine reach a server: loopback for one that listens everywhere."""
    host, _, port = address.rpartition(":")
    return {"0.0.0.0": "127.0.0.1:", "[::]": "[::1]:", "": "127.0.0.1:"}.get(host, f"{host}:") + port


def check_exposure(address: str, token: str | None, *, field: str = "address") -> None:
    """Refuse to listen beyond loopback without a token.

    :raises InvalidArgument: if the address is malformed, or is not loopback and there is no token.
    """
    if not address.endswith(":0"):
        split_address(address, field=field)
    if not is_private(address) and not token:
        raise errors.InvalidArgument(
            field=field, value=address, expected="a loopback address, or a token (--token or DRESSAGE_TOKEN)"
        )


def _settings_type(package: str) -> Any:
    return _import_service(f"{package}.settings").Settings


def _import_service(module: str) -> ModuleType:
    """Import a module of a service.

    :raises FailedPrecondition: if a package that it needs is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise errors.FailedPrecondition(
            f"the services on this machine need {error.name}, which is not installed: {install_command('local')}, "
            "or name a server (--address)",
            reason="MISSING_EXTRA",
        ) from error


def _settings_of(package: str, values: dict[str, Any]) -> Any:
    """The settings of a service: those of `values` that it has, and the environment's."""
    settings_type = _settings_type(package)
    names = settings_type.model_fields
    if "api_base" in values and "api_base" not in names:
        raise errors.InvalidArgument(field="api_base", problem="not supported", value=values["api_base"])
    return _make_settings(settings_type, {name: value for name, value in values.items() if name in names})


def _make_settings(settings_type: Any, values: dict[str, Any]) -> Any:
    from pydantic import ValidationError

    try:
        return settings_type(**values)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        prefix = str(settings_type.model_config.get("env_prefix", ""))
        name = prefix + ".".join(str(part) for part in first["loc"]).upper()
        raise errors.InvalidArgument(f"setting {name}: {first['msg']}", field=name) from error


def _configure_logs(data_dir: Path, stream: TextIO | None) -> None:
    from dressage.serving import logs

    if stream is not None:
        logs.configure(format="text", level="info", stream=stream)
        return
    from dressage.artifacts.atomic import make_private_file, make_private_folder

    folder = data_dir / "logs"
    make_private_folder(folder)
    path = folder / "server.log"
    if path.exists() and path.stat().st_size > _LOG_BYTES:
        path.replace(folder / "server.log.1")
    make_private_file(path)
    # It stays open, because loggers write to it until the process ends.
    logs.configure(format="json", level="info", stream=path.open("a", encoding="utf-8", buffering=1))
