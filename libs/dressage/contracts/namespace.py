"""The `np` that generated code gets: an allow-list of array functions.

No function reads or writes files, makes random numbers or returns modules. Rewards get the functions that numpy and
jax.numpy share, so that one source runs on both. Judges always run on numpy and get a few more.
"""

from __future__ import annotations

import difflib
import functools
import importlib
from typing import Any, Literal, NoReturn

Backend = Literal["numpy", "jax"]

_ELEMENTWISE = """
abs absolute add arccos arccosh arcsin arcsinh arctan arctan2 arctanh ceil clip copysign cos cosh deg2rad degrees divide
equal exp exp2 expm1 fabs float_power floor floor_divide fmax fmin fmod greater greater_equal heaviside hypot
isclose isfinite isinf isnan less less_equal log log10 log1p log2 logaddexp logical_and logical_not logical_or
logical_xor maximum minimum mod multiply nan_to_num negative not_equal positive power rad2deg radians reciprocal
remainder rint round sign sin sinc sinh sqrt square subtract tan tanh true_divide trunc where interp select
bitwise_and bitwise_or bitwise_xor invert real i0 angle conjugate
"""
_REDUCTIONS = """
all allclose any argmax argmin average count_nonzero cumprod cumsum max mean median min nanmax nanmean nanmin nanstd
nansum percentile prod ptp quantile std sum var amax amin nanmedian nanpercentile
"""
_SHAPES = """
arange array asarray atleast_1d atleast_2d broadcast_to column_stack concatenate cross diff dot einsum empty_like
expand_dims eye flip full full_like hstack inner linspace matmul moveaxis ndim ones ones_like outer ravel
repeat reshape roll shape size squeeze stack swapaxes take take_along_axis tensordot tile transpose vdot vstack
zeros zeros_like argsort sort broadcast_arrays diagonal trace tril triu searchsorted
"""
_CONSTANTS = "pi e inf nan newaxis float32 float64 int32 int64 bool_"
_NUMPY_ONLY = """
argwhere convolve correlate corrcoef cov digitize ediff1d flatnonzero gradient histogram isin nonzero polyfit polyval
trapezoid unique unwrap array_equal ndarray errstate nancumsum nanargmax nanargmin split array_split insert append
delete ascontiguousarray copy float16 int8 uint8 integer floating number isscalar meshgrid union1d intersect1d setdiff1d
"""
_SUBMODULES = {"linalg": "norm det inv solve", "fft": "fft ifft rfft irfft fftfreq rfftfreq"}

REWARD_NAMES = frozenset((_ELEMENTWISE + _REDUCTIONS + _SHAPES + _CONSTANTS).split()) | {"linalg"}
JUDGE_NAMES = REWARD_NAMES | frozenset(_NUMPY_ONLY.split()) | {"fft"}
SUBMODULES = {name: frozenset(names.split()) for name, names in _SUBMODULES.items()}

_REASONS = {
    "random": "generated code must be deterministic, so np has no random numbers",
    **dict.fromkeys(
        (
            "load",
            "save",
            "savez",
            "loadtxt",
            "savetxt",
            "genfromtxt",
            "fromfile",
            "memmap",
            "fromstring",
            "frombuffer",
        ),
        "generated code may not touch files or raw memory",
    ),
    "vectorize": "use array operations and np.where",
    "apply_along_axis": "use array operations with an axis argument",
}


def missing_name(name: str, names: frozenset[str], *, prefix: str = "np") -> str:
    """Return one sentence: why ``prefix.name`` is missing, and what to use instead."""
    if name in _REASONS:
        return f"{prefix}.{name} is not allowed: {_REASONS[name]}."
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    hint = f"; near matches: {', '.join(f'{prefix}.{match}' for match in near)}" if near else ""
    return f"{prefix}.{name} is not among the allowed array functions{hint}."


class ArrayNamespace:
    """Read-only set of array functions; any other name raises AttributeError with the reason."""

    def __init__(self, functions: dict[str, Any], *, title: str) -> None:
        self.__dict__.update(functions)
        self.__dict__["_title"] = title

    def __getattr__(self, name: str) -> NoReturn:
        names = frozenset(key for key in self.__dict__ if not key.startswith("_"))
        raise AttributeError(missing_name(name, names, prefix=self.__dict__["_title"]))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"np is read-only: cannot set np.{name}")

    __delattr__ = __getattr__

    def __repr__(self) -> str:
        return f"<allowed functions of {self.__dict__['_title']}>"


@functools.cache
def array_namespace(backend: Backend = "numpy", *, wide: bool = False) -> ArrayNamespace:
    """Return the proxy for a backend.

    :param backend: "numpy", or "jax" (imported now).
    :param wide: the judge's list instead of the reward's; numpy only.
    """
    library = importlib.import_module("jax.numpy" if backend == "jax" else "numpy")
    names = JUDGE_NAMES if wide else REWARD_NAMES
    functions: dict[str, Any] = {}
    for name in sorted(names):
        if not hasattr(library, name):
            continue
        value = getattr(library, name)
        if name in SUBMODULES:
            members = {member: getattr(value, member) for member in sorted(SUBMODULES[name])}
            value = ArrayNamespace(members, title=f"np.{name}")
        functions[name] = value
    return ArrayNamespace(functions, title="np")
