"""The roles that a language model plays, a folder each: what it is told (Jinja2 templates), and how its reply is read.

`base.Role` is what a role is; `replies` reads code blocks and sections; `prompts` renders the templates; `registry` finds the
role of a task. A new role is a folder with ``system.j2`` and ``user.j2``, a module ``role`` with a ``ROLE``, and a line there.
"""
