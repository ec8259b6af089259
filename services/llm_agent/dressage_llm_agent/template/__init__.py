"""The template author, `template/v1`: writes rewards and judges for a fixed set of behaviours, without a language model.

It has four steps, a module each: `parser` (words to a `ParsedIntent`), `reward_plan` and `judge_plan` (an intent to weighted
terms and criteria over the fields of the environment card), `render` (plans to Python source through the Jinja2 templates of
this package), and `reviser` (a judgment to changed weights). `author` is the entry point. An intent that the parser does not
understand is refused with a list of known behaviours, since a wrong guess would cost a training.
"""

MODEL = "template/v1"
"""Name of this author as the model of a session."""
