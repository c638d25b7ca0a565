"""Execution of a sweep: preparation of targets, measurement of levels, judgement and storage."""
