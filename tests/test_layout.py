"""The layout of the repository: where modules lie, and that a name says what it stands for and stands for one thing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("vrampack", "extender", "policies", "benchmarks", "dashboards", "images", "release", "shim")
PACKAGES = ("vrampack", "extender", "policies")
"""The product's folders that are installed: each module of theirs lies in one of `FOLDERS`."""
GENERATED = "vrampack/agent/kubelet/generated"
FOLDERS = {
    "extender",
    "extender/answers",
    "extender/autoscaling",
    "extender/checks",
    "extender/http",
    "extender/eviction",
    "extender/card_preemption",
    "extender/preemption",
    "extender/requeue",
    "extender/scheduling",
    "extender/state",
    "extender/wire",
    "policies",
    "policies/engine",
    "policies/mix",
    "vrampack",
    "vrampack/agent",
    "vrampack/agent/admission",
    "vrampack/agent/cdi",
    "vrampack/agent/cluster",
    "vrampack/agent/device_plugin",
    "vrampack/agent/host",
    "vrampack/agent/inventory",
    "vrampack/agent/kubelet",
    GENERATED,
    "vrampack/agent/limits",
    "vrampack/agent/limits/kmod",
    "vrampack/agent/limits/native",
    "vrampack/agent/limits/preload",
    "vrampack/agent/nvml",
    "vrampack/agent/status",
    "vrampack/cards",
    "vrampack/cli",
    "vrampack/cli/card",
    "vrampack/cli/certificates",
    "vrampack/cli/config",
    "vrampack/cli/demo",
    "vrampack/cli/explain",
    "vrampack/cli/inspect",
    "vrampack/cli/limits",
    "vrampack/cli/policy",
    "vrampack/cli/simulate",
    "vrampack/cli/support_bundle",
    "vrampack/cli/ui",
    "vrampack/config",
    "vrampack/http",
    "vrampack/kube",
    "vrampack/simulator",
    "vrampack/simulator/packing",
    "vrampack/simulator/replay",
    "vrampack/simulator/scheduling",
}
"""Every folder with modules. A new one is a decision: what belongs there, and what does not, is in its `__init__.py`."""
BARE_VERBS = frozenset(
    [
        "drop",
        "ended",
        "fill",
        "find",
        "gone",
        "heard",
        "held",
        "judge",
        "keep",
        "lay",
        "look",
        "name",
        "of",
        "put",
        "say",
        "show",
        "take",
        "told",
        "give",
    ]
)
"""A function is a verb with its object: of these words alone no caller learns what happens to what."""
BARE_FUNCTION = re.compile(rf"\bdef ({'|'.join(sorted(BARE_VERBS))})\(")
PUBLIC_CLASS = re.compile(r"^ *class ([^_\W]\w*)[(:]", re.MULTILINE)


def test_public_class_names_are_unique() -> None:
    assert {name: places for name, places in find_classes(*PRODUCT).items() if len(places) > 1} == {}


def test_a_fake_has_no_name_of_the_product() -> None:
    """A reader of a test sees which of the two it works with."""
    product = find_classes(*PRODUCT)
    clashes = {name: [*product[name], *places] for name, places in find_classes("tests").items() if name in product}
    assert clashes == {}


def test_every_module_lies_in_the_tree_and_every_folder_has_modules() -> None:
    assert {module.parent.relative_to(ROOT).as_posix() for module in list_modules(*PACKAGES)} == FOLDERS


def test_no_public_function_is_a_bare_verb() -> None:
    bare = [
        f"{module.relative_to(ROOT)}:{function.lineno}: {function.name}"
        for module in list_modules(*PRODUCT)
        for function in list_functions(module)
        if function.name in BARE_VERBS and not is_property(function)
    ]
    assert bare == []


@cache
def find_classes(*folders: str) -> Mapping[str, list[str]]:
    """Public classes by name, with the files in which they stand."""
    places = defaultdict(list)
    for module in list_modules(*folders):
        if not is_generated(module):
            for name in PUBLIC_CLASS.findall(read_source(module)):
                places[name].append(module.relative_to(ROOT).as_posix())
    return places


def list_modules(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def is_generated(module: Path) -> bool:
    return module.parent == ROOT / GENERATED and module.stem != "__init__"


def list_functions(module: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions of a module with a bare verb among them: to parse the others would take seconds."""
    source = read_source(module)
    for node in ast.walk(ast.parse(source)) if BARE_FUNCTION.search(source) else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A property is no call: its name is a noun."""
    return any(isinstance(each, ast.Name) and "property" in each.id for each in function.decorator_list)


@cache
def read_source(module: Path) -> str:
    return module.read_text(encoding="utf-8")
