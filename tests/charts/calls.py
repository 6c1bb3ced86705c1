"""What the code asks of the API server: found by reading every call of ``kube.client`` in a package's modules."""

import ast
import dataclasses
import importlib
import pathlib
from collections.abc import Collection, Iterator
from types import ModuleType
from typing import Any

import cotenant
from cotenant.kube.client import LEASES, Resource

VERBS = {
    "get": ("get",),
    "page": ("list",),
    "every": ("list",),
    "watch": ("watch",),
    "create": ("create",),
    "replace": ("update",),
    "patch": ("patch",),
    "apply": ("patch",),
    "delete": ("delete",),
}
"""Of a method of the client. A server-side apply also makes what is not there, where :data:`MADE_BY_APPLY` says so."""
MADE_BY_APPLY = {"nodeinterferencereports", "detectionruleconfigs", "configmaps"}
BY_THEIR_USERS = {"cotenant.kube.client", "cotenant.kube.informer", "cotenant.kube.elector"}
"""What these are handed is counted where it is handed."""
OF_CLASSES = {"Informer": ("list", "watch"), "Elector": ("get", "create", "update")}


@dataclasses.dataclass(frozen=True, order=True)
class Right:
    """One verb on one resource."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}"


@dataclasses.dataclass(frozen=True)
class Unknown:
    """A call whose resource is not written where the call is."""

    where: str
    method: str


def of_programs(*names: str) -> tuple[set[Right], set[Unknown]]:
    """Return what these modules of ``cotenant`` and all of ours that they import ask for.

    Also the calls whose resource is handed to them, which only a reader can tell.
    """
    rights: set[Right] = set()
    unknown: set[Unknown] = set()
    for module in _imported({f"cotenant.{name}" for name in names}):
        if module.__name__ not in BY_THEIR_USERS:
            _sort(_calls(module, None), rights, unknown)
    return rights, unknown


def of_functions(**modules: Collection[str]) -> tuple[set[Right], set[Unknown]]:
    """Return the same of some functions, by module (``__`` for dots); none given: of all of them."""
    rights: set[Right] = set()
    unknown: set[Unknown] = set()
    for name, functions in modules.items():
        module = importlib.import_module(f"cotenant.{name.replace('__', '.')}")
        _sort(_calls(module, functions), rights, unknown)
    return rights, unknown


def _sort(found: Iterator[Right | Unknown], rights: set[Right], unknown: set[Unknown]) -> None:
    for one in found:
        if isinstance(one, Unknown):
            unknown.add(one)
        else:
            rights.add(one)


def _imported(names: set[str]) -> Iterator[ModuleType]:
    """Yield the modules and, from their import statements, all of ours that they need."""
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in seen or not _is_module(name):
            continue
        seen.add(name)
        module = importlib.import_module(name)
        yield module
        for node in ast.walk(ast.parse(pathlib.Path(module.__file__ or "").read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cotenant"):
                assert node.module is not None
                waiting += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]


def _is_module(name: str) -> bool:
    path = pathlib.Path(cotenant.__file__).parent.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def _calls(module: ModuleType, functions: Collection[str] | None) -> Iterator[Right | Unknown]:
    path = pathlib.Path(module.__file__ or "")
    where = path.relative_to(pathlib.Path(cotenant.__file__).parent).as_posix()
    tree: ast.AST = ast.parse(path.read_text())
    if functions:
        defined = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        assert set(functions) <= {node.name for node in defined}, where
        tree = ast.Module([node for node in defined if node.name in functions], [])
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name == "partial" and isinstance(call.args[0], ast.Attribute):  # a call that is made later
            call = ast.Call(call.args[0], call.args[1:], call.keywords)
            name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name in OF_CLASSES:
            resource = LEASES if name == "Elector" else _resource(module, call.args[1])
            yield from _rights(resource, OF_CLASSES[name], "") if resource else [Unknown(where, name)]
        elif name == "evict":
            yield Right("", "pods/eviction", "create")
        elif name in VERBS and isinstance(call.func, ast.Attribute) and _is_client(call.func.value):
            subresource = next((k.value for k in call.keywords if k.arg == "subresource"), None)
            below = f"/{subresource.value}" if isinstance(subresource, ast.Constant) and subresource.value else ""
            resource = _resource(module, call.args[0])
            handed = subresource is not None and not isinstance(subresource, ast.Constant)
            if resource is None or handed:
                yield Unknown(where, name)
            else:
                makes = name == "apply" and not below and resource.plural in MADE_BY_APPLY
                yield from _rights(resource, (*VERBS[name], *(("create",) if makes else ())), below)


def _is_client(node: ast.expr) -> bool:
    """Tell whether an expression is a client, by its name."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name.lstrip("_").endswith("client")


def _resource(module: ModuleType, node: ast.expr) -> Resource | None:
    """Return the resource that an expression names, or None where it is a variable."""
    found: Any = None
    if isinstance(node, ast.Name):
        found = getattr(module, node.id, None)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        found = getattr(getattr(module, node.value.id, None), node.attr, None)
    return found if isinstance(found, Resource) else None


def _rights(resource: Resource, verbs: tuple[str, ...], below: str) -> Iterator[Right]:
    for verb in verbs:
        yield Right(resource.group, f"{resource.plural}{below}", verb)
