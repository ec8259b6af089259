"""Replies for sessions of the methods parameters and code; see `search_authors`.

Run a session with the model ``openai/scripted``: `--method parameters` with a variant that needs a model, or `--method code`.
"""

from search_authors import SearchAuthors

SCRIPT = SearchAuthors().answers
