"""Agents of the load generator: conversations whose prompts hold the server's own answers."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from time import perf_counter

from msgspec.structs import replace

from sparktop.model.load import RequestEnded, RunStarted, Turn
from sparktop.sweep.generator.client import LoadClient
from sparktop.sweep.generator.connection import ConnectionPool
from sparktop.sweep.generator.exchange import Exchange, ReadyRequest, Recipe, RunLog
from sparktop.sweep.generator.prompts import PromptMaker
from sparktop.sweep.generator.wire import RunLoad
from sparktop.sweep.plan.conversations import Lane
from sparktop.sweep.plan.plan import Api
from sparktop.sweep.terms.request_errors import CONTEXT, connect_failure, request_failure

# Texts of conversations with a given number of tokens, and prompts that grow by the server's answers.


_LONGEST_SLICE = 20_000
"""Most tokens that are cut from the book at once: it is finite."""
_SHARED = "shared start"
"""Name of the text that all conversations begin with."""


class Texts:
    """The texts of all conversations of a run."""

    def __init__(self, maker: PromptMaker, api: Api, salt: str, shared_tokens: int) -> None:
        """Make texts by `maker` for a completion API; runs with another `salt` get other texts.

        All conversations begin with the same `shared_tokens` tokens.
        """
        self._maker = maker
        self.salt = salt
        self.api = api
        self.shared = _json_text(self.text(shared_tokens, _SHARED) + "\n\n" if shared_tokens else "")
        """The start that all conversations share, as the content of a JSON string."""

    def text(self, tokens: int, name: str) -> str:
        """Return a text of `tokens` tokens that is the same whenever it has the same `name`.

        It is so long as far as the tokens of its words are known.
        """
        keys = (f"{self.salt}/{name}/{number}" for number in count())
        return self._maker.text(tokens, _LONGEST_SLICE, keys, is_bare=True)[0]


class Dialogue:
    """The prompt of one user's or agent's conversation, as parts of a request's JSON body."""

    def __init__(self, texts: Texts, lane: Lane) -> None:
        """Create the dialogue of `lane`, without messages."""
        self.lane = lane
        self._texts = texts
        self.parts: list[bytes] = []
        """The encoded prompt; see `BodyForm.conversation`."""
        is_chat = texts.api is Api.CHAT
        self._user = b'{"role":"user","content":"' if is_chat else b""
        self._model = b'{"role":"assistant","content":"' if is_chat else b""
        self._end = b'"}' if is_chat else b"\\n\\n"
        self._comma = b"," if is_chat else b""

    def past(self) -> Turn | None:
        """Write the past of a conversation under way, with made-up answers; return its warm-up call.

        The warm-up call is the last one before the conversation goes on; it is not answered yet. Return None
        for a conversation without a past.
        """
        last: Turn | None = None
        for turn in self.lane.past():
            if last is not None:
                self.add_answer(self._texts.text(last.output_tokens, f"{_step_name(last)}/answer"))
            self.add_call(turn)
            last = turn
        return last

    def add_call(self, turn: Turn) -> None:
        """Append the new text of a call; begin anew for a new conversation and for a compacted context."""
        call = turn.place
        if call.turn and not call.compacted:
            text = self._texts.text(call.new_tokens, _step_name(turn))
            self.parts += (self._comma, self._user, _json_text(text), self._end)
            return
        text = self._texts.text(turn.prompt_tokens - self.lane.shared_tokens, _step_name(turn))
        self.parts = [self._user, self._texts.shared, _json_text(text), self._end]

    def add_answer(self, text: str) -> None:
        """Append the server's answer to the last call."""
        self.parts += (self._comma, self._model, _json_text(text), self._end)


def _step_name(turn: Turn) -> str:
    call = turn.place
    return f"{call.lane}.{call.conversation}.{call.turn}"


def _json_text(text: str) -> bytes:
    """Return `text` as the content of a JSON string."""
    return json.dumps(text)[1:-1].encode()


# The load generator's agents: each sends its next request a pause after the answer to the last.


_REFUSED_PAUSE_S = 0.5
"""Minimum seconds from a failed request to the next one of its lane."""
_LANES_A_TURN = 4
"""Lanes whose past is written before other tasks of the event loop run."""


class ConversationClient(LoadClient):
    """Executes a run of `concurrency` agents.

    Each request has a connection of its own: servers close connections that are idle for a pause.
    """

    def __init__(self, load: RunLoad, pool: ConnectionPool, recipe: Recipe, log: RunLog) -> None:
        """Create the run `load`, which has conversations; see `LoadClient`."""
        assert load.conversations is not None  # noqa: S101 - every run of agents has them
        self._preset = load.conversations
        super().__init__(load, pool, recipe, log)
        self._terms = replace(self._terms, keep_text=True)
        self._dialogues: list[Dialogue] = []
        self._past: dict[int, Turn] = {}
        """The warm-up call of each lane that has one, by the lane's number."""
        self._window = (0.0, 0.0)
        """(beginning, end) of the time in which requests that start are measured, in monotonic seconds."""
        self._measured = 0
        """Number of measured requests in flight."""

    def _requests_ahead(self) -> int:
        return 0

    async def prepare(self) -> None:
        """Write the past of all conversations, so that this is not part of the measurement."""
        load, preset = self._load, self._preset
        texts = Texts(self._maker, self._form.api, load.prompt_salt, preset.shared_tokens)
        for number in range(load.concurrency):
            dialogue = Dialogue(texts, Lane(preset, load.draw_seed, number, load.max_model_len))
            self._dialogues.append(dialogue)
            if (turn := dialogue.past()) is not None:
                self._past[number] = turn
            if number % _LANES_A_TURN == 0:
                await asyncio.sleep(0)
                if self.cancelled:
                    return
        await super().prepare()

    async def _send_before_run(self) -> None:
        await self._run_in_parallel(
            *(
                self._send_call(dialogue, self._past[dialogue.lane.number], is_answered=True)
                for dialogue in self._dialogues
                if dialogue.lane.number in self._past
            )
        )

    def _run_started_event(self, number: int) -> RunStarted:
        at = perf_counter()
        begin = at + (self._load.ramp_s or 0.0)
        self._window = (begin, begin + (self._load.duration_s or 0.0))
        return RunStarted(at, number, self._window)

    async def _execute(self) -> None:
        ramp_s, left_s = self._load.ramp_s or 0.0, self._window[1] - perf_counter()
        endings = [
            self._loop.call_later(left_s, self._end_run_if_done),
            self._loop.call_later(left_s + self._load.tail_s, self._end_run),
        ]
        lanes = len(self._dialogues)
        await self._run_in_parallel(
            *(
                self._run_agent(dialogue, ramp_s * dialogue.lane.number / lanes)
                for dialogue in self._dialogues
            )
        )
        for ending in endings:
            ending.cancel()

    async def _run_agent(self, dialogue: Dialogue, delay_s: float) -> None:
        """After `delay_s` seconds, send the calls of a lane one after the other until the run is to stop."""
        await self._pause(delay_s)
        while not self._stopping.is_set():
            turn = dialogue.lane.next_turn()
            dialogue.add_call(turn)
            ok = await self._send_call(dialogue, turn)
            await self._pause(dialogue.lane.pause_s if ok else max(_REFUSED_PAUSE_S, dialogue.lane.pause_s))

    async def _send_call(self, dialogue: Dialogue, turn: Turn, *, is_answered: bool = False) -> bool:
        """Send a call and wait for its answer, which becomes part of the conversation; return if it came.

        A call that fails ends its conversation. `is_answered` is True for a warm-up call, whose answer the
        lane has counted already.
        """
        lane = dialogue.lane
        end = await self._send_and_wait(dialogue, turn)
        if end is None or not end.ok:
            lane.give_up()
            return False
        prompt, generated = end.prompt_tokens, end.generated_tokens
        prompt = turn.prompt_tokens if prompt is None else prompt
        generated = turn.output_tokens if generated is None else generated
        if is_answered:
            lane.count_answer(prompt, generated)
        else:
            lane.record_answer(prompt, generated)
        return True

    async def _send_and_wait(self, dialogue: Dialogue, turn: Turn) -> RequestEnded | None:
        """Send a call; return its end, None where it could not be sent. Append the answer's text."""
        form, endpoint = self._form, self._pool.endpoint
        salt = self._request_salt(self._load.cache_salt)
        content = form.conversation(endpoint, dialogue.parts, turn.output_tokens, salt)
        if not turn.fits:
            limit = self._load.max_model_len
            words = f"the conversation does not fit: {turn.prompt_tokens} tokens, {limit} at most"
            self._record_unsent(self._request(turn, content), request_failure(CONTEXT, words, perf_counter()))
            return None
        try:
            connection = await self._pool.open()
        except OSError as error:
            failure = connect_failure(error, perf_counter(), where=self._terms.where)
            self._record_unsent(self._request(turn, content), failure)
            return None
        if self._stopping.is_set():
            connection.abort()
            return None
        request = self._request(turn, content)
        is_measured = request.call is not None and request.call.measured
        self._measured += is_measured
        exchange = await self._begin_exchange(request, connection)
        self._measured -= is_measured
        if exchange.stream.text is not None and exchange.end is not None and exchange.end.ok:
            dialogue.add_answer("".join(exchange.stream.text))
        if perf_counter() >= self._window[1] > 0:
            self._end_run_if_done()
        return exchange.end

    def _request(self, turn: Turn, content: bytes) -> ReadyRequest:
        begin, end = self._window
        call = replace(turn.place, measured=begin <= perf_counter() < end)
        self._made += 1
        name = f"{self._load.id}-{self._made}"
        return ReadyRequest(name, content, turn.prompt_tokens, turn.output_tokens, call=call)

    def _end_exchange(self, exchange: Exchange) -> None:
        exchange.connection.abort()
        super()._end_exchange(exchange)

    def _end_run_if_done(self) -> None:
        if not self._measured:
            self._end_run()

    def _end_run(self) -> None:
        self._stopping.set()
        self._abort_active()
