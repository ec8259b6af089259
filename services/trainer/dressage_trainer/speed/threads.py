"""How many threads a learner or evaluator uses, and how each library gets that number: the one place that decides it.

* The simulator steps on ``threads`` native threads (`make_batch(num_threads=...)`).
* XLA sizes its thread pool by NPROC, at the latest when JAX first compiles. The sandbox sets NPROC before Python starts.
* numpy's products in the rollout have a few hundred rows: a second OpenBLAS thread would only take a core from the
  simulator (collection is 10 to 15 % faster without it on two cores), so BLAS and OpenMP get one.

`learner_environment` adds what only the learner needs. Pinning to cores is the sandbox's (``cpus=``).
"""

from __future__ import annotations

from pathlib import Path


def learner_environment(*, compilation_cache: Path | None = None, on_gpu: bool = False) -> dict[str, str]:
    """Return environment variables for the learner's process; the sandbox sets the thread counts.

    :param compilation_cache: folder of compiled updates; the learner need only be able to read it.
    :param on_gpu: whether JAX may use a GPU; it then chooses one that it finds.
    """
    variables = {
        **({} if on_gpu else {"JAX_PLATFORMS": "cpu"}),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    }
    if compilation_cache is not None:
        variables["JAX_COMPILATION_CACHE_DIR"] = str(compilation_cache)
        variables["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        # As in `warmup.use_compilation_cache`, so that both have the same keys.
        variables["JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"] = "none"
    return variables
