"""`StrEnum` as Python 3.11 has it."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):  # noqa: UP036 - the reader runs with 3.10 too
    from enum import StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):  # noqa: UP042 - this is what it proposes
        """An enumeration whose members are texts and are formatted as these."""

        __str__ = str.__str__
        __format__ = str.__format__


__all__ = ["StrEnum"]
