"""The policy bundle: a policy of any kind (`dressage.policies.kinds`), or the source of one, as plain files.

``load(path).act(observation)`` needs numpy and safetensors only; `to_onnx` and `to_sb3` import their libraries when
called.
"""

from dressage.policies.bundle import CARD_FILE, WEIGHTS_FILE, Policy, from_bytes, load, save_bundle
from dressage.policies.card import PolicyCard
from dressage.policies.code import SOURCE_FILE, CodePolicy, code_from_bytes, is_code, is_code_bytes, load_code
from dressage.policies.onnx_export import to_onnx
from dressage.policies.program import (
    ProgramPolicy,
    is_program,
    is_program_bytes,
    load_program,
    program_from_bytes,
)
from dressage.policies.python_export import to_python
from dressage.policies.sb3_export import to_sb3

__all__ = [
    "CARD_FILE",
    "SOURCE_FILE",
    "WEIGHTS_FILE",
    "CodePolicy",
    "Policy",
    "PolicyCard",
    "ProgramPolicy",
    "code_from_bytes",
    "from_bytes",
    "is_code",
    "is_code_bytes",
    "is_program",
    "is_program_bytes",
    "load",
    "load_code",
    "load_program",
    "program_from_bytes",
    "save_bundle",
    "to_onnx",
    "to_python",
    "to_sb3",
]
