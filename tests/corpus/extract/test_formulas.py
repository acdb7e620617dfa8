"""Formulas: TeX once, whoever rendered it; nothing else of the page changes; hostile markup costs linear time."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import pytest

from corpus.extract.formulas import MAX_MATHML_BYTES, with_tex
from corpus.extract.mathml import to_tex
from tests.linear import assert_linear

MATHML = "<math><semantics><mrow><msup><mi>x</mi><mn>2</mn></msup></mrow>%s</semantics></math>"
SOURCE = MATHML % '<annotation encoding="application/x-tex">x^2</annotation>'
PREVIEW = '<span class="MathJax_Preview" style="color: inherit;"></span>'
GLYPHS = (
    '<span class="MathJax" id="MathJax-Element-1-Frame" data-mathml="%s"><nobr aria-hidden="true"><span '
    'class="math">x2</span></nobr></span>'
)
KATEX = (
    '<span class="katex"><span class="katex-mathml">%s</span><span class="katex-html" '
    'aria-hidden="true"><span>x</span>2</span></span>'
)
CSDN = KATEX.replace(' aria-hidden="true"', "")
ZHIHU = "https://www.zhihu.com/equation?tex="

ONCE = {
    "a script of MathJax": r'<script type="math/tex">x^2</script>',
    "a script of kramdown": '<script type="math/tex">% <![CDATA[\nx^2 %]]></script>',
    "MathML in a script": f'<script type="math/mml">{MATHML % ""}</script>',
    "MathJax 2": PREVIEW + GLYPHS % "" + '<script type="math/tex" id="MathJax-Element-1">x^2</script>',
    "MathJax 2 without its script": PREVIEW + GLYPHS % html.escape(MATHML % ""),
    "MathJax 2 as a browser saves it": PREVIEW + GLYPHS % (MATHML % "").replace('"', "&quot;"),
    "MathJax 3": f'<mjx-container class="MathJax" jax="SVG"><svg><path '
    f'd="M1"></path></svg><mjx-assistive-mml>{MATHML % ""}</mjx-assistive-mml></mjx-container>',
    "KaTeX": KATEX % SOURCE,
    "KaTeX in CSDN": CSDN
    % "\n    \n     \n       x\n      \n      \n       2\n      \n      \n       x^2\n      \n     ",
    "KaTeX in CSDN, packed": CSDN % "x2x^2",
    "MathML with a source": SOURCE,
    "MathML with a text": MATHML.replace("<math", '<math alttext="{\\displaystyle x^2}"') % "",
    "MathML of its own": MATHML % "",
    "MathML with a prefix": re.sub(r"<(/?)", r"<\1mml:", MATHML % ""),
    "Wikipedia": f'<span class="mwe-math-element"><span class="mwe-math-mathml-a11y" style="display: '
    f'none;">{SOURCE}</span><img class="mwe-math-fallback-image-inline" aria-hidden="true" '
    f'alt="x^2"></span>',
    "Wikipedia's image": '<span class="mwe-math-element"><img src="//x" class="mwe-math-fallback-image-inline" '
    'alt="{\\displaystyle x^2}"></span>',
    "an image of 知乎": '<img src="/equation?tex=x%5E2" alt="x^2" eeimg="1">',
    "a lazy image of 知乎": f'<img src="data:image/svg" data-actualsrc="{ZHIHU}x%5E2" alt="[公式]" eeimg="1">',
    "a formula of 知乎": f'<span class="ztext-math" data-eeimg="1" data-tex="x^2"><span '
    f'class="math-holder">x^2</span>{PREVIEW}<span class="MathJax_SVG"><svg></svg></span></span>',
    "CSDN's image": '<img alt="x^2" class="mathcode" src="https://private.codecogs.com/gif.latex?x%5E2">',
    "an image of "
    "codecogs": r'<img src="https://latex.codecogs.com/gif.latex?\dpi{120}&space;\large&space;x^2" title="x^2" />',
    "简书": '<img class="math-inline" alt="x^2" src="https://math.jianshu.com/math?formula=x%5E2" mathimg="1">',
    "upmath": '<img src="https://i.upmath.me/svg/x%5E2">',
    "WordPress": '<img src="https://s0.wp.com/latex.php?latex=x%5E2&bg=ffffff&fg=000&s=0" alt="x^2" class="latex">',
}


def tex(page: str) -> str:
    return with_tex(page.encode()).decode()


@pytest.mark.parametrize("name", ONCE)
def test_a_formula_stands_once_as_tex(name: str) -> None:
    assert re.sub("</?span[^>]*>", "", tex(f"<p>因为{ONCE[name]}，所以。</p>")) == "<p>因为$x^2$，所以。</p>"


@pytest.mark.parametrize(
    "markup",
    [
        '<script type="math/tex; mode=display">a&b<c</script>',
        PREVIEW + '<div class="MathJax_Display"><span class="MathJax">ab</span></div><script type="math/tex; '
        'mode=display">a&b<c</script>',
        '<mjx-container class="MathJax" display="true"><math alttext="a&amp;b&lt;c"></math></mjx-container>',
        '<math display="block" alttext="a&amp;b&lt;c"><mi>a</mi></math>',
        f'<span class="katex-display">'
        f"{KATEX % (MATHML % '<annotation encoding=application/x-tex>a&amp;b&lt;c</annotation>')}</span>",
        f'<img eeimg="2" src="{ZHIHU}a%26b%3Cc" alt="a&amp;b&lt;c">',
        f'<img eeimg="1" src="{ZHIHU}a%26b%3Cc\\\\" alt="">',
        '<span class="ztext-math" data-eeimg="2" data-tex="a&amp;b&lt;c">a</span>',
        '<span class="ztext-math" data-eeimg="1" data-tex="\\[ a&amp;b&lt;c \\]">a</span>',
        '<img class="math-block" alt="a&amp;b&lt;c" src="x.svg">',
    ],
)
def test_what_is_declared_as_display_gets_two_dollars_and_text_is_escaped(markup: str) -> None:
    assert tex(f"甲{markup}乙") == "甲$$a&amp;b&lt;c$$乙"


@pytest.mark.parametrize(
    "page",
    [
        r"<p>已有 \(x\)、$$y$$ 和 \[z\] 的文字 math latex katex。</p>",
        "<p><math><mi>x</mi> 没有结束</p><p>下一段</math></p>",
        "<p>没有结束<math><mi>x</mi>",
        f"<p>{KATEX[:-14]}，没有结束</p><p>下一段</span></span></p>",
        f"<div><p>甲{PREVIEW[:-7]}乙</p></div><span>丙</span>",
        '<div>甲<span class="katex-mathml katex">乙</div>丙<span></span></span>',
        "<!-- <math> --> 文字 <b>x</b> </math>",
        "<script>var a = '<math><mi>x</mi></math>';</script>",
        '<img class="equation" alt="图1 结构" src="1.png"><img class="latex" alt="latex.png"><img alt="x^2" '
        'src="/math.png">',
        '<span class="katex"><span class="katex-html" aria-hidden="true">x2</span></span>',
        '<span class="katex-note">普通的 katex 文字</span>',
        '<script type="math/tex">',
        f'<script type="math/tex">{"x" * 20_000}</script>',
        '<img alt="x^2 eeimg="1>没有结束的引号',
    ],
)
def test_what_is_no_formula_or_has_no_end_stays(page: str) -> None:
    assert tex(page) == page


def test_a_broken_formula_costs_no_other_one_in_another_paragraph() -> None:
    page = f"<p>甲<math><mi>x</mi></p><p>乙{MATHML % ''}</p><p>丙<span class=katex>丁</p><p>{KATEX % SOURCE}</p>"
    assert re.sub(r"<[^>]*>", "", tex(page)) == "甲x乙$x^2$丙丁$x^2$"


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("<mfrac><mi>a</mi><mrow><mi>b</mi><mo>+</mo><mn>1</mn></mrow></mfrac>", r"\frac{a}{b+1}"),
        ("<mfrac linethickness='0'><mi>n</mi><mi>k</mi></mfrac>", r"{n \atop k}"),
        ("<msqrt><mi>x</mi><mo>−</mo><mn>1</mn></msqrt><mroot><mi>x</mi><mn>3</mn></mroot>", r"\sqrt{x-1}\sqrt[3]{x}"),
        ("<msubsup><mi>a</mi><mi>i</mi><mn>10</mn></msubsup><msup><mi>f</mi><mo>′</mo></msup>", "a_i^{10}f'"),
        ("<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover>", r"\sum_{i=1}^n"),
        ("<munder><mi>lim</mi><mrow><mi>x</mi><mo>→</mo><mn>0</mn></mrow></munder>", r"\lim_{x\to 0}"),
        ("<mover><mi>q</mi><mo>˙</mo></mover><munder><mi>q</mi><mo>*</mo></munder>", r"\dot{q}\underset{*}{q}"),
        ("<mfenced open='[' separators=';'><mi>a</mi><mi>b</mi></mfenced>", "[a;b)"),
        (
            "<mtable><mtr><mtd>1</mtd><mtd>2</mtd></mtr><mtr><mtd>3</mtd></mtr></mtable>",
            r"\begin{matrix} 1 & 2 \\ 3 \end{matrix}",
        ),
        ("<mi>sin</mi><mi>x</mi><mi>&#x03C0;<!-- π --></mi><mi>r</mi><mi>argh</mi>", r"\sin x\pi r\mathrm{argh}"),
        (
            "<mi mathvariant='double-struck'>R</mi><mo>{</mo><mtext>若 </mtext><mspace/><mo>&#x2061;</mo>",
            r"\mathbb{R}\{\text{若}",
        ),
        ("<apply><ci>q</ci></apply><mstyle><mi>a</mi></x></mi></mstyle></a/>", "qa"),
        ("<msup><mi>a</mi></msup><mo/><msup><mrow/><mn>2</mn></msup>", "a{}^2"),
    ],
)
def test_mathml_becomes_tex(markup: str, expected: str) -> None:
    assert to_tex(markup) == expected


def test_mathml_beyond_the_caps_becomes_its_text() -> None:
    deep = "<mrow>" * 200 + "<mi>x</mi>" + "</mrow>" * 200
    assert tex(f"甲<math>{deep}</math>乙").replace(" ", "") == "甲x乙"
    long = "<mi>x</mi>" * (MAX_MATHML_BYTES // 9)
    assert tex(f"甲<math>{long}</math>乙").split() == ["甲", *"x" * (MAX_MATHML_BYTES // 9), "乙"]


HOSTILE: dict[str, Callable[[int], str]] = {
    "no mark": lambda n: "文字<p>" * n * 10,
    "formulas": lambda n: (MATHML % "") * n,
    "unclosed math": lambda n: "<math>" * n,
    "unclosed math, one end": lambda n: "<math>" * n + "</math>",
    "a bomb": lambda n: "<math>" + "<mrow>" * n + "x" + "</mrow>" * n + "</math>",
    "wide": lambda n: "<math>" + "<mi>x</mi>" * n + "</math>",
    "many bombs": lambda n: ("<math>" + "<msup>" * 60 + "x" + "</msup>" * 60 + "</math>") * (n // 60),
    "unclosed comments in math": lambda n: ("<math>" + "<!-- " * 1000 + "</math>") * (n // 1000),
    "unclosed annotations": lambda n: "<math>" + "<annotation encoding=image/tex>&lt;" * n + "</math>",
    "open quotes in math": lambda n: "<math>" + "<mi a=\"'<mo b='" * n + "></math>",
    "unclosed spans": lambda n: "<span class=katex>" * n,
    "unclosed spans, then a block": lambda n: "<span class=katex>" * n + "<p>",
    "nested spans": lambda n: "<span class=katex>" * n + "</span>" * n,
    "mixed ends": lambda n: "<span class=MathJax><div class=MathJax></span></div>" * n,
    "previews": lambda n: '<span class="MathJax"></span>   ' * n,
    "spans that hold no mark": lambda n: "<math></math>" + "<span a='>'" * n,
    "tags without end": lambda n: "math" + "<img alt='>' " * n,
    "tags without names": lambda n: "math<img " + "a" * n + " b='x' " * n + ">",
    "open quotes": lambda n: "<img eeimg='\"" * n,
    "comments": lambda n: "math" + "<!-- <math>" * n,
    "unclosed scripts": lambda n: "<script type=math/tex>" * n,
    "scripts": lambda n: "<script type=math/tex>x</script>" * n,
    "braces": lambda n: "<img eeimg=1 alt='" + "{" * n + "}" * n + "'>" + "<img eeimg=1 alt='{{{{{x}}}}}'>" * n,
    "data-mathml in itself": lambda n: "<span class=MathJax data-mathml='" + " data-mathml=&quot;" * n + "'></span>",
    "CSDN": lambda n: '<span class=katex><span class="katex-mathml">' + "\n \n" * n + "</span></span>",
    "addresses": lambda n: "<img src='/chart?" + "/chart?chl" * n + "'>",
    "TeX": lambda n: "<img eeimg=1 alt='" + "\\[$$" * n + "'>" + "<script type=math/tex>" + "\\\\%\n" * n + "</script>",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_time_grows_linearly(name: str) -> None:
    assert_linear(with_tex, lambda n: HOSTILE[name](n).encode(), 40_000)
