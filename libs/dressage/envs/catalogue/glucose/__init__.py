"""An insulin pump of a simulated patient, of simglucose."""

from __future__ import annotations

from typing import Any

from dressage.envs.packs.words import Words

_STEPS = 480

WORDS = {
    "Glucose-adolescent2-v0": Words(
        title="insulin pump of a simulated patient",
        description=(
            "A simulated adolescent with type 1 diabetes (the UVA/Padova model of simglucose, patient adolescent#002) eats "
            "meals at random times. A pump gives insulin; a sensor measures glucose every 3 minutes for one day. Too little "
            "glucose is more dangerous than too much."
        ),
        observation=[("glucose", "mg/dL", "measured glucose, with noise and delay; 70 to 180 is healthy")],
        action=[("insulin", "U/min", "rate of insulin; some hundredths are usual")],
        stock_reward="decrease of the blood glucose risk index over the last hour, summed",
        termination="the step in which blood glucose is below 10 or above 600 mg/dL.",
        intents=("keep blood glucose between 70 and 180 mg/dL",),
        time_step=180.0,
        target=-10.0,
    )
}


def make(env_id: str, steps: int | None) -> Any:
    """Return the environment, in a process of the pack."""
    import gymnasium
    from simglucose.envs import T1DSimGymnaisumEnv

    class SeededEnv(T1DSimGymnaisumEnv):  # type: ignore[misc]
        """Meals and the sensor's noise follow the seed of `reset`; the package draws them when it is made."""

        def __init__(self, seed: int | None = None) -> None:
            super().__init__(patient_name="adolescent#002", seed=seed)

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            if seed is not None:
                self.__init__(seed % 2**31)  # type: ignore[misc]
            return super().reset(seed=seed)

    return gymnasium.wrappers.TimeLimit(SeededEnv(), max_episode_steps=steps or _STEPS)
