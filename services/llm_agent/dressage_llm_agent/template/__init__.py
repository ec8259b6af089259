"""The template author, `template/v1`: writes rewards and judges for behaviours that it knows, without a language model.

It goes in four steps, a module each: `parser` (words to a `ParsedIntent`), `reward_plan` and `judge_plan` (an intent to
weighted terms and criteria over the fields of the environment card), `render` (plans to Python source through the Jinja2
templates beside it), and `reviser` (a judgment to changed weights). `author` is the way in. What it does not understand it
declines, with a list of what it knows: a wrong guess would cost a training.
"""

MODEL = "template/v1"
"""Name under which sessions ask for this author."""
