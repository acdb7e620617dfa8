"""The page of results: whole without a request, every text escaped, and nothing in it that is not in the results."""

from __future__ import annotations

from pretrain.tasks.page import MOST_CLASSES, render
from pretrain.tasks.table import published_baselines
from tests.html_page import Page
from tests.pretrain.tasks.made_up import results_of, task_result


def test_the_page_needs_nothing_else_and_escapes_what_it_shows() -> None:
    hostile = task_result("<b>x</b>", labels=("<script>", '"&'), diagonal=(0, 0, 1, 1))
    page = Page(render(results_of(hostile, calibration="diagonal"), published_baselines()))
    page.check()
    assert "<script> answered with" in page.text


def test_bars_whiskers_chance_and_published_points() -> None:
    page = render(results_of(task_result("ocnli"), task_result("b", num_in_split=9)), published_baselines())
    assert page.count("<circle") == len(published_baselines().row)  # of the whole split only
    assert page.count('class="line ') == 2 and page.count('class="event"') == 2
    assert "ocnli: 75.0 %, at chance" in page and "Zero-shot GPT: 34.4 %" in page
    assert "<td>Zero-shot GPT</td>" in page and page.count("34.4</td>") == 2  # its mean over this task, and the task
    assert "Beside published" not in render(results_of(task_result("b")), published_baselines())
    assert "30.1 to 95.4" in page and "a sample of 4 of 9 items" in page


def test_of_many_classes_the_most_answered_are_drawn() -> None:
    labels = tuple(f"类{number}" for number in range(40))
    answers = tuple(range(20, 40)) + (39,) * 4
    task = task_result(index=tuple(range(24)), gold=(0,) * 24, plain=answers, labels=labels)
    page = render(results_of(task), published_baselines())
    assert f"the {MOST_CLASSES} most answered of 40 classes" in page and "类39 is 20.8 % of the answers" in page
    assert page.count(" answered with ") == MOST_CLASSES**2
