"""The roles of language models, one folder each: the prompt (Jinja2 templates) and the parser of the reply.

`base.Role` is the protocol; `replies` reads code blocks and sections; `prompts` renders the templates; `registry` returns the
role of a task. A new role is a folder with ``system.j2``, ``user.j2`` and ``repair.j2``, a module ``role`` with a ``ROLE``, and
a line in `registry`.
"""
