"""A document of sections, tables and drawings, written as Markdown, as one HTML page or as SVG."""
