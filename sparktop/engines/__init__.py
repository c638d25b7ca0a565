"""What inference servers say on their metrics pages, read into one model.

One file an engine maps its names to the canonical `EngineSample`; `registry` lists them with their routes;
`page` finds out whose page it is. `exposition` and `histogram` know the text format that most share, `lanes`
and `figures` what its samples come to, `document` the JSON of the others.
"""

from sparktop.engines.error import PageError
from sparktop.engines.page import read_page
from sparktop.engines.registry import ENGINES, METRICS_PATH, Engine

__all__ = ["ENGINES", "METRICS_PATH", "Engine", "PageError", "read_page"]
