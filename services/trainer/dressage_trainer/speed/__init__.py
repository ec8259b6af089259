"""What makes training faster and changes no result: removed, `dressage_trainer.ppo` trains the same, only slower.

* `lanes.py`: the update on several cores, compiled while the first rollout is collected.
* `compiled.py`, `warmup.py`: compiled updates that are kept from run to run.
* `threads.py`: how many threads each library uses.
"""
