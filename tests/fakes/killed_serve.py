"""`dressage serve` that dies in a step (see `killing`): `killed_serve.py ARGUMENTS OF SERVE`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import killing
from dressage.cli.main import main

killing.install()
main(["serve", *sys.argv[1:]])
