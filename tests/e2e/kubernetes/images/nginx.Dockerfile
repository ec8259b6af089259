# A TLS reverse proxy for tests of the chart's Ingresses: Debian's nginx, whose configuration is mounted at /etc/proxy/nginx.conf.
#   docker build -f tests/e2e/kubernetes/images/nginx.Dockerfile -t dressage-test-nginx:dev tests/e2e/kubernetes/images
ARG BASE_IMAGE=docker.io/library/debian:bookworm-slim
FROM ${BASE_IMAGE}
RUN apt-get update \
 && apt-get install -y --no-install-recommends nginx \
 && rm -rf /var/lib/apt/lists/*
USER 10001:10001
ENTRYPOINT ["nginx", "-e", "stderr", "-c", "/etc/proxy/nginx.conf", "-g", "daemon off;"]
