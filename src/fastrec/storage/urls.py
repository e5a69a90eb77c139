"""Split an object's URL into store root and key, and redact credentials in URLs."""

from __future__ import annotations

import re

_MARK = "***"
# In these URLs, the part before "@" is the name of a container or a revision.
_CONTAINERS = frozenset({"abfs", "abfss", "wasb", "wasbs", "hf"})
# In these URLs, "@" never follows a user name.
_USERLESS = frozenset({"memory", "github"})
# A repository of the Hugging Face Hub, with a revision, and the key of a file in it.
_HUB = re.compile(
    r"((?:(?:datasets|spaces|models|buckets)/)?[^/]+/[^/@]+"
    r"(?:@(?:refs/(?:convert|pr)/)?[^/]+)?)/?(.*)",
    re.DOTALL,
)
# URLs, and mistyped URLs such as "http:/host" and "/directory/http:/host".
_LIKE_URL = re.compile(
    r"(\s*(?:b?['\"]|.*/(?=[^/]*:/))??([A-Za-z][A-Za-z0-9+.-]+)(:/*|//))(.*)",
    re.DOTALL,
)
_NO_PORT = re.compile(r"(\[[^]]*\]|[^:\[]*):(?![0-9]*\Z).*")
_QUERY = re.compile(r"\?(?=[A-Za-z][\w.-]*=).*", re.DOTALL)
_CHAINED = re.compile(r"::(?=[A-Za-z][A-Za-z0-9+.-]+:/)")
# Query parameters of signed URLs for S3 and Google Cloud Storage. They change with each
# signature, and do not select the object.
_SIGNATURE = re.compile(
    r"x-(amz|goog)-(algorithm|credential|date|expires|security-token|signature"
    r"|signedheaders)=",
    re.IGNORECASE,
)


def is_http(url: str) -> bool:
    """Return whether a URL is HTTP, where "?" begins a query and "%41" means "A"."""
    return url.partition("://")[0].lower() in ("http", "https")


def split_url(url: str) -> tuple[str, str]:
    """Split a URL into the root of its store, including user and query, and the key.

    Only an HTTP URL has a query. In other URLs, "?" is a wildcard or part of a name.
    """
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    if scheme == "memory":  # it has no host
        return "memory://", rest.lstrip("/")
    if scheme == "hf" and (found := _HUB.fullmatch(rest)):
        return f"hf://{found[1]}", found[2]
    host, _, key = rest.partition("/")
    if not is_http(url):
        return f"{scheme}://{host}", key
    from urllib.parse import unquote

    rest, mark, query = rest.partition("#")[0].partition("?")
    host, _, key = rest.partition("/")
    return f"{scheme}://{host}/{mark}{query}", unquote(key)


def with_key(url: str, key: str) -> str:
    """Return a redacted URL after replacing its key by `key`."""
    root, _ = split_url(url)
    if not is_http(url):
        return f"{root.rstrip('/')}/{key}" if not root.endswith("://") else root + key
    from urllib.parse import quote

    root, mark, query = root.partition("?")
    return f"{root}{quote(key)}{mark}{query}"


def has_magic(url: str) -> bool:
    """Return whether a URL contains wildcards."""
    if is_http(url):
        url = url.partition("?")[0]
    return re.search(r"[*?[]", url) is not None


def redacted(url: str) -> str:
    """Remove credentials from a path or URL: userinfo and the values of a query.

    Messages, logs and reprs show user-supplied paths only in this form. Redaction also
    works for URLs that are chained or mistyped, or that have an unknown scheme.
    """
    return "::".join(map(_redacted, _CHAINED.split(url)))


def _redacted(url: str) -> str:
    head = scheme = mark = ""
    rest = url
    if found := _LIKE_URL.fullmatch(url):
        head, scheme, mark, rest = found.groups()
    scheme = scheme.lower()
    if scheme and scheme not in _USERLESS and (scheme, mark) != ("file", ":///"):
        netloc = rest if _has_raw_password(rest) else _netloc(rest)
        userinfo, at, host = netloc.rpartition("@")
        path = rest[len(netloc) :]
        name, colon, _ = userinfo.partition(":")
        if scheme in _CONTAINERS and colon:
            rest = f"{name}@{host}{path}"
        elif at and scheme not in _CONTAINERS and mark.startswith("://"):
            head, rest = head.lower(), host + path
        elif at and (colon or mark == ":"):
            rest = f"{_MARK}@{host}{path}"
    if scheme in ("http", "https"):
        rest, query, _ = rest.partition("#")[0].partition("?")
        rest += query and query + _MARK
    return head + _QUERY.sub(f"?{_MARK}", rest)


def _netloc(rest: str) -> str:
    """Return the part of a URL before the path, query or fragment."""
    return re.split("[/?#]", rest, maxsplit=1)[0]


def _has_raw_password(rest: str) -> bool:
    """Return whether the password in a URL contains an unquoted "/", "?" or "#"."""
    netloc = _netloc(rest)
    is_cut = "@" in rest and "@" not in netloc
    return is_cut and _NO_PORT.fullmatch(netloc) is not None


def is_mistyped(path: str) -> bool:
    """Return whether a path looks like a mistyped URL, or like ``str(Path(url))``."""
    found = _LIKE_URL.match(path)
    return found is not None and (found[3].startswith(":/") or redacted(path) != path)


def refuse_unreadable(url: str) -> None:
    """Raise a ValueError for a URL with a part that no store supports."""
    scheme, _, rest = url.partition("://")
    if _CHAINED.search(url):
        raise ValueError("chained URLs are not supported; pass a URL without ::")
    if scheme.lower() not in _USERLESS and _has_raw_password(rest):
        raise ValueError(
            'a password in a URL must have "%2F" for "/", "%3F" for "?" and "%23" for '
            '"#"; or pass storage_options='
        )
    if not is_http(url) and _QUERY.search(url):
        raise ValueError(
            "only HTTP URLs have a query; pass credentials as storage_options=, and "
            'write "[?]" for a question mark in a name'
        )


def hub_url(root: str, endpoint: str) -> str:
    """Return the HTTP URL below which the Hugging Face Hub serves a repository."""
    from urllib.parse import quote, unquote

    name, _, revision = root.partition("://")[2].partition("@")
    revision = "" if name.startswith("buckets/") else revision or "main"
    tail = revision and "/" + quote(unquote(revision), safe="")
    return f"{endpoint.rstrip('/')}/{name}/resolve{tail}"


def refuse_read_only(url: str) -> None:
    """Raise a ValueError for a URL that cannot be written."""
    if is_http(url):
        raise ValueError(f"cannot write {redacted(url)!r}: HTTP servers are read-only")


def without_userinfo(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL without user and password, and an authorization header with both."""
    scheme, _, rest = url.partition("://")
    authority, slash, rest = rest.partition("/")
    userinfo, at, host = authority.rpartition("@")
    if not at:
        return url, {}
    from base64 import b64encode
    from urllib.parse import unquote_to_bytes

    encoded = b64encode(unquote_to_bytes(userinfo)).decode()
    return f"{scheme}://{host}{slash}{rest}", {"authorization": f"Basic {encoded}"}


def hidden_digest(url: str) -> str:
    """Return a digest of the redacted parts that may select an object; "" if absent.

    These parts are the user name, and the query without its signature.
    """
    import hashlib  # slow to import

    root, _, query = split_url(url)[0].partition("?")
    scheme, _, authority = root.partition("://")
    userinfo = "" if scheme in _CONTAINERS else authority.rpartition("@")[0]
    user = userinfo.partition(":")[0]
    parts = query.split("&")
    query = "&".join([part for part in parts if not _SIGNATURE.match(part)])
    hidden = f"{user}?{query}".encode(errors="surrogateescape")
    return hashlib.sha256(hidden).hexdigest()[:32] if user or query else ""


def scrubbed(text: str, secrets: object) -> str:
    """Remove URLs, and all strings in `secrets`, from the message of a library."""
    text = re.sub(r"[A-Za-z][A-Za-z0-9+.-]*://\S*", "the URL", text)
    for value in sorted(_strings(secrets), key=len, reverse=True):
        text = text.replace(value, _MARK)
    return text


def _strings(value: object) -> list[str]:
    """Return all string values in nested dicts, lists, tuples and sets."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, (list, tuple, set)):
        return [text for inner in value for text in _strings(inner)]
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return [value] if isinstance(value, str) and value else []
