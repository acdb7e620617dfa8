"""The engine room: durable files, storage, stages and executors, shared by every package.

Old names of public modules (docs/api.md) import the new module, and warn, for one version: `register_moved`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _MovedModules(MetaPathFinder, Loader):
    """Finds modules by their old names."""

    def __init__(self, new_names: Mapping[str, str]) -> None:
        self.new_names = new_names

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in self.new_names else None

    def exec_module(self, module: ModuleType) -> None:
        new_name = self.new_names[module.__name__]
        warnings.warn(
            f"{module.__name__} is {new_name} now. Import that: the old name goes with the next version.",
            FutureWarning,
            stacklevel=2,
        )
        sys.modules[module.__name__] = import_module(new_name)


def register_moved(new_names: Mapping[str, str]) -> None:
    """Let modules be imported by their old names: old -> new, both absolute."""
    sys.meta_path.append(_MovedModules(new_names))
