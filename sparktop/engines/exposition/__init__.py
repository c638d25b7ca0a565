"""Metrics pages in the Prometheus text format: their samples, and what is kept of a page for the next one."""

from sparktop.engines.exposition.labels import Family, Labels, number, parse_labels, without
from sparktop.engines.exposition.layout import Layout, PageMemory
from sparktop.engines.exposition.page import Page, Places
from sparktop.engines.exposition.reader import Reader

__all__ = [
    "Family",
    "Labels",
    "Layout",
    "Page",
    "PageMemory",
    "Places",
    "Reader",
    "number",
    "parse_labels",
    "without",
]
