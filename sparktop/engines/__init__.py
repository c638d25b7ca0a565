"""Parses the metrics pages of inference servers into one model: `EngineSample`.

Each engine has a module that maps its metric names to `EngineSample`. `registry` lists the engines with their
routes and detects which of them a page comes from. `exposition` parses the Prometheus text format that most
engines use, `document` parses JSON, and `lanes` reduces a page's samples to the fields of each engine core
(data-parallel rank, here called lane). `tables` has all spellings of the metric names. `router_pages` reads
the pages of routers, which are not engines.
"""

from sparktop.engines.exposition import PageError
from sparktop.engines.registry import ENGINES, METRICS_PATH, EngineKind, read_page

__all__ = ["ENGINES", "METRICS_PATH", "EngineKind", "PageError", "read_page"]
