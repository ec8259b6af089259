"""gRPC server and client set-up of all services: settings, logs, health, reflection, errors, auth, metrics, drain."""
