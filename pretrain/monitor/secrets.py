"""What a page that others may see leaves out: names and passwords in URLs, and keys among their parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

USER = re.compile(r"(?<=://)[^/\s\"']*@")  # to the last @ before the path
PARAMETER = re.compile(
    r"([?&][^=&\s\"']*(?:key|token|secret|sig|signature|password|credential)=)[^&\s\"']*", re.IGNORECASE
)


def without_secrets(value: Any) -> Any:
    """A value of JSON whose strings hold none.

    >>> without_secrets({"url": "s3://ann:pa@ss@host/runs", "other": ["https://host/a?v=1&X-Amz-Signature=5f&b=2", 3]})
    {'url': 's3://…@host/runs', 'other': ['https://host/a?v=1&X-Amz-Signature=…&b=2', 3]}
    """
    if isinstance(value, str):
        return PARAMETER.sub(r"\1…", USER.sub("…@", value))
    if isinstance(value, Mapping):
        return {key: without_secrets(one) for key, one in value.items()}
    return [without_secrets(one) for one in value] if isinstance(value, list) else value
