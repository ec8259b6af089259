"""Runs the corpus in a process of its own, as root or as an ordinary user, and writes the outcomes as JSON.

``python corpus_runner.py UID FOLDER``: with UID 0 the user stays the same. Where other users cannot enter the interpreter's
folders, the process sees them through a mount of its own.
"""

import ctypes
import itertools
import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_NEW_MOUNTS, _BIND, _REC, _PRIVATE = 0x00020000, 4096, 16384, 1 << 18


def open_to_others(path: Path) -> None:
    """Let other users, in this process and its children, enter the folders above a path."""
    closed = next((folder for folder in reversed(path.parents) if not folder.stat().st_mode & 1), None)
    if closed is None:
        return
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(source: str, target: Path, kind: str, flags: int, data: str = "") -> None:
        if libc.mount(source.encode(), str(target).encode(), kind.encode(), flags, data.encode()):
            raise OSError(ctypes.get_errno(), f"cannot mount {target}")

    if libc.unshare(_NEW_MOUNTS):
        raise OSError(ctypes.get_errno(), "no mount namespace")
    mount("none", Path("/"), "none", _REC | _PRIVATE)
    below = closed / path.relative_to(closed).parts[0]
    held = os.open(below, os.O_PATH)
    mount("none", closed, "tmpfs", 0, "mode=755")
    below.mkdir()
    mount(f"/proc/self/fd/{held}", below, "none", _BIND | _REC)
    os.close(held)


def become(uid: int, folder: Path) -> None:
    """Change to an ordinary user for good."""
    open_to_others(Path(sys.executable).resolve())
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, uid)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def main(uid: int, folder: Path) -> None:
    if uid:
        become(uid, folder)
    from corpus import FATAL, GENERATED, HOARDS, JUDGE, RAW, REWARD, SECRET
    from dressage.contracts import run_judge_in_sandbox, score_in_sandbox
    from dressage.envs.cards import load_card
    from dressage.envs.trajectory import load_check_trajectories
    from dressage.sandbox import Limits, SandboxFailure, run

    os.environ["DRESSAGE_RUN_TOKEN"] = SECRET
    secret = folder / "secret"
    secret.write_text(SECRET)
    numbers = itertools.count()

    def scratch_folder() -> Path:
        own = folder / f"scratch{next(numbers)}"
        own.mkdir()
        return own

    def sandboxed(target: str, request: dict, **limits: float) -> dict:
        own = scratch_folder()
        bounds = {"memory_bytes": 1 << 30, "wall_seconds": 60.0, "file_bytes": 1 << 20, **limits}
        try:
            return run(f"sandbox_targets:{target}", request, limits=Limits(**bounds), scratch=own)
        except SandboxFailure as failure:
            return {"failure": failure.kind, "message": failure.message}

    outcomes: dict[str, object] = {"uid": os.getuid()}
    stop, digests = threading.Event(), []

    card = load_card("HalfCheetah-v5")
    episodes = [episode for group in load_check_trajectories(card.id).values() for episode in group][:2]

    def measured() -> list[object]:
        """Returns and judgments of recorded episodes; JSON keeps every bit of them."""
        own = scratch_folder()
        scores = score_in_sandbox(REWARD, card, episodes, scratch=own)
        return [scores, [each.to_dict() for each in run_judge_in_sandbox(JUDGE, episodes, scratch=own)]]

    def neighbour() -> None:
        while not stop.is_set():
            digests.append(measured())

    thread = threading.Thread(target=neighbour)
    outcomes["undisturbed"] = measured()
    thread.start()
    request = {"secret_file": str(secret), "secret_name": "DRESSAGE_RUN_TOKEN"}
    outcomes["raw"] = sandboxed("run_sources", {**request, "sources": RAW})
    outcomes["calls"] = sandboxed("call_raw", {})
    outcomes["generated"] = sandboxed("run_generated", {"sources": GENERATED})
    slow = {"wall_seconds": 1.0, "memory_bytes": 256 << 20}
    outcomes["fatal"] = {name: sandboxed("run_source", {"source": source}, **slow) for name, source in FATAL.items()}
    small = {"memory_bytes": 256 << 20, "scratch_bytes": 32 << 20, "file_bytes": 16 << 20}
    with ThreadPoolExecutor(len(HOARDS)) as pool:
        replies = pool.map(lambda source: sandboxed("run_source", {"source": source}, **small), HOARDS.values())
        outcomes["hoards"] = dict(zip(HOARDS, replies, strict=True))
    stop.set()
    thread.join()
    outcomes["neighbours"] = digests
    outcomes["left"] = sorted(str(path) for path in folder.iterdir() if not path.name.startswith("scratch"))
    outcomes["affinity"] = len(os.sched_getaffinity(0))
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
