"""gRPC bootstrap shared by all services: settings, logs, server with health, reflection, errors, auth, metrics, drain."""
