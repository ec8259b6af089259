# Stands in for the official postgres image where none can be pulled: Debian's package, and as much of that image's contract
# as the chart relies on (POSTGRES_USER, POSTGRES_DB, POSTGRES_PASSWORD_FILE, PGDATA, user 999).
#   docker build -f tests/e2e/kubernetes/images/postgresql.Dockerfile -t dressage-test-postgresql:dev tests/e2e/kubernetes/images
ARG BASE_IMAGE=docker.io/library/debian:bookworm-slim
FROM ${BASE_IMAGE}
RUN groupadd --system --gid 999 postgres \
 && useradd --system --uid 999 --gid 999 --home-dir /var/lib/postgresql --no-create-home postgres \
 && mkdir -p /etc/postgresql-common \
 && echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.conf \
 && apt-get update \
 && apt-get install -y --no-install-recommends postgresql \
 && rm -rf /var/lib/apt/lists/* \
 && ln -s /usr/lib/postgresql/*/bin /usr/local/pgsql
COPY --chmod=755 postgresql-start /usr/local/bin/postgresql-start
ENV PATH=/usr/local/pgsql:/usr/local/bin:/usr/bin:/bin
USER 999:999
ENTRYPOINT ["postgresql-start"]
