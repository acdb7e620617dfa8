"""Promise P9 and its relatives, read off the syntax trees of everything we ship: nothing unpickles, nothing evaluates.

One reader of pickles exists, `tools/demo/news_items.py`; its Unpickler may name no global: tested here and, with an
attack, in tests/tools.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ("corpus", "tokenizer", "pretrain", "tools")
UNPICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "pickle5", "shelve"}
EVALUATORS = {"eval", "exec", "compile", "__import__"}
LOADERS = {"torch.load", "yaml.load", "yaml.unsafe_load", "pandas.read_pickle", "os.system", "os.popen"}
RISKY = ("allow_pickle", "shell")  # keywords
ALLOWED = {("tools/demo/news_items.py", "pickle")}


def violations(source: str, where: str) -> Iterator[str]:
    """Each way in which `source` could run what a file says."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [str(node.module)]
        else:
            modules = []
        for module in modules:
            root = module.split(".")[0]
            if root in UNPICKLERS and (where, root) not in ALLOWED:
                yield f"{where}:{node.lineno}: imports {module}"
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else ""
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg in RISKY}
        if name in EVALUATORS | LOADERS:
            yield f"{where}:{node.lineno}: calls {name}"
        if name in ("np.load", "numpy.load") and keywords.get("allow_pickle") != "False":
            yield f"{where}:{node.lineno}: {name} without allow_pickle=False"
        if keywords.get("allow_pickle") == "True" or keywords.get("shell") == "True":
            yield f"{where}:{node.lineno}: {name} with allow_pickle or shell"
        if name in ("pickle.load", "pickle.loads", "pickle.Unpickler"):
            yield f"{where}:{node.lineno}: calls {name}"


def sources(repository: Path) -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((repository / package).rglob("*.py"))


def test_nothing_unpickles_or_evaluates(repository: Path) -> None:
    found = [
        violation
        for path in sources(repository)
        for violation in violations(path.read_text(), path.relative_to(repository).as_posix())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "def late():\n    from joblib import load",
        "eval('1')",
        "exec(code)",
        "torch.load('a.pt', weights_only=True)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "subprocess.run(command, shell=True)",
        "os.system('ls')",
    ],
)
def test_a_violation_is_seen(source: str) -> None:
    assert list(violations(source, "corpus/some.py"))


@pytest.mark.parametrize("source", ["model.eval()", "re.compile('a')", "np.load(path, allow_pickle=False)"])
def test_a_namesake_is_not_a_violation(source: str) -> None:
    assert not list(violations(source, "corpus/some.py"))


def test_the_one_unpickler_refuses_every_global(repository: Path) -> None:
    tree = ast.parse((repository / "tools/demo/news_items.py").read_text())
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pickle"]
    assert {node.attr for node in uses} == {"Unpickler", "UnpicklingError"}
    [reader] = [node for node in tree.body if isinstance(node, ast.ClassDef) and "pickle" in ast.unparse(node.bases[0])]
    [method] = [node for node in reader.body if isinstance(node, ast.FunctionDef)]
    assert method.name == "find_class"
    assert [type(node) for node in method.body] == [ast.Expr, ast.Raise]  # a docstring and a refusal
