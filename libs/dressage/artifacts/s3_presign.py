"""Presigned URLs whose signature includes headers: the store refuses a request that sends others.

The client's `get_presigned_url` signs the host alone, so this module composes its signer's functions. The algorithm is AWS
Signature Version 4 with query parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from urllib.parse import quote, urlsplit, urlunsplit

from minio import Minio, signer

_ALGORITHM = "AWS4-HMAC-SHA256"


def presign(
    client: Minio,
    method: str,
    bucket: str,
    name: str,
    *,
    headers: Mapping[str, str],
    seconds: int,
    now: datetime,
) -> str:
    """Return a URL with which any caller may make one kind of request, without a request to the store.

    :param headers: that the request has to send as they are.
    :param seconds: lifetime.
    :param now: start of the lifetime, UTC, by the store's clock.
    """
    region = client._get_region(bucket)
    credentials = client._provider.retrieve() if client._provider is not None else None
    if credentials is None:
        raise ValueError("a store without credentials cannot presign")
    url = client._base_url.build(method=method, region=region, bucket_name=bucket, object_name=name)
    signed = {"host": url.netloc, **{key.lower(): value for key, value in headers.items()}}
    scope = signer._get_scope(now, region, "s3")
    query = {
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key}/{scope}",
        "X-Amz-Date": now.strftime("%Y%m%dT%H%M%SZ"),
        "X-Amz-Expires": str(seconds),
        "X-Amz-SignedHeaders": ";".join(sorted(signed)),
        **({"X-Amz-Security-Token": credentials.session_token} if credentials.session_token else {}),
    }
    text = "&".join(f"{key}={quote(value, safe='')}" for key, value in sorted(query.items()))
    parts = urlsplit(urlunsplit(url))._replace(query=text)
    canonical, _ = signer._get_canonical_request_hash(method, parts, signed, "UNSIGNED-PAYLOAD")
    key = signer._get_signing_key(credentials.secret_key, now, region, "s3")
    signature = signer._get_signature(key, signer._get_string_to_sign(now, scope, canonical))
    return urlunsplit(parts._replace(query=f"{text}&X-Amz-Signature={signature}"))
