"""Makes a release: wheel, images by digest, chart, bills of materials, checksums, signature (`python -m tools.release`)."""
