"""The policy bundle: a policy of any kind (`dressage.policies.kinds`) as plain files: load, act, export.

``load(path).act(observation)`` needs numpy and safetensors only; `to_onnx` and `to_sb3` import their libraries when
called.
"""

from dressage.policies.bundle import CARD_FILE, WEIGHTS_FILE, Policy, from_bytes, load, save_bundle
from dressage.policies.card import PolicyCard
from dressage.policies.onnx_export import to_onnx
from dressage.policies.sb3_export import to_sb3

__all__ = [
    "CARD_FILE",
    "WEIGHTS_FILE",
    "Policy",
    "PolicyCard",
    "from_bytes",
    "load",
    "save_bundle",
    "to_onnx",
    "to_sb3",
]
