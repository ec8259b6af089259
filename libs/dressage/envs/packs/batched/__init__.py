"""Simulators of packs that step many environments at once, as a batch of ours and as one environment of Gymnasium's form.

`stepping` and the adapters run in a pack's process only; `client` runs in the learner.
"""
