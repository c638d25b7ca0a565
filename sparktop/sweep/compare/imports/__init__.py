"""Import of result files of other load generators for comparisons: one module per tool.

Each module has `is_it`, which recognises the tool's file, and `read`, which returns its levels as series.
"""
