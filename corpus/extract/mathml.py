"""Presentation MathML as TeX, for formulas whose source no page kept: one pass with a bounded stack.

Tokens, fractions, roots, scripts, limits, accents, fences and tables become TeX; of anything else the text stays.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

MAX_DEPTH = 64

_NODE = re.compile(
    r"""<!--(?:[^-]|-(?!->))*+(?:-->|$)|<(/?)(?:\w{1,9}:)?([\w-]{1,20})((?:[^<>"']|"[^"<]*"|'[^'<]*')*+)>|([^<]+|<)"""
)


def _pairs(words: str) -> dict[str, str]:
    return dict(zip(words.split()[::2], words.split()[1::2], strict=True))


_SYMBOLS = _pairs(
    r"α \alpha β \beta γ \gamma δ \delta ε \varepsilon ϵ \epsilon ζ \zeta η \eta θ \theta κ \kappa λ \lambda μ \mu"
    r" ν \nu ξ \xi π \pi ρ \rho σ \sigma τ \tau φ \varphi ϕ \phi χ \chi ψ \psi ω \omega Γ \Gamma Δ \Delta Θ \Theta"
    r" Λ \Lambda Π \Pi Σ \Sigma Φ \Phi Ψ \Psi Ω \Omega × \times ⋅ \cdot · \cdot ÷ \div ± \pm ≤ \leq ≥ \geq"
    r" ⩽ \leqslant ⩾ \geqslant ≠ \neq ≈ \approx ≡ \equiv ∼ \sim ∝ \propto ≪ \ll ≫ \gg ∞ \infty ∑ \sum ∏ \prod"
    r" ∫ \int ∬ \iint ∮ \oint ∂ \partial ∇ \nabla ∈ \in ∉ \notin ⊂ \subset ⊆ \subseteq ∪ \cup ∩ \cap ∅ \emptyset"
    r" ∀ \forall ∃ \exists ¬ \neg ∧ \wedge ∨ \vee → \to ← \leftarrow ⇒ \Rightarrow ⇔ \Leftrightarrow … \ldots"
    r" ⋯ \cdots ⋮ \vdots ⋱ \ddots ∘ \circ ⊕ \oplus ⊗ \otimes ⟨ \langle ⟩ \rangle ‖ \Vert ∥ \parallel ⊥ \perp"
    r" ∠ \angle ℓ \ell \ \backslash − - ′ ' ″ ''"
)
_SYMBOLS |= (
    {sign: "\\" + sign for sign in "{}%#&$_"} | dict.fromkeys("\u2061\u2062\u2063\u2064\u200b", "") | {"\xa0": " "}
)
_FUNCTIONS = set("sin cos tan cot sec csc arcsin arccos arctan log ln lg exp lim max min sup inf det dim ker".split())
_LIMITS = set(r"\sum \prod \int \iint \oint \lim \max \min \sup \inf \det \cup \cap".split())
_FONTS = _pairs(r"double-struck \mathbb bold \mathbf script \mathcal fraktur \mathfrak")
_ACCENTS = _pairs(
    r"\to \vec ⃗ \vec ¯ \overline ‾ \overline ^ \hat ˆ \hat ~ \tilde ˜ \tilde ˙ \dot ¨ \ddot ⏞ \overbrace ⏟ \underbrace"
)
_FORMS = _pairs(  # children by number; in round brackets: in braces unless it is one sign
    r"mfrac \frac{0}{1} mroot \sqrt[1]{0} msub (0)_(1) msup (0)^(1) msubsup (0)_(1)^(2)"
    r" munder \underset{1}{0} mover \overset{1}{0} munderover \underset{1}{\overset{2}{0}}"
)


def to_tex(markup: str) -> str | None:
    r"""TeX of what stands in a math element; None if it is nested deeper than MAX_DEPTH.

    >>> to_tex("<mfrac><mrow><mi>π</mi><mo>+</mo><mi>k</mi></mrow><msup><mi>x</mi><mn>2</mn></msup></mfrac>")
    '\\frac{\\pi+k}{x^2}'
    """
    stack: list[tuple[str, str, list[str]]] = [("", "", [])]
    for is_end, name, attributes, text in _NODE.findall(markup):
        if text.strip():
            stack[-1][2].append(html.unescape(text))
        elif name and not is_end:
            stack.append((name, attributes, []))
        if any(open_name == name for open_name, _, _ in stack[1:]) if is_end else attributes.endswith("/"):
            while _close(stack) != name:
                pass
        if len(stack) > MAX_DEPTH:
            return None
    while len(stack) > 1:
        _close(stack)
    return _joined(stack[0][2])


def _close(stack: list[tuple[str, str, list[str]]]) -> str:
    name, attributes, parts = stack.pop()
    stack[-1][2].append(_node(name, attributes, parts))
    return name


def _node(name: str, attributes: str, parts: list[str]) -> str:
    """TeX of an element with the TeX of its children."""
    text = "".join(parts).strip()
    if name in ("mi", "mn", "mo"):
        if len(text) > 1 and text.isascii() and text.isalpha():
            return ("\\" + text) if text in _FUNCTIONS else "\\mathrm{" + text + "}"
        font = re.search(r"""mathvariant\s*=\s*["']([\w-]+)""", attributes)
        tex = _joined(_SYMBOLS.get(sign, sign) for sign in text)
        return _FONTS[font[1]] + "{" + tex + "}" if font and font[1] in _FONTS and tex else tex
    if name in ("mtext", "ms"):
        return "\\text{" + text + "}" if text else " "
    if name in ("annotation", "annotation-xml", "mphantom", "none", "mprescripts"):
        return ""
    if name in _FORMS and len(parts) == len(set(re.findall("[012]", _FORMS[name]))):
        return _filled(name, attributes, parts)
    if name == "msqrt":
        return "\\sqrt{" + _joined(parts) + "}"
    if name == "mfenced":
        given: dict[str, str] = dict(
            re.findall(r"""(open|close|separators)\s*=\s*["']([^"']*)["']""", html.unescape(attributes))
        )
        first, last = (_SYMBOLS.get(sign, sign) for sign in (given.get("open", "("), given.get("close", ")")))
        return first + given.get("separators", ",")[:1].join(parts) + last
    if name == "mtr":
        return " & ".join(parts)
    if name == "mtable":
        return "\\begin{matrix} " + " \\\\ ".join(parts) + " \\end{matrix}"
    return _joined(parts[:1] if name == "semantics" else parts)


def _filled(name: str, attributes: str, parts: list[str]) -> str:
    form = _FORMS[name]
    if parts[0] in _LIMITS:
        form = {"munder": _FORMS["msub"], "mover": _FORMS["msup"], "munderover": _FORMS["msubsup"]}.get(name, form)
    elif name in ("mover", "munder") and parts[1] in _ACCENTS:
        form = _ACCENTS[parts[1]] + "{0}"
    elif name == "msup" and parts[1] in ("'", "''"):
        form = "(0)1"
    elif name == "mfrac" and re.search(r"""linethickness\s*=\s*["']?0""", attributes):
        form = "{0 \\atop 1}"  # of a binomial
    groups = [part if re.fullmatch(r"\\[A-Za-z]+|.", part, re.DOTALL) else "{" + part + "}" for part in parts]
    return re.sub(r"\((\d)\)|\d", lambda place: groups[int(place[1])] if place[1] else parts[int(place[0])], form)


def _joined(parts: Iterable[str]) -> str:
    """Parts side by side; a command and a letter behind it are kept apart."""
    out: list[str] = []
    for part in filter(None, parts):
        is_word = part[0].isascii() and part[0].isalnum()
        out += [" ", part] if is_word and out and re.search(r"\\[A-Za-z]+$", out[-1][-20:]) else [part]
    return "".join(out)
