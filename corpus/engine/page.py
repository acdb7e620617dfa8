"""The frame of every page that this project writes: one file that opens from disk without a single request.

Pages show the text of strangers, so a page may do little: its content-security policy allows its own style sheet, and
one script where it has one, by their hashes, and no image, font, frame, form or connection at all. What is put in is
escaped by the caller.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from html import escape


def document(title: str, style: str, main: Iterable[str], after: Iterable[str] = (), script: str | None = None) -> str:
    """The page: `main` is HTML, `after` follows it in the body. `script` is what a <script> of theirs may hold,
    whole."""
    scripts = "" if script is None else f"script-src 'sha256-{_hash(script)}'; "
    policy = f"default-src 'none'; style-src 'sha256-{_hash(style)}'; {scripts}base-uri 'none'; form-action 'none'"
    return "".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
            '<meta name="referrer" content="no-referrer">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n",
            *main,
            "</main>\n",
            *after,
            "</body>\n</html>\n",
        ]
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
