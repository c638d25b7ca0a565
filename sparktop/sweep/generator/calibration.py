"""Calibration: trial requests that find out, before any load, how to send requests to a server.

The trial requests find the model, the request fields that the server accepts, how it counts tokens, and how
to make prompts of an exact length.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter

from msgspec.structs import replace

from sparktop.errors import UsageError
from sparktop.model.failure import RequestFailure
from sparktop.model.load import RequestEnded, TokenSource
from sparktop.model.text import clean
from sparktop.net.failure import server_words
from sparktop.sweep.generator.connection import ConnectionPool, NoAnswerError, ask
from sparktop.sweep.generator.exchange import (
    CHUNK_USAGE,
    MAX_COMPLETION_TOKENS,
    MAX_TOKENS,
    OPTIONAL_FIELDS,
    STREAM_OPTIONS,
    BodyForm,
    Exchange,
    ReadyRequest,
    Recipe,
    RunLog,
    Terms,
)
from sparktop.sweep.generator.prompts import (
    NewPrompt,
    PassageSearch,
    PromptMaker,
    PromptTokens,
    book_of,
    pieces,
)
from sparktop.sweep.generator.wire import TRIED_TOKENS, Calibrate, Calibrated
from sparktop.sweep.plan.own_requests import PromptFile, letters, prompt_at, read_prompts
from sparktop.sweep.plan.plan import Api
from sparktop.sweep.terms.request_errors import (
    ERROR_EVENT,
    HTTP,
    MALFORMED,
    REDIRECTS,
    TIMEOUT_CONNECT,
    WORDS_LIMIT,
    WRONG_MODEL,
    RequestFailedError,
    body_failure,
    connect_failure,
    faulty_fields,
    is_refusal,
    is_too_long,
    request_failure,
    status_failure,
)

_TRIED_AT_ONCE = 2
"""Maximum attempts of a trial request for a single token: on a busy machine the end of one may be delayed."""
_SHORT_CALL_S = 30.0
"""Maximum seconds for a list of models or a token count."""
_NOT_OF_A_FIELD = frozenset({401, 403, 404, 407, 429, 503})
"""Statuses of refusals that no field of the request is the reason of."""
_NO_LIST = frozenset({404, 405})
"""HTTP statuses of servers that do not list their models."""
_BUSY = frozenset({429, 503})
"""HTTP statuses of a server that asks to try again later."""
_FIRST_RETRY_S = 0.5
"""Seconds until a server that is busy and does not say for how long is tried again; doubled each time."""
_MOST_RETRIES = 5
"""Maximum number of times that a busy server is tried again."""
_LONGEST_WAIT_S = 90.0
"""Maximum seconds that a calibration waits for a server that is busy."""
_REPORTED_FROM_S = 1.0
"""Shortest wait for a busy server that is reported."""
_CHECK_S = 0.05
"""Interval in seconds between checks of the deadlines of a trial request."""
_LEAST_TRIED_PIECES = 32
"""Least words and punctuation marks of a trial prompt: shorter ones may be refused."""
_BOOK_PER_PROMPT = 2
"""Length of the book in prompts, in pieces for tokens: prompts begin at different sentences."""
_LEAST_BOOK_PIECES = 60_000
"""Least words and punctuation marks of the book: about 5,000 sentences."""


_BEFORE = "the"
"""Text in front of a word or punctuation mark while its tokens are counted."""
_CHECKED = 3
"""Number of complete prompts that are counted to check that the token counts of single words add up."""


class Calibration:
    """One calibration of a server for one prompt length; `find` executes it."""

    def __init__(self, command: Calibrate, pool: ConnectionPool, report: Callable[[str], None]) -> None:
        """Prepare the calibration `command` over connections of `pool`; nothing is sent before `find`.

        `report` receives a sentence before each wait for a server that is busy.
        """
        self._command = command
        self._pool = pool
        self._report = report
        self._log = RunLog(command.id)
        self._book = book_of(command.seed, max(_LEAST_BOOK_PIECES, _BOOK_PER_PROMPT * command.prompt_tokens))
        self._dropped: dict[str, str] = {}
        self._tried_pieces = command.prompt_tokens
        """Length of the trial prompt in pieces (words and punctuation marks)."""
        target = command.target
        self._terms = Terms(
            pool.endpoint.where, target.router, target.api_key, command.timeouts, target.own_texts
        )
        self._unlisted: RequestFailure | None = None
        """What the server answered instead of its list of models; None if it lists them, or nothing."""
        self._retries = 0
        self._waited_s = 0.0
        """Seconds that were waited because the server was busy."""
        self._requests = 0
        self._last: Exchange | None = None
        self._tried: Exchange | None = None
        """The successful trial request for `TRIED_TOKENS` output tokens; None until one succeeds."""

    async def find(self) -> tuple[Calibrated, Recipe | None]:
        """Execute the calibration; return its result for the parent, and how to make requests in later runs.

        If the server cannot be used, the recipe is None and the result has the `failure`.
        """
        command, target = self._command, self._command.target
        models: tuple[str, ...] = ()
        model, recipe, length = target.model, None, None
        is_exact: bool | None = False
        failure: RequestFailure | None = None
        try:
            models = await self._list_models()
            model = self._choose_model(models)
            form = BodyForm(model, target.api, extra=json.loads(target.extra_body or "{}"))
            if target.prompts is None:
                counts, adds_up = await self._count_pieces(form)
                form = await self._drop_refused_fields(form, self._make_trial_prompts(counts))
                prompt, length, is_exact, tokens = await self._measure_length(form, counts, adds_up=adds_up)
                trial = prompt
            else:  # the user's own are sent as they are
                trial, is_exact, tokens = _shortest_of(target.prompts), None, PromptTokens()
                prompt = partial(prompt_at, target.prompts)
                form = await self._drop_refused_fields(form, trial)
            first_has_token = await self._sends_first_event_with_token(form, trial)
            form, maker = self._without_running_totals(form), PromptMaker(self._book, tokens)
            recipe = Recipe(form, prompt, maker, first_has_token)
        except RequestFailedError as error:
            failure = error.failure
        except OSError as error:
            where = self._pool.endpoint.where
            failure = connect_failure(error, perf_counter(), where=where)
            if failure.word == TIMEOUT_CONNECT and self._pool.endpoint.tls is not None:
                message = f"{failure.message} If it speaks plain HTTP, write http:// in its URL"
                failure = request_failure(TIMEOUT_CONNECT, message, failure.at)
        dropped = {name: clean(words) for name, words in self._dropped.items()}
        calibrated = Calibrated(
            id=command.id,
            model=model,
            models=models,
            dropped_fields=dropped,
            prompt_tokens=length,
            is_exact=is_exact,
            failure=failure,
        )
        return calibrated, recipe

    async def _count_pieces(self, form: BodyForm) -> tuple[PromptTokens | None, bool]:
        """Return (token counts of words and of the chat template, whether prompts made with these are exact).

        The counts are None if the server does not count tokens. The second value is True if the server
        counted exactly the computed number of tokens in trial prompts of about the length asked for. It is
        False if the counts differ, or if the server cannot count a prompt with its chat template.
        """
        bare = {"add_special_tokens": False}
        pieces_before = await self._tokenize(form, {"prompt": _BEFORE, **bare})
        if pieces_before is None:
            return None, False
        costs: dict[str, float] = {}
        for piece in pieces():
            length = await self._tokenize(form, {"prompt": _BEFORE + piece, **bare})
            if length is None:
                return None, False
            costs[piece] = length - pieces_before
        tokens = PromptTokens(0.0, costs)
        for _ in range(2):
            maker = PromptMaker(self._book, tokens)
            differences = set()
            for number in range(_CHECKED):
                prompt, reckoned = maker.prompt(self._command.prompt_tokens, number, "length")
                is_chat = form.api is Api.CHAT
                body = {"messages": [{"role": "user", "content": prompt}]} if is_chat else {"prompt": prompt}
                token_count = await self._tokenize(form, body)
                if token_count is None:
                    return PromptTokens(0.0, costs), False
                differences.add(token_count - reckoned)
            if differences == {0}:
                return tokens, True
            # The difference that all prompts share is the cost of the chat template.
            tokens = PromptTokens(tokens.overhead + min(differences), costs)
        return tokens, False

    async def _tokenize(self, form: BodyForm, question: Mapping[str, object]) -> int | None:
        """Return a count of the `/tokenize` route of vLLM and SGLang; None if the server does not count."""
        try:
            answer = await ask(self._pool, "/tokenize", {"model": form.model, **question}, _SHORT_CALL_S)
        except NoAnswerError:
            return None
        response = answer.json()
        count = response.get("count") if isinstance(response, dict) else None
        return count if isinstance(count, int) and not isinstance(count, bool) else None

    async def _list_models(self) -> tuple[str, ...]:
        """Return the names of the models that the server lists; if it answers otherwise, set `_unlisted`."""
        server = self._terms
        while True:
            try:
                answer = await ask(self._pool, "/v1/models", None, _SHORT_CALL_S)
            except NoAnswerError as error:
                self._unlisted = request_failure(MALFORMED, str(error), perf_counter())
                return ()
            body, status = bytes(answer.body), answer.http.status or 0
            words = server_words(body, server.secrets, WORDS_LIMIT)
            if answer.http.is_ok:
                break
            self._unlisted = status_failure(
                status,
                words,
                perf_counter(),
                server.where,
                router=server.router,
                has_key=server.secret is not None,
                headers=answer.http.headers,
            )
            if not await self._wait_if_busy(self._unlisted):
                return ()
        document = answer.json()
        data = document.get("data") if isinstance(document, dict) else None
        if isinstance(data, list):
            self._unlisted = None
            names = [entry.get("id") for entry in data if isinstance(entry, dict)]
            return tuple(name for name in names if isinstance(name, str))
        self._unlisted = body_failure(words, body, perf_counter(), server.where)
        return ()

    def _choose_model(self, models: tuple[str, ...]) -> str:
        model = self._command.target.model
        if model is not None:
            return model
        if models:
            return models[0]
        failure, where = self._unlisted, self._pool.endpoint.where
        if failure is None or failure.status in _NO_LIST:
            message = f"{where} does not list the models it serves: name one (--model)"
            failure = request_failure(WRONG_MODEL, message, perf_counter())
        raise RequestFailedError(failure)

    async def _wait_if_busy(self, failure: RequestFailure) -> bool:
        """Wait as long as a server that refused a request asks for; return False to give up instead.

        It is given up if the server refuses for another reason than that it is busy, or for too long.
        """
        if failure.status not in _BUSY:
            return False
        delay_s = failure.retry_s
        if delay_s is None:
            delay_s = _FIRST_RETRY_S * 2**self._retries
        if self._retries >= _MOST_RETRIES or self._waited_s + delay_s > _LONGEST_WAIT_S:
            return False
        self._retries += 1
        self._waited_s += delay_s
        if delay_s >= _REPORTED_FROM_S:
            self._report(f"{failure.message}: it is asked again in {delay_s:,.0f} s")
        await asyncio.sleep(delay_s)
        return True

    def _make_trial_prompts(self, tokens: PromptTokens | None) -> NewPrompt:
        """Return what makes the trial prompts, and set `_tried_pieces` to their length.

        `tokens` has the counts of words, None if they are unknown.
        """
        length = self._command.prompt_tokens
        if tokens is None:
            # Without known token costs the trial prompt is short: even at three tokens per word it fits into
            # any context that the real prompt fits into.
            length = self._tried_pieces = min(length, max(_LEAST_TRIED_PIECES, length // 4))
        return self._prompt_function(tokens or PromptTokens(), length)

    async def _drop_refused_fields(self, form: BodyForm, prompt: NewPrompt) -> BodyForm:
        """Return `form` without the optional fields that the server refuses, found by trial requests.

        Raises:
            RequestFailedError: the server refuses the request even without optional fields.
        """
        refusal: RequestFailure | None = None  # the first that names no field: then all optional ones go
        while True:
            exchange = await self._send_trial(form, prompt, TRIED_TOKENS)
            end = exchange.end
            if end is None or end.error is None:
                self._tried = exchange
                return await self._restore_accepted_fields(form, prompt)
            if refusal is not None or not _may_be_due_to_a_field(end):
                raise RequestFailedError(refusal or end.error)
            body = bytes(exchange.words)
            refused_fields = faulty_fields(body, form.droppable)
            words = server_words(body.strip().removeprefix(b"data:"), self._terms.secrets)
            if not refused_fields:  # each field that the server takes alone comes back at the end
                refused_fields, refusal = frozenset(OPTIONAL_FIELDS) - form.dropped, end.error
                if not refused_fields:
                    raise RequestFailedError(end.error)
            elif STREAM_OPTIONS in refused_fields and CHUNK_USAGE not in form.dropped:
                # `stream_options` is older and more widely supported than `continuous_usage_stats` within it.
                refused_fields = refused_fields - {STREAM_OPTIONS} | {CHUNK_USAGE}
            if MAX_COMPLETION_TOKENS in refused_fields:
                refused_fields = refused_fields - {MAX_COMPLETION_TOKENS} | {MAX_TOKENS}
            self._dropped |= dict.fromkeys(sorted(refused_fields), words)
            form = form.without(refused_fields)

    async def _restore_accepted_fields(self, form: BodyForm, prompt: NewPrompt) -> BodyForm:
        """Return `form` with each field that was refused and that the server takes after all, tried alone.

        A refusal may name a field that it only lists, or that it refused together with another.
        """
        fullest_form = form
        for name in [name for name in OPTIONAL_FIELDS if name in self._dropped]:
            if name == CHUNK_USAGE and STREAM_OPTIONS in fullest_form.dropped:
                continue
            fuller_form = replace(fullest_form, dropped=fullest_form.dropped - {name})
            tried = await self._send_trial(fuller_form, prompt, 1)
            if tried.end is not None and tried.end.error is None:
                fullest_form = fuller_form
                del self._dropped[name]
        if fullest_form != form:
            self._tried = await self._send_trial(fullest_form, prompt, TRIED_TOKENS)
        return fullest_form

    def _without_running_totals(self, form: BodyForm) -> BodyForm:
        """Return `form` without the field that requests running token totals, if token ids give exact counts.

        This saves bytes in each chunk. For a router, return `form` unchanged: later requests may be answered
        by other servers, which may not send token ids.
        """
        end = None if self._tried is None else self._tried.end
        exact = end is not None and end.token_source is TokenSource.TOKEN_IDS
        return form.without([CHUNK_USAGE]) if exact and not self._command.target.router else form

    async def _sends_first_event_with_token(self, form: BodyForm, prompt: NewPrompt) -> bool:
        """Return whether the server sends its first event at the time of its first token, as vLLM does.

        The first event has only the role "assistant"; other servers send it as soon as they accept a request.
        The test is whether all events of an answer of one token arrive together. Return False without a trial
        request if the token counts of this server do not depend on the result.
        """
        end = None if self._tried is None else self._tried.end
        if end is None or not (end.token_source is TokenSource.USAGE or end.hidden_before):
            return False
        for _ in range(_TRIED_AT_ONCE):
            if (await self._send_trial(form, prompt, 1)).came_at_once:
                return True
        return False

    async def _measure_length(
        self, form: BodyForm, tokens: PromptTokens | None, *, adds_up: bool
    ) -> tuple[NewPrompt, int | None, bool, PromptTokens]:
        """Find how to make prompts of the length asked for.

        `tokens` has the token count of each word as the server counts it; None if the server does not count
        words. `adds_up` is True if the counts of the words are known to add up to the count of a prompt.
        Otherwise the server's counts of complete trial prompts are used, if it reports any.

        Return (function that makes prompts, length of a trial prompt as the server counts it, whether all
        have exactly the length asked for, token counts of words).
        """
        asked_tokens, counted_tokens = self._command.prompt_tokens, self._reported_length()
        if tokens is not None and (counted_tokens is None or (adds_up and counted_tokens == asked_tokens)):
            return self._prompt_function(tokens, asked_tokens), counted_tokens, adds_up, tokens
        one_each = PromptTokens()  # where the server counts nothing, each word is taken for a token
        if counted_tokens is None:
            return self._prompt_function(one_each, asked_tokens), None, False, one_each
        if tokens is not None:
            # The costs of words are known. What the trial request had beyond them is the chat template.
            tokens = PromptTokens(tokens.overhead + counted_tokens - asked_tokens, tokens.costs)
            prompt = self._prompt_function(tokens, asked_tokens)
            counted_tokens = await self._count_prompt_tokens(form, prompt)
            if counted_tokens == asked_tokens:
                return prompt, counted_tokens, True, tokens
        search = PassageSearch(
            self._book,
            asked_tokens,
            lambda text: self._count_prompt_tokens(form, lambda _number, _salt: (text, asked_tokens)),
            (self._tried_pieces, counted_tokens or asked_tokens),
        )
        passage, counted_tokens, exact = await search.find()
        if search.refusal is not None and not exact:
            raise RequestFailedError(search.refusal)
        if passage is None:
            return self._prompt_function(one_each, asked_tokens), None, False, one_each
        estimate = tokens or PromptTokens(otherwise=search.tokens_per_piece)
        return passage.prompt, counted_tokens, exact, estimate

    def _prompt_function(self, tokens: PromptTokens, length: int) -> NewPrompt:
        return partial(PromptMaker(self._book, tokens).prompt, length)

    async def _count_prompt_tokens(self, form: BodyForm, prompt: NewPrompt) -> int | None:
        """Return the prompt tokens that the server reports for a prompt; None if it reports none.

        Raises:
            RequestFailedError: the server refuses the prompt as too long.
        """
        end = (await self._send_trial(form, prompt, 1)).end
        if end is not None and end.error is not None and is_refusal(end.error):
            raise RequestFailedError(end.error)
        return self._reported_length()

    def _reported_length(self) -> int | None:
        """Return the prompt tokens of the last trial request; None if the server does not report them."""
        end = self._last.end if self._last is not None else None
        return None if end is None else end.prompt_tokens

    async def _send_trial(self, form: BodyForm, new: NewPrompt, output_tokens: int) -> Exchange:
        """Send a trial request with a new prompt, wait for its end, and return it, successful or not.

        Send it again if the server is busy and says when it may be tried, or is for a moment.
        """
        while True:
            exchange = await self._send_once(form, new, output_tokens)
            if exchange.is_stale:
                continue  # at most once for each idle connection
            failure = None if exchange.end is None else exchange.end.error
            if failure is None or not await self._wait_if_busy(failure):
                return exchange

    async def _send_once(self, form: BodyForm, new: NewPrompt, output_tokens: int) -> Exchange:
        command = self._command
        prompt, _ = new(self._requests, f"{command.seed}/{command.id}")
        output_tokens = max(1, min(output_tokens, command.output_tokens))
        salt = f"{command.id}-{self._requests}"
        content = form.request(self._pool.endpoint, prompt, output_tokens, salt)
        request = ReadyRequest(f"{command.id}-{self._requests}", content, None, output_tokens)
        connection = self._pool.take() or await self._pool.open()
        self._requests += 1
        freed = asyncio.Event()
        exchange = Exchange(request, connection, self._log, self._terms, lambda _: freed.set())
        try:
            while not freed.is_set():
                exchange.check(perf_counter())
                try:
                    async with asyncio.timeout(_CHECK_S):
                        await freed.wait()
                except TimeoutError:
                    continue
        finally:
            exchange.cancel(perf_counter())
        if connection.open:
            self._pool.give_back(connection)
        self._last = exchange
        return exchange


def _shortest_of(file: PromptFile) -> NewPrompt:
    """Return what makes the trial prompts of the user's own: the shortest, as a server may refuse some.

    Raises:
        RequestFailedError: the file has changed.
    """
    try:
        shortest = min(read_prompts(file), key=letters)
    except UsageError as error:
        raise RequestFailedError(request_failure(MALFORMED, str(error), perf_counter())) from None
    return lambda _number, _salt: (shortest, None)


def _may_be_due_to_a_field(end: RequestEnded) -> bool:
    """Return whether the request may have failed because of one of its fields."""
    failure = end.error
    if failure is None or end.generated_tokens or is_too_long(failure.message):
        return False
    if failure.word == ERROR_EVENT:
        return True
    return failure.word.startswith(f"{HTTP}:") and failure.status not in _NOT_OF_A_FIELD | REDIRECTS
