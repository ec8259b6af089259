# Stands in for the official minio image where none can be pulled: the program alone, which `go install
# github.com/minio/minio@latest` makes (CGO_ENABLED=0).
#   docker build -f tests/e2e/kubernetes/images/minio.Dockerfile -t dressage-test-minio:dev FOLDER_WITH_MINIO
FROM scratch
COPY minio /minio
USER 10001:10001
ENTRYPOINT ["/minio"]
