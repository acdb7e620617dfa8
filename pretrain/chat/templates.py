"""How a conversation is spelled as text: a template is a TOML file that says what stands around each turn.

    [user]                     # of [system], [user] and [assistant] alike; what is left out is empty
    prefix = "问："
    suffix = "\\n"

A text of the conversation 你好 / 你好！ / 再见 / 再见！ under `dialogue`, `[...]` around what a model is trained to say:

    问：你好
    答：[你好！]
    问：再见
    答：[再见！<eod>]

What a model says ends with the end-of-document token. The suffix of an answer stands before the next question alone,
and belongs to it: after an answer a model ends, and does not go on to ask itself.

Each part, what is given and what is said, is encoded for itself: at use a prompt is encoded before there is an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from corpus.engine.config import Strict, load_toml, parse
from corpus.engine.errors import UsageError
from pretrain.chat.conversations import Message

TEMPLATES = Path(__file__).with_name("templates")
TEMPLATE = "template.toml"  # in the folder of a run that was fine-tuned


class Part(NamedTuple):
    """Text that is encoded for itself."""

    text: str
    is_answer: bool


class Marks(Strict):
    """What stands around the turns of one role."""

    prefix: str = ""
    suffix: str = ""


class Template(Strict):
    """How turns become text."""

    description: str = ""
    system: Marks = Marks()
    user: Marks = Marks()
    assistant: Marks = Marks()
    input_prefix: str = "\n"  # before the input of an instruction that has one


def parts(template: Template, messages: Sequence[Message]) -> list[Part]:
    """A conversation as what is given and what is answered, in turns; the last is open if no answer stands last.

    >>> marks = Template(user=Marks(prefix="Q: ", suffix=" "), assistant=Marks(prefix="A: ", suffix=" "))
    >>> turns = [Message("user", "2+2"), Message("assistant", "4"), Message("user", "3+3")]
    >>> [part.text for part in parts(marks, turns)]
    ['Q: 2+2 A: ', '4', ' Q: 3+3 A: ']
    """
    found: list[Part] = []
    given = ""
    for message in messages:
        if message.role == "assistant":
            found += [Part(given + template.assistant.prefix, False), Part(message.content, True)]
            given = template.assistant.suffix
        else:
            marks = template.system if message.role == "system" else template.user
            content = message.content + (template.input_prefix + message.input if message.input else "")
            given += f"{marks.prefix}{content}{marks.suffix}"
    if messages and messages[-1].role != "assistant":
        found.append(Part(given + template.assistant.prefix, False))
    return found


def render(template: Template, messages: Sequence[Message]) -> str:
    """The text that a model is given to answer the last of some messages.

    >>> render(load_template("dialogue"), [Message("user", "你好")])
    '问：你好\\n答：'
    """
    return "".join(part.text for part in parts(template, messages))


def named_templates() -> list[str]:
    """The names of the templates that come with the package."""
    return sorted(path.stem for path in TEMPLATES.glob("*.toml"))


def load_template(name_or_path: str | Path) -> Template:
    """A template that comes with the package, by name, or one's own TOML file.

    Raises:
        UsageError: there is no such file, or it has errors; all of them are listed.
    """
    name = str(name_or_path)
    if name in named_templates():
        return parse(Template, load_toml(TEMPLATES / f"{name}.toml"), f"template {name}")
    if not Path(name).is_file():
        raise UsageError(f"--template {name}: no such file, and none of {', '.join(named_templates())}.")
    return parse(Template, load_toml(Path(name)), name)


def template_beside(checkpoint: Path) -> Path | None:
    """The template that the run of a checkpoint was fine-tuned with: `template.toml` in the run's folder."""
    path = checkpoint.resolve().parent.parent / TEMPLATE
    return path if path.is_file() else None


def template_of(checkpoint: Path) -> Template:
    """The template that the run of a checkpoint was fine-tuned with.

    Raises:
        UsageError: it was not, or its folder is not here.
    """
    path = template_beside(checkpoint)
    if path is None:
        raise UsageError(
            f"{checkpoint}: has no {TEMPLATE} two folders above. Name a template, as in --template dialogue."
        )
    return load_template(path)
