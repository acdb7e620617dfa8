"""What people have examples in, recognised line by line, as one thing: a conversation.

| of | a line |
|---|---|
| prompts and completions | `{"prompt": "...", "completion": "..."}`; `answer` or `response` instead of `completion` |
| Alpaca | `{"instruction": "...", "input": "...", "output": "..."}`; `input` may be empty or absent |
| OpenAI | `{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}` |
| ShareGPT | `{"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}` |

`system` may stand beside any of them, a text that comes first. Other keys are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

Role = Literal["system", "user", "assistant"]

SHOWN_CHARACTERS = 100
ANSWERS = ("completion", "answer", "response")
ROLES: Mapping[str, Role] = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
}


class Message(NamedTuple):
    """One turn of a conversation."""

    role: Role
    content: str
    input: str = ""  # Alpaca's: what the instruction is about


class NotAnExample(ValueError):
    """What is wrong with a line, as the end of a sentence that names it."""


def conversation_of(line: Any) -> tuple[Message, ...]:
    """The conversation that a line's JSON value spells.

    Raises:
        NotAnExample: it is of no format we know, or lacks what a model can learn from.
    """
    if not isinstance(line, dict):
        raise NotAnExample("is no JSON object")
    messages: list[Message] = []
    if line.get("system"):
        messages.append(Message("system", _text(line, "system")))
    if "messages" in line:
        messages += _turns(line["messages"], "messages", "role", "content")
    elif "conversations" in line:
        messages += _turns(line["conversations"], "conversations", "from", "value")
    elif "instruction" in line and "output" in line:
        about = _text(line, "input") if line.get("input") else ""
        messages.append(Message("user", _text(line, "instruction"), about))
        messages.append(Message("assistant", _text(line, "output")))
    elif "prompt" in line and (named := [key for key in ANSWERS if key in line]):
        if len(named) > 1:
            raise NotAnExample(f"has {' and '.join(named)}, and one of them is the answer")
        messages += [Message("user", _text(line, "prompt")), Message("assistant", _text(line, named[0]))]
    else:
        known = "prompt and completion, instruction and output, messages, or conversations"
        raise NotAnExample(f"has the keys {_shown(', '.join(sorted(line)) or '(none)')}, and an example has {known}")
    return validate_conversation(messages)


def validate_conversation(messages: Sequence[Message]) -> tuple[Message, ...]:
    """A conversation that can be trained on: a system text first if at all, an answer behind every prompt, none empty.

    Raises:
        NotAnExample: it is not one.
    """
    turns = messages[1:] if messages and messages[0].role == "system" else messages
    if any(message.role == "system" for message in turns):
        raise NotAnExample("has a system text that is not its first turn")
    if (
        not turns
        or len(turns) % 2
        or any(message.role != ("user", "assistant")[place % 2] for place, message in enumerate(turns))
    ):
        raise NotAnExample(
            f"has turns of {_shown(', '.join(message.role for message in messages) or 'nobody')}, and user and "
            "assistant take turns, "
            "the assistant last"
        )
    for number, message in enumerate(messages, start=1):
        if not (message.content or message.input):
            raise NotAnExample(f"has nothing in turn {number}, of the {message.role}")
    return tuple(messages)


def _turns(values: Any, key: str, role_key: str, text_key: str) -> list[Message]:
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise NotAnExample(f"{key} is no list of objects")
    found = []
    for number, value in enumerate(values, start=1):
        role = ROLES.get(str(value.get(role_key)))
        if role is None:
            known = ", ".join(ROLES)
            found_role = _shown(repr(value.get(role_key)))
            raise NotAnExample(f"{key}, turn {number}: {role_key} is {found_role}, and it is one of {known}")
        found.append(Message(role, _text(value, text_key)))
    return found


def _shown(text: str) -> str:
    """So much of a line as a message may hold, in characters that can be printed."""
    text = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
    return text.encode("utf-8", "backslashreplace").decode()


def _text(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    if not isinstance(value, str):
        raise NotAnExample(f"{key} is {'not there' if value is None else 'no text'}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotAnExample(f"{key} holds half a character (a lone surrogate)") from None
    return value
