"""Options of `sparktop sweep` and `capacity` for what each request holds, and how long it may take."""

from __future__ import annotations

import argparse
from typing import Any

from sparktop.commands.arguments import seconds
from sparktop.sweep.terms.limits import LEAST_S, MOST_S


def add_own_options(parser: argparse._ActionsContainer) -> None:
    """Add the options for own prompts, further fields of bodies, and headers."""
    parser.add_argument(
        "--prompts",
        metavar="FILE",
        help="your own prompts in place of made ones: JSON Lines with prompt, messages or conversations, or "
        "one prompt a line of text",
    )
    parser.add_argument(
        "--extra-body",
        metavar="JSON",
        help="more fields of each request, as in '{\"temperature\": 0}'",
    )
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one more header of each request, any number of times; results hold its name alone (a key: "
        "--api-key-env)",
    )


def add_timeout_option(parser: argparse._ActionsContainer) -> None:
    """Add the time limit of a request."""
    parser.add_argument(
        "--timeout",
        type=seconds(LEAST_S, MOST_S),
        metavar="TIME",
        help="a request that waits longer for its first or its next token has failed (default: 5m, then 1m)",
    )


def request_wishes(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the plan settings that the options give, by field name; None for one that is not given.

    Raises:
        UsageError: the file, the fields or a header cannot be used.
    """
    from sparktop.sweep.plan.own_requests import parse_extra_body, parse_headers  # late: --help needs none
    from sparktop.sweep.plan.plan import patience
    from sparktop.sweep.plan.prompt_file import find_prompts

    return {
        "prompts": None if arguments.prompts is None else find_prompts(arguments.prompts),
        "extra_body": None if arguments.extra_body is None else parse_extra_body(arguments.extra_body),
        "headers": parse_headers(arguments.header) if arguments.header else None,
        "timeouts": None if arguments.timeout is None else patience(arguments.timeout),
    }
