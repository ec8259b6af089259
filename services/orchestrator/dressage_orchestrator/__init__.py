"""The orchestrator: sessions and their durable workflows, runs and their trainers, and the public API.

Layers from the outside in: `api` (gRPC servicers) → `methods` (what a session proposes) → `lifecycle` (durable workflows of
sessions on DBOS) → `launch` (starts trainers) → `database`. It holds no API keys, runs no generated code, and imports neither a
simulator nor a learning framework.
"""
