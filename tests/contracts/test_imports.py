"""Who imports whom, statically (import-linter's contracts in pyproject.toml) and at run time (what an import loads)."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = ("corpus", "tokenizer", "pretrain", "tools")
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LINT]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=250, check=False)


def test_the_contracts_are_kept(repository: Path) -> None:
    done = _lint(repository)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


FORBIDDEN = [  # each added to its module
    ("corpus/document.py", "import tokenizer.shards", "corpus imports nothing of ours"),
    ("corpus/engine/durable.py", "import corpus.document", "the engine room imports nothing of corpus"),
    ("corpus/filters/samples.py", "import corpus.report.summary", "corpus: a room imports only rooms below it"),
    ("tokenizer/report/reading.py", "import tokenizer.build", "tokenizer: a room imports only rooms below it"),
    ("pretrain/run/train.py", "def f():\n    import pretrain.plan.auto", "pretrain: a room imports only"),
    ("pretrain/parallel/base/mesh.py", "import pretrain.model", "pretrain: a room imports only rooms below it"),
    ("corpus/filters/decide.py", "import corpus.filters.filter", "no cycle inside a room either"),
    ("pretrain/plan/search/legal.py", "import pretrain.plan.tuning.tune", "no cycle inside a room either"),
    ("corpus/dedup/text/fold.py", "import corpus.dedup.near.minhash", "dedup: a room imports only rooms below it"),
    ("corpus/engine/stage.py", "import pyarrow", "the engine room needs neither arrow nor numba"),
    ("tokenizer/shards/__init__.py", "import corpus.document", "tokenizer imports of corpus only the engine room"),
    ("tokenizer/shards/__init__.py", "import torch", "data work needs no torch"),
    ("pretrain/model/gpt.py", "import corpus.engine.run", "pretrain meets the others"),
    ("pretrain/model/gpt.py", "def late():\n    import tokenizer.config", "pretrain meets the others"),
    ("pretrain/model/gpt.py", "import jieba", "training needs no numba"),
]


@pytest.fixture(scope="module")
def complaints(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What import-linter says of each broken contract, its name first, where all of `FORBIDDEN` is imported."""
    folder = tmp_path_factory.mktemp("forbidden")
    for package in PACKAGES:
        shutil.copytree(repository / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(repository / "pyproject.toml", folder)
    for module, line, _ in FORBIDDEN:
        with open(folder / module, "a") as file:
            file.write(f"\n{line}\n")
    done = _lint(folder)
    assert done.returncode != 0
    return re.split(r"\n(?=[^\n]+\n-{5,}\n)", done.stdout.partition("Broken contracts")[2])


@pytest.mark.parametrize(("module", "line", "broken"), FORBIDDEN)
def test_a_forbidden_import_breaks_its_contract(complaints: list[str], module: str, line: str, broken: str) -> None:
    importer = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    imported = line.rpartition("import ")[2]
    rooms = next(pair for pair in zip(importer.split("."), imported.split("."), strict=False) if len({*pair}) > 1)
    told = "".join(complaint for complaint in complaints if broken in complaint.partition("\n")[0])
    assert f"{importer} -> {imported} (" in told or ".{} -> .{} (".format(*rooms) in told, complaints


HEAVY = ("pyarrow", "sentencepiece", "numba", "torch")
HELP = "from tests.contracts.helps import help_of"
VERBS = ("", "plan", "evaluate", "generate", "ablate")


def _loaded(statement: str, repository: Path) -> set[str]:
    code = f"import sys; before = set(sys.modules); {statement}; import json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, timeout=250, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import corpus", ("numpy", "pyarrow", "numba", "torch", "pydantic")),
        ("import corpus.engine.durable, corpus.engine.errors", ("numpy", "pyarrow", "pydantic", "fsspec")),
        ("import corpus.engine.run, corpus.engine.storage, corpus.engine.config", ("pyarrow", "numba", "torch")),
        ("import corpus.__main__", ("torch", "tokenizer", "pretrain", "jieba")),
        ("import corpus.filters", ("torch", "tokenizer", "pretrain", "jieba")),
        ("import tokenizer.shards.writer, tokenizer.model", (*HEAVY, "jieba", "pretrain", "pydantic", "xxhash")),
        (f"{HELP}; help_of('tokenizer')", (*HEAVY, "pretrain")),
        (f"{HELP}; [help_of('pretrain', *verb.split()) for verb in {VERBS}]", ("torch",)),
        ("import pretrain.run.train", ("numba", "jieba", "pyarrow", "corpus.document", "corpus.filters")),
        ("import pretrain.data", ("numba", "jieba", "pyarrow")),
    ],
)
def test_what_an_import_loads(repository: Path, statement: str, unwanted: tuple[str, ...]) -> None:
    loaded = _loaded(statement, repository)
    assert not [name for name in unwanted if name in loaded]


def test_a_loaded_module_is_seen(repository: Path) -> None:
    assert "pyarrow" in _loaded("import pyarrow", repository)  # the test above can fail


def test_corpus_itself_is_empty(repository: Path) -> None:
    assert (repository / "corpus/__init__.py").read_text().strip() == ""


@pytest.mark.parametrize("name", ["durable", "errors"])
def test_standard_library_only(repository: Path, name: str) -> None:
    tree = ast.parse((repository / "corpus/engine" / f"{name}.py").read_text())
    roots = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            if node.module != "corpus.engine.errors":
                roots.add(str(node.module).split(".")[0])
    assert roots <= set(sys.stdlib_module_names), roots - set(sys.stdlib_module_names)
