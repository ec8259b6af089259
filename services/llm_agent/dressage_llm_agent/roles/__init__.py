"""The roles of language models, one folder each: the prompt (Jinja2 templates) and the parser of the reply.

A role derives from `base.Role`; `registry` finds the role of a task; `replies` reads code blocks and sections; `prompts`
renders the templates. A new role is a folder with ``system.j2`` and ``user.j2`` and a class, the folder's ``ROLE``.
"""
