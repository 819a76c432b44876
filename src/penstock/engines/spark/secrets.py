"""What must never be shown: passwords and keys among the settings, in events, errors and logs alike."""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "(hidden)"
_TELLING = re.compile(
    r"secret|passw|token|credential|access[._-]?key|api[._-]?key|account[._-]?key|private[._-]?key|sas",
    re.IGNORECASE,
)
_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_ASSIGNED = re.compile(r"(?P<name>spark\.[\w.\-]+)=(?P<value>\S+)")


def is_secret(key: str) -> bool:
    """Whether a setting's name says that its value is to be kept.

    >>> is_secret("spark.hadoop.fs.s3a.secret.key"), is_secret("spark.driver.memory")
    (True, False)
    """
    return _TELLING.search(key) is not None


def shown(conf: Mapping[str, str]) -> dict[str, str]:
    """The settings in a form that may be told: secrets hidden, also those inside addresses."""
    return {key: HIDDEN if is_secret(key) else without_login(value) for key, value in conf.items()}


def without_login(address: str) -> str:
    """An address without the name and password in it.

    >>> without_login("spark://ann:pw@host:7077")
    'spark://(hidden)@host:7077'
    """
    return _IN_ADDRESS.sub(HIDDEN, address)


def without_secrets(text: str, conf: Mapping[str, str]) -> str:
    """A text of Spark's, such as an error or the end of its log, with no secret of `conf` left in it."""
    for value in sorted({conf[key] for key in conf if is_secret(key) and conf[key]}, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return without_login(
        _ASSIGNED.sub(lambda m: f"{m['name']}={HIDDEN}" if is_secret(m["name"]) else m[0], text)
    )
