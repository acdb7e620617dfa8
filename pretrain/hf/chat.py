"""A fine-tuned model's template in the words of transformers: Jinja that servers write a conversation with.

What it writes is what `pretrain.chat.templates.render` writes, and training read: the marks around each turn. A server
encodes the whole of it at once; in training each part was encoded for itself, so a token may cross from a mark into a
text where the two would be one piece.
"""

from __future__ import annotations

import json
import re

from pretrain.chat.templates import Template

CHAT = """{%- for message in messages -%}
{%- if loop.first -%}{{- START -}}{%- endif -%}
{%- if message['role'] == 'assistant' -%}
{{- ASSISTANT_PREFIX + message['content'] -}}
{%- if not loop.last -%}{{- ASSISTANT_SUFFIX -}}{%- endif -%}
{%- elif message['role'] == 'system' -%}
{{- SYSTEM_PREFIX + message['content'] + SYSTEM_SUFFIX -}}
{%- else -%}
{{- USER_PREFIX + message['content'] + USER_SUFFIX -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- ASSISTANT_PREFIX -}}{%- endif -%}
"""


def jinja(template: Template, *, begins_with_symbol: bool) -> str:
    """The chat template of a template.

    Args:
        begins_with_symbol: Whether the end-of-document symbol stands before a conversation.
    """
    words = {"START": "bos_token" if begins_with_symbol else "''"}
    for role in ("system", "user", "assistant"):
        for place in ("prefix", "suffix"):
            text = getattr(getattr(template, role), place)
            words[f"{role}_{place}".upper()] = json.dumps(text, ensure_ascii=False)
    return re.sub("|".join(words), lambda found: words[found[0]], CHAT)  # in one go: a mark may spell one of the names
