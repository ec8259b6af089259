"""Languages of your own for the method `program`, as plug-ins.

`plugin` has what the author of a plug-in uses. `registering` describes a plug-in once, in a sandboxed process, and keeps the
description as data. All services read the description (`registered`). The code of a plug-in runs in sandboxed processes only
(`loading`). Docs: ``docs/own-languages.md``.
"""
