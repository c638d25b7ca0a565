"""Sweeps: plan and generate load on LLM servers, measure, store and compare the results."""
