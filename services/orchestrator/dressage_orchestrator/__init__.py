"""The orchestrator: sessions and their durable workflows, runs and their trainers, and the public API.

From the outside in: `api` (gRPC servicers: translate, call, translate) → `workflow` (a session's durable flow, on DBOS)
→ `methods` (what a session proposes) → `launch` (who starts trainers) and `database` (what is remembered). It holds no
API keys, runs no generated code, and imports neither a simulator nor a learning framework.
"""
