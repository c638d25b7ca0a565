"""Built-in prompts of four kinds of text, which differ in how many speculative drafts are accepted.

Each asks for an answer of its kind: to write code again with a change, to go on with a story, to extend a
table, to call a tool. A random number begins each prompt, and names and numbers are drawn: no two are alike,
so that the server's prefix cache answers none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from random import Random
from types import MappingProxyType

_LETTERS_PER_TOKEN = 4
"""A guess: the servers count the true number of tokens."""
_NAMES = (
    *("anchor", "basket", "candle", "drum", "engine", "feather", "garden", "hammer", "island", "jacket"),
    *("kettle", "ladder", "magnet", "needle", "orchard", "pillow", "quarry", "ribbon", "saddle", "timber"),
)
"""Words of which names in all kinds of text are made; the next four are of the prose."""
_PEOPLE = ("Ada", "Bruno", "Clara", "David", "Edith", "Felix", "Greta", "Hugo", "Irene", "Jonas", "Karla")
_PLACES = ("harbour", "mill", "old bridge", "market square", "lighthouse", "railway yard", "upper meadow")
_DEEDS = ("carried the letter past", "waited for the rain to end near", "found a lantern by", "drew a map of")
_MOODS = ("and nobody asked why", "as if the winter had not happened", "because the boat would not wait")


def _code(random: Random) -> str:
    """Return a function in Python with drawn names and numbers."""
    name, field, threshold = random.choice(_NAMES), random.choice(_NAMES), random.randrange(1, 900)
    return f'''
def total_{name}_{field}(rows: list[dict[str, float]], least: float = {threshold}.0) -> float:
    """Return the sum of the {field} of all rows of the {name} that are at least `least`."""
    total = 0.0
    for row in rows:
        value = row.get("{field}_{name}")
        if value is not None and value >= least:
            total += value * {random.randrange(2, 60)}
    return total

'''


def _prose(random: Random) -> str:
    """Return a sentence of a story."""
    person, location = random.choice(_PEOPLE), random.choice(_PLACES)
    deed, mood = random.choice(_DEEDS), random.choice(_MOODS)
    return f"In {random.randrange(1790, 1930)} {person} {deed} the {location}, {mood}. "


def _table(random: Random) -> str:
    """Return a row of a table."""
    numbers = ",".join(f"{random.randrange(100, 99_999) / 100:.2f}" for _ in range(3))
    return f"{random.choice(_NAMES)}-{random.randrange(1000)},{random.choice(_PEOPLE)},{numbers}\n"


def _agent(random: Random) -> str:
    """Return a call of a tool and its result."""
    name, module = random.choice(_NAMES), random.choice(_NAMES)
    line = random.randrange(1, 2000)
    return (
        f'{{"tool": "read_file", "arguments": {{"path": "src/{name}/{module}.py", "from_line": {line}}}}}\n'
        f'{{"result": {{"status": "ok", "found": "{module}_{name} = {random.randrange(10_000)}"}}}}\n'
    )


_MAKERS: Mapping[str, tuple[str, Callable[[Random], str], str]] = MappingProxyType(
    {
        "code": (
            "This is a Python module.\n",
            _code,
            "\nWrite the whole module again, with a check that `least` is not negative in each function.",
        ),
        "prose": (
            "This is the beginning of a story.\n",
            _prose,
            "\n\nGo on with the story in the same voice, in at least 500 words.",
        ),
        "table": (
            "name,owner,first,second,third\n",
            _table,
            "\nWrite this table as Markdown, with a further column for the sum of each row.",
        ),
        "agent": (
            "These are the calls of an agent and their results, one JSON object a line.\n",
            _agent,
            "\nRead the lines after those of each file above: answer with one call a line, as JSON.",
        ),
    }
)
"""By kind of text: the line before the material, the maker of a piece of it, and what is asked."""
TEXTS = tuple(_MAKERS)
"""The kinds of text."""


def text_at(kind: str, tokens: int, number: int, salt: str) -> tuple[str, None]:
    """Return (a prompt of a kind of text, None for its unknown length); `number` and `salt` determine it.

    It has about `tokens` tokens, as a guess of four letters each: the servers count the true number.
    """
    random = Random(f"{salt}/{number}")  # noqa: S311 - a load, no secret
    opening, make, question = _MAKERS[kind]
    paragraphs = [f"[{random.randrange(10**9):09}] {opening}"]
    room = tokens * _LETTERS_PER_TOKEN - len(paragraphs[0]) - len(question)
    while room > 0 or len(paragraphs) == 1:
        paragraphs.append(make(random))
        room -= len(paragraphs[-1])
    return "".join((*paragraphs, question)), None


def texts_digest() -> str:
    """Return the SHA-256 of a prompt of each kind: equal ones are made of the same material."""
    return sha256("".join(text_at(kind, 1000, 0, "")[0] for kind in TEXTS).encode()).hexdigest()
