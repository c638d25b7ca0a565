"""What inference servers say on their metrics pages, read into one model.

One file an engine maps its names to the canonical `EngineSample`; `page` finds out whose page it is;
`exposition` and `histogram` know the text format that they all share.
"""

from sparktop.engines.error import PageError
from sparktop.engines.page import read_page

__all__ = ["PageError", "read_page"]
