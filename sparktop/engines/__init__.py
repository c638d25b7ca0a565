"""Parses the metrics pages of inference servers into one model: `EngineSample`.

Each engine has a module that maps its metric names to `EngineSample`; `registry` lists the engines with their
routes; `page` detects which engine a page comes from. `exposition` and `histogram` parse the Prometheus text
format that most engines use, `lanes` and `figures` reduce the page's samples to fields of each engine core
(data-parallel rank, here called lane), `extras` reads what only some servers report, and `document` parses
JSON. `router_pages` recognises the pages of routers, which are not engines.
"""

from sparktop.engines.exposition import PageError
from sparktop.engines.registry import ENGINES, METRICS_PATH, Engine, engine_of, read_page

__all__ = ["ENGINES", "METRICS_PATH", "Engine", "PageError", "engine_of", "read_page"]
