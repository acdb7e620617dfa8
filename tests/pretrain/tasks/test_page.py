"""The page of results: whole without a request, every text escaped, and nothing in it that is not in the results."""

from __future__ import annotations

from pretrain.tasks.page import MOST_CLASSES, render
from pretrain.tasks.statistics import difference
from pretrain.tasks.table import published
from tests.html_page import Page
from tests.pretrain.tasks.made_up import results_of, task_result


def test_the_page_needs_nothing_else_and_escapes_what_it_shows() -> None:
    hostile = task_result("<b>x</b>", labels=("<script>", '"&'), diagonal=(0, 0, 1, 1))
    results = results_of(hostile, task_result("ocnli"), calibration="diagonal")
    html = render(results, published(), {"<b>x</b>": difference([True] * 4, [True, True, True, False])})
    page = Page(html)
    tags = [tag for tag, _ in page.tags]
    assert "script" not in tags and "link" not in tags and "b" in tags  # the cards' own
    assert all("style" not in attrs and "src" not in attrs and "href" not in attrs for _, attrs in page.tags)
    assert "&lt;script&gt;" in html and "+25.0" in page.text
    assert tags.count("circle") == len(published().row)  # of the task that is asked whole, and published


def test_of_many_classes_the_most_answered_are_drawn() -> None:
    labels = tuple(f"类{number}" for number in range(40))
    answers = tuple(range(20, 40)) + (39,) * 4
    task = task_result(index=tuple(range(24)), gold=(0,) * 24, plain=answers, labels=labels)
    page = render(results_of(task), published())
    assert f"the {MOST_CLASSES} most answered of 40 classes" in page and "类39 is 20.8 % of the answers" in page
    assert page.count(" answered with ") == MOST_CLASSES**2
