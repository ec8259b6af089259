"""gRPC bootstrap of all services: settings, logs, a server with health, reflection, errors, auth, metrics, drain."""
