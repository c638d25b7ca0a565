"""Metrics pages of several engines with the figures of a simulated engine, and what HTTP noise adds to them.

Each page has the names that its engine's reader uses for progress, counted when that engine counts them:
tokens at a request's end or at each step, forward passes where it has them. Noise grows only what the
engine's HTTP side counts by itself, whether the engine works or not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sparktop.demo.engine_page import Ledger
from sparktop.simulation.engine import Engine
from stage.page import engine_page

NOISE = ("none", "aborts", "invalid requests", "retries", "health checks and polls")
_INTERVALS_S = (3.0, 20.0, 45.0)


@dataclass(slots=True)
class Noise:
    """What clients and monitors have made the HTTP side count so far."""

    kind: str
    dice: random.Random
    aborted: int = 0
    invalid: int = 0
    arrived: int = 0
    polls: int = 0
    away: int = 0
    """Requests that a client has given up at this second, and sends again in the next."""
    next_s: float | None = None

    def advance(self, at: float) -> None:
        """Count what happened up to `at` seconds."""
        self.polls += self.kind == "health checks and polls"
        self.away = 0
        if self.next_s is None:
            self.next_s = at + self.dice.uniform(0, 5)
        if at < self.next_s or self.kind in {"none", "health checks and polls"}:
            return
        self.next_s = at + self.dice.expovariate(1 / self.dice.choice(_INTERVALS_S))
        self.aborted += self.kind in {"aborts", "retries"}
        self.invalid += self.kind == "invalid requests"
        self.arrived += 1
        self.away = int(self.kind == "retries")


def _vllm(engine: Engine, ledger: Ledger, noise: Noise) -> bytes:
    page = engine_page(engine, ledger, 1.0)
    # An abort counts with its reason and its time; an image of a new request is looked up when it arrives.
    more = f"""
vllm:request_success_total{{engine="0",finished_reason="abort",model_name="m"}} {noise.aborted}
vllm:request_success_total{{engine="0",finished_reason="error",model_name="m"}} {noise.invalid}
vllm:mm_cache_queries_total{{engine="0",model_name="m"}} {noise.arrived}
vllm:e2e_request_latency_seconds_bucket{{engine="0",le="+Inf",model_name="m"}} {noise.aborted}
vllm:e2e_request_latency_seconds_count{{engine="0",model_name="m"}} {noise.aborted}
vllm:e2e_request_latency_seconds_sum{{engine="0",model_name="m"}} {30 * noise.aborted}
http_requests_total{{handler="/v1/chat/completions",method="POST",status="4xx"}} {noise.invalid}
http_requests_total{{handler="/v1/models",method="GET",status="2xx"}} {noise.polls}
"""
    return page + more.encode()


def _sglang(engine: Engine, ledger: Ledger, noise: Noise) -> bytes:
    now, tally, labels = engine.gauges, engine.tally, 'model_name="m",tp_rank="0",pp_rank="0"'
    ended = sum(ledger.ended.values())
    return f"""sglang:num_running_reqs{{{labels}}} {now.running}
sglang:num_queue_reqs{{{labels}}} {now.waiting}
sglang:token_usage{{{labels}}} {now.kv_usage}
sglang:realtime_tokens_total{{mode="decode",{labels}}} {tally.generation_tokens}
sglang:realtime_tokens_total{{mode="prefill_compute",{labels}}} {tally.rows - tally.generation_tokens}
sglang:num_requests_total{{model_name="m"}} {ended}
sglang:num_aborted_requests_total{{model_name="m"}} {noise.aborted}
sglang:http_requests_total{{endpoint="/v1/chat/completions",method="POST"}} {noise.arrived + noise.polls}
sglang:http_responses_total{{endpoint="/v1/chat/completions",status_code="400"}} {noise.invalid}
""".encode()


def _sglang_old(engine: Engine, ledger: Ledger, noise: Noise) -> bytes:
    now, tally = engine.gauges, engine.tally
    tokens = ledger.generation_tokens.sum or bool(tally.generation_tokens)
    return f"""sglang:num_running_reqs{{model_name="m"}} {now.running}
sglang:num_queue_reqs{{model_name="m"}} {now.waiting}
sglang:token_usage{{model_name="m"}} {now.kv_usage}
sglang:prompt_tokens_total{{model_name="m"}} {ledger.prompt_tokens.sum}
sglang:generation_tokens_total{{model_name="m"}} {tokens}
sglang:num_requests_total{{model_name="m"}} {ledger.e2e_s.cumulative[-1]}
sglang:num_aborted_requests_total{{model_name="m"}} {noise.aborted}
""".encode()


def _llamacpp(engine: Engine, ledger: Ledger, noise: Noise) -> bytes:
    now, tally = engine.gauges, engine.tally
    del noise  # it counts nothing by itself
    return f"""llamacpp:requests_processing {now.running}
llamacpp:requests_deferred {now.waiting}
llamacpp:prompt_tokens_total {tally.prompt_tokens}
llamacpp:tokens_predicted_total {ledger.generation_tokens.sum}
llamacpp:tokens_predicted_seconds_total {ledger.decode_s.sum}
llamacpp:n_decode_total {tally.steps}
""".encode()


def _tgi(engine: Engine, ledger: Ledger, noise: Noise) -> bytes:
    now, tally, done = engine.gauges, engine.tally, ledger.e2e_s.cumulative[-1]
    received = tally.prompt_tokens + 200 * noise.arrived
    return f"""tgi_batch_current_size {max(0, now.running - noise.away)}
tgi_queue_size {now.waiting}
tgi_request_success {done}
tgi_request_failure{{err="validation"}} {noise.invalid}
tgi_request_failure{{err="generation"}} {noise.aborted}
tgi_request_count {done + noise.arrived}
tgi_batch_inference_count{{method="decode"}} {tally.steps}
tgi_request_duration_sum {ledger.e2e_s.sum}
tgi_request_duration_count {done}
tgi_request_input_length_sum {received}
tgi_request_input_length_count {noise.arrived}
tgi_request_generated_tokens_sum {ledger.generation_tokens.sum}
tgi_request_generated_tokens_count {done}
""".encode()


def _trtllm(engine: Engine, ledger: Ledger, noise: Noise) -> bytes:
    now, tally = engine.gauges, engine.tally
    done = ledger.e2e_s.cumulative[-1]
    latency = tally.busy_s % 0.1 + 0.01
    return f"""trtllm_num_requests_running{{model_name="m"}} {now.running}
trtllm_num_requests_waiting{{model_name="m"}} {now.waiting}
trtllm_kv_cache_utilization{{model_name="m"}} {now.kv_usage}
trtllm_iteration_latency_seconds{{model_name="m"}} {latency}
trtllm_prompt_tokens_total{{model_name="m"}} {ledger.prompt_tokens.sum}
trtllm_generation_tokens_total{{model_name="m"}} {ledger.generation_tokens.sum}
trtllm_request_success_total{{finished_reason="length",model_name="m"}} {done}
trtllm_request_success_total{{finished_reason="cancelled",model_name="m"}} {noise.aborted}
trtllm_request_error_total{{http_code="400",error_type="invalid",model_name="m"}} {noise.invalid}
trtllm_e2e_request_latency_seconds_bucket{{le="+Inf",model_name="m"}} {done + noise.aborted}
trtllm_e2e_request_latency_seconds_count{{model_name="m"}} {done + noise.aborted}
trtllm_e2e_request_latency_seconds_sum{{model_name="m"}} {ledger.e2e_s.sum + 30 * noise.aborted}
""".encode()


def _triton(engine: Engine, ledger: Ledger, noise: Noise) -> bytes:
    now, tally, model = engine.gauges, engine.tally, 'model="tensorrt_llm",version="1"'
    done, spent_us = ledger.e2e_s.cumulative[-1], 1e6 * ledger.e2e_s.sum
    return f"""nv_inference_request_success{{{model}}} {done}
nv_inference_request_failure{{reason="CANCELED",{model}}} {noise.aborted}
nv_inference_request_failure{{reason="REJECTED",{model}}} {noise.invalid}
nv_inference_request_duration_us{{{model}}} {spent_us + 3e7 * noise.aborted:.0f}
nv_trt_llm_request_metrics{{request_type="scheduled",{model}}} {now.running}
nv_trt_llm_request_metrics{{request_type="waiting",{model}}} {now.waiting}
nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="fraction",{model}}} {now.kv_usage}
nv_trt_llm_general_metrics{{general_type="iteration_counter",{model}}} {tally.steps}
nv_llm_input_token_len_sum{{{model}}} {tally.prompt_tokens + 200 * noise.arrived}
nv_llm_output_token_len_sum{{{model}}} {ledger.generation_tokens.sum}
""".encode()


PAGES: Mapping[str, tuple[str, Callable[[Engine, Ledger, Noise], bytes]]] = {
    "vLLM": ("vllm", _vllm),
    "SGLang": ("sglang", _sglang),
    "SGLang, older": ("sglang", _sglang_old),
    "llama.cpp": ("llamacpp", _llamacpp),
    "TGI": ("tgi", _tgi),
    "TensorRT-LLM": ("trtllm", _trtllm),
    "Triton": ("triton", _triton),
}
"""By the engine's name in the table: its name in a configuration, and its page."""
