"""The server's start-up phases on SGLang's page."""

from __future__ import annotations

from sparktop.engines import read_page

PAGE = b"""# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m",tp_rank="0"} 0
# TYPE sglang:startup_time_seconds gauge
sglang:startup_time_seconds{phase="load_weight",model_name="m",tp_rank="0"} 41.5
sglang:startup_time_seconds{phase="load_weight",model_name="m",tp_rank="1"} 43.0
sglang:startup_time_seconds{phase="torch\\x1b",model_name="m"} NaN
# TYPE sglang:weight_load_duration_seconds gauge
sglang:weight_load_duration_seconds{model_name="m"} 40.0
# TYPE sglang:startup_cuda_graph_time_seconds gauge
sglang:startup_cuda_graph_time_seconds{model_name="m"} 8.25
"""


def test_phases_of_the_start_are_read() -> None:
    """The phases of the slowest rank are read; a page may have none."""
    sample = read_page(PAGE, at=1.0, engine="sglang")
    assert sample.startup == {"load_weight": 43.0, "weights": 40.0, "CUDA graphs": 8.25}
    assert read_page(PAGE[:90], at=1.0, engine="sglang").startup == {}
