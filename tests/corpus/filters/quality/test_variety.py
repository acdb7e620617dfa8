"""Varieties told apart on literals, the same in every batch; models that are not whole are refused."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from corpus.filters import measure
from corpus.filters.quality import variety
from corpus.filters.quality.model import load_model
from corpus.filters.statistic import buffers
from tests.corpus.filters.statistics.test_script import CHINESE, OTHERS
from tools import train_varieties

TEXTS = {
    "zh-Hans": [
        CHINESE["simplified"],
        "请点击右上角的设置按钮，在弹出的对话框中选择网络选项，然后保存文件并重新启动计算机。",
    ],
    "zh-Hant-TW": [
        "請點選右上角的設定按鈕，在跳出的視窗中選擇網路選項，接著儲存檔案，重新啟動電腦；軟體更新後即可使用智慧型手機連線。"
    ],
    "zh-Hant-HK": [
        "衞生署提醒市民，乘搭港鐵東鐵綫及巴士時請佩戴口罩；如在流動電話內安裝應用程式，可透過網絡查閱各區診所的輪候時間，並與家裏的長者一同接種疫苗。"
    ],
    "yue": [
        CHINESE["cantonese"],
        "佢话听日唔得闲，叫我哋唔使等佢，食完饭先返屋企，点知落咗成日雨，冇带遮，惟有喺度等。",
    ],
    "lzh": [
        CHINESE["classical"],
        "子曰：“学而时习之，不亦说乎？有朋自远方来，不亦乐乎？人不知而不愠，不亦君子乎？”有子曰：“其为人也孝弟，而好犯上者，鲜矣。”",
    ],
    "ja": [OTHERS["japanese"], OTHERS["japanese_titles"]],
    "ko": [OTHERS["korean"]],
    "en": [OTHERS["english"], "It was the best of times, it was the worst of times."],
    "und": [
        "",
        "好的",
        "404",
        "Am Morgen legt ein alter Mann auf dem Markt sein Gemüse aus und grüßt jeden, den er kennt, mit einem Lächeln.",
        "Утром на рынке старик раскладывает овощи и здоровается со всеми, кого знает.",
    ],
}


@pytest.mark.parametrize("name", TEXTS)
def test_each_variety_is_told(name: str) -> None:
    assert set(measure("script.variety", TEXTS[name])) == {name}


def test_neighbours_and_splits_change_nothing() -> None:
    texts = [text * times for some in TEXTS.values() for text in some for times in (1, 40)]
    together = measure("script.variety", texts).tolist()
    assert together == [measure("script.variety", [text]).item() for text in texts]


@pytest.mark.parametrize("mark", ["", "a", "éa"])
def test_windows_never_cut_a_character(mark: str) -> None:
    texts = [mark + "學而時習之" * 2_000, "短", "", "𠮷a" * 3_000]
    arrays = buffers(pa.array(["前", *texts], pa.large_string()).slice(1))
    assert variety.sample_windows(*arrays, np.zeros(len(texts), np.bool_))[0].tolist() == [0] * (len(texts) + 1)
    offsets, data = variety.sample_windows(*arrays, np.ones(len(texts), np.bool_))
    read = [data[start:end].tobytes().decode() for start, end in pairwise(offsets)]
    assert read[1:3] == ["短", ""]
    assert len(read[0].split("\n")) == len(read[3].split("\n")) == variety.WINDOWS + 1
    assert set(read[3]) == {"𠮷", "a", "\n"}


def test_training_is_the_same_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (*variety.WRITTEN, *variety.SPELLED):
        for source in ("one", "two", "two.converted"):
            path = tmp_path / "texts" / name / f"{source}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps({"text": text + source}) for text in TEXTS[name] if text]
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for out in ("a", "b"):
        (tmp_path / out).mkdir()
        assert train_varieties.main(["--texts", str(tmp_path / "texts"), "--out", str(tmp_path / out)]) == 0
    for name in ("han.model", "letters.model"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert load_model(str(tmp_path / "a" / "han.model")).classes == variety.WRITTEN
    rows = capsys.readouterr().out
    assert "\n50\tyue\tone\t" in rows
    assert "converted" not in rows
