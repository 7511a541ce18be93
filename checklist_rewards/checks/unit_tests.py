"""Tests of code, in the forms in which people and models write them.

Statements such as `assert add(2, 3) == 5` run by themselves. Functions, classes and examples only run if
they are called, and authors expect a test runner to do so:

- `def test_add(): ...`, and the `test...` methods of a class `Test...`, as pytest runs them, with `setup_method`;
- `unittest.TestCase`, also where `unittest.main()` is missing;
- `def check(candidate): ...` of HumanEval, called with the entry point of the code ([`entry_point`]), which gets the
  reserved name [`ENTRY`]: under its own, `sum` would be Python's and `check` that of the tests. Tests that end with
  `check(add)` name it themselves;
- doctests, as text or in docstrings.

[`runnable`] adds these calls, except to what the tests already call. [`fault`] finds tests that would pass any code.
Others only show when they run: [`stubs`] are codes that compute nothing, which tests should not pass.
"""

from __future__ import annotations

import ast
import builtins
import doctest
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeGuard

_Def = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
ENTRY = "_checklist_entry"
"""The name of the entry point in the tests and, added to its end, in the code."""
_ENDS = {"fail", "exit", "quit", "_exit", "raises"}
"""Names of functions, besides those with "assert" in their name, that make tests fail."""
_OF_CLASS = """
def _checklist_run(case):
    if hasattr(case, "setup_class"):
        case.setup_class()
    for name in sorted(name for name in dir(case) if name.startswith("test")):
        one = case()
        for part in ("setup_method", name, "teardown_method"):
            method = getattr(one, part, None)
            if method is not None:
                method(*[getattr(one, name)][: method.__func__.__code__.co_argcount - 1])
"""
_OF_TEST_CASE = """
def _checklist_run_case(case):
    import unittest
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    for _, why in [*result.failures, *result.errors]:
        raise AssertionError(why.strip().splitlines()[-1])
"""
_OF_EXAMPLES = """
def _checklist_examples(text):
    import doctest
    lambda: ({names})
    runner = doctest.DocTestRunner(verbose=False)
    found = doctest.DocTestParser().get_doctest(text, globals(), "tests", None, 0)
    if runner.run(found, out=lambda text: None, clear_globs=False).failed:
        raise AssertionError("an example of a doctest fails")
_checklist_examples({text!r})
"""
_OF_STUB = """
class _Something:
    def __call__(self, *arguments, **keywords):
        return self
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self
    def __getitem__(self, key):
        return self
    def __len__(self):
        return 0
    def __iter__(self):
        return iter(())
"""


def runnable(tests: str) -> str:
    """The tests with calls of what only a test runner would call. Invalid Python is returned unchanged."""
    plan = _Plan.of(tests)
    if plan is None:
        return tests
    lines = [plan.source]
    lines += [_OF_CLASS] if plan.classes else []
    lines += [_OF_TEST_CASE] if plan.cases else []
    lines += [f"{name}()" for name in plan.functions]
    lines += [f"_checklist_run({name})" for name in plan.classes]
    lines += [f"_checklist_run_case({name})" for name in plan.cases]
    lines += [f"check({ENTRY})"] if plan.check else []
    for text in plan.examples:
        names = "".join(f"{name}, " for name in sorted(_loaded(_example_nodes(text))) if not hasattr(builtins, name))
        lines.append(_OF_EXAMPLES.format(names=names, text=text))
    return "\n".join([*lines, ""])


def fault(tests: str) -> str | None:
    """Why tests would pass any code, or None. Tests that are not valid Python have another fault."""
    plan = _Plan.of(tests)
    if plan is None:
        return None
    if plan.unsupported:
        return f"{plan.unsupported[0]!r} is async, a generator or takes arguments, which cannot be run here"
    nodes = [*plan.reached, *plan.example_nodes]
    if not nodes:
        return "nothing in the tests is ever run"
    if not plan.examples and not any(map(_can_fail, nodes)):
        return "the tests assert nothing"
    if not plan.check and not _free(nodes, plan.defined):
        return "the tests do not use the code under test"
    return None


def stubs(tests: str, entry: str) -> tuple[str, ...]:
    """Codes that define what tests use and compute nothing: of all functions, the result is an object that is true and
    equal to nothing, or None. Tests that all of them pass do not look at results. None for tests that require a result
    to differ from a value, which most values do.

    Args:
        tests (`str`): The tests.
        entry (`str`): The name of the entry point; see [`entry_point`].
    """
    plan = _Plan.of(tests)
    if plan is None:
        return ()
    nodes = [*plan.reached, *plan.example_nodes]
    if any(map(_differs, _all_parts(nodes))):
        return ()
    names = sorted(_free(nodes, plan.defined) | ({entry} if plan.check else set()))
    return tuple(
        "\n".join([_OF_STUB, *(f"{name} = {value}" for name in names if name != "None"), ""])
        for value in ("_Something()", "lambda *arguments, **keywords: None")
    )


def entry_point(code: str) -> str:
    """The name of the function that solves the task: the last one at the top of the code that is not a test (`test...`
    without arguments, `check(candidate)`), takes arguments (unlike `main`) and is not a helper of another one.
    These rules give way, the last first, if no function meets them. Without functions, the last class;
    without classes, "None"."""
    try:
        parts = [part for node in ast.parse(code).body for part in _parts(node, into=False)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "None"
    functions = {part.name: part for part in parts if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}
    classes = [part.name for part in parts if isinstance(part, ast.ClassDef)]
    if not functions:
        return ["None", *classes][-1]
    helpers = {used for name, node in functions.items() for used in _loaded([node]) - {name}}
    names = list(functions)
    for rule in (
        lambda name: not _is_runner(functions[name]),
        lambda name: _takes_arguments(functions[name].args),
        lambda name: name not in helpers,
    ):
        names = list(filter(rule, names)) or names
    return names[-1]


def _is_runner(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function of the code is a test, which a model may write beside its solution."""
    if node.name == "check":
        return [argument.arg for argument in node.args.args] == ["candidate"]
    return _is_test(node) and not _takes_arguments(node.args)


def _takes_arguments(of: ast.arguments) -> bool:
    return bool(of.posonlyargs or of.args or of.vararg or of.kwonlyargs or of.kwarg)


class _Plan:
    """What is in tests, and which of it is never called."""

    def __init__(self, tree: ast.Module, source: str, examples: list[str]):
        self.source, self.examples = source, examples
        self.example_nodes = [node for text in examples for node in _example_nodes(text)]
        defs: dict[str, _Def] = {
            part.name: part for node in tree.body for part in _parts(node, into=False) if isinstance(part, _Def)
        }
        statements = [node for node in tree.body if not isinstance(node, _Def) and not _is_text(node)]
        called = _closure(_loaded(statements), defs)
        cases = {
            name for name, node in defs.items() if any(base.endswith("TestCase") for base in _bases(node, defs))
        } - called
        called |= _closure(_loaded(defs[name] for name in cases), defs) - cases
        self.functions: list[str] = []
        self.classes: list[str] = []
        self.cases: list[str] = []
        self.unsupported: list[str] = []
        self.check = False
        for name, node in defs.items():
            if name in called:
                continue
            if isinstance(node, ast.ClassDef):
                if any(base.endswith("AsyncioTestCase") for base in _bases(node, defs)):
                    self.unsupported.append(name)
                elif name in cases:
                    self.cases.append(name)
                elif name.startswith("Test") and any(_is_test(part) for part in node.body):
                    self.classes.append(name)
                    self.unsupported += [
                        f"{name}.{part.name}" for part in node.body if _is_test(part) and not _runs(part, ("self",))
                    ]
            elif name == "check" and len(node.args.args) - len(node.args.defaults) == 1:
                self.check = True
            elif _is_test(node):
                (self.functions if _runs(node, ()) else self.unsupported).append(name)
        added = {*self.functions, *self.classes, *self.cases, *(["check"] if self.check else [])}
        reached = called | _closure(added, defs)
        self.reached: list[ast.AST] = [*statements, *(defs[name] for name in reached if name in defs)]
        if any(isinstance(part, ast.Attribute) and _path(part) == "asyncio.run" for part in _all_parts(self.reached)):
            self.unsupported.append("asyncio.run")
        self.defined = _stored(tree)

    @classmethod
    def of(cls, tests: str) -> _Plan | None:
        """The plan of tests; None for invalid Python."""
        try:
            tree = ast.parse(tests)
            return cls(tree, tests, [text for node in ast.walk(tree) for text in _docstring(node)])
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
        try:
            return cls(ast.Module([], []), "", [tests]) if doctest.DocTestParser().get_examples(tests) else None
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _closure(names: set[str], defs: dict[str, _Def]) -> set[str]:
    """These names, and those that the functions and classes among them use."""
    found: set[str] = set()
    open_names = set(names)
    while open_names:
        name = open_names.pop()
        found.add(name)
        if name in defs:
            open_names |= _loaded([defs[name]]) - found
    return found


def _bases(node: _Def, defs: Mapping[str, _Def]) -> set[str]:
    """The names of the base classes of a class, and of theirs; none for a function."""
    found: set[str] = set()
    open_bases = [_last_name(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
    while open_bases:
        name = open_bases.pop()
        base = defs.get(name)
        if name not in found and isinstance(base, ast.ClassDef):
            open_bases += [_last_name(other) for other in base.bases]
        found.add(name)
    return found


def _parts(node: ast.AST, *, into: bool = True) -> Iterator[ast.AST]:
    """A node and what is in it, but not the bodies of functions and classes inside a statement: they may never run."""
    yield node
    if not isinstance(node, _Def):
        for child in ast.iter_child_nodes(node):
            yield from _parts(child, into=False)
    elif into:
        yield from (part for child in ast.iter_child_nodes(node) for part in ast.walk(child))


def _all_parts(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    return (part for node in nodes for part in _parts(node))


def _path(node: ast.AST) -> str:
    """The dotted name of an attribute of a module."""
    return (
        f"{node.value.id}.{node.attr}" if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else ""
    )


def _example_nodes(text: str) -> list[ast.AST]:
    return [node for example in doctest.DocTestParser().get_examples(text) for node in ast.parse(example.source).body]


def _docstring(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Module | _Def):
        text = ast.get_docstring(node)
        if text and ">>>" in text:
            yield text


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_test(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")


def _runs(node: Any, arguments: tuple[str, ...]) -> bool:
    """Whether a plain call runs a test function: it is no coroutine or generator, and needs no other arguments."""
    own = [part for statement in node.body for part in _outside_functions(statement)]
    waits = isinstance(node, ast.AsyncFunctionDef) or any(isinstance(p, ast.Yield | ast.YieldFrom) for p in own)
    static = any(_last_name(one) in ("staticmethod", "classmethod") for one in node.decorator_list)
    needed = len(node.args.args) - len(node.args.defaults)
    return not waits and (static or needed == len(arguments))


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _outside_functions(child)


def _loaded(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that nodes read."""
    return {part.id for part in _all_parts(nodes) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}


def _names_of(node: ast.AST) -> set[str]:
    """All names and attributes in a node."""
    return {_last_name(part) for part in _parts(node)} - {""}


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _can_fail(node: ast.AST) -> bool:
    """Whether a node asserts something, or raises or exits."""
    for part in _parts(node):
        if isinstance(part, ast.Assert | ast.Raise):
            return True
        if isinstance(part, ast.Call):
            name = _last_name(part.func)
            if name in _ENDS or "assert" in name.lower() or name in ("main", "testmod"):
                return True
    return False


def _differs(node: ast.AST) -> bool:
    """Whether a node compares values and wants them to differ."""
    if isinstance(node, ast.Compare):
        if "__name__" in _names_of(node):
            return False
        return any(isinstance(operation, ast.NotEq | ast.NotIn | ast.IsNot) for operation in node.ops)
    return isinstance(node, ast.Call) and "assertNot" in _last_name(node.func)


def _stored(tree: ast.AST) -> set[str]:
    """All names that tests define anywhere."""
    names: set[str] = set()
    for part in ast.walk(tree):
        if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
            names.add(part.id)
        elif isinstance(part, _Def):
            names.add(part.name)
        elif isinstance(part, ast.arg):
            names.add(part.arg)
        elif isinstance(part, ast.alias):
            names.add((part.asname or part.name).partition(".")[0])
        elif isinstance(part, ast.ExceptHandler) and part.name:
            names.add(part.name)
    return names


def _free(nodes: Iterable[ast.AST], defined: set[str]) -> set[str]:
    """Names of the code under test."""
    return {name for name in _loaded(nodes) if name not in defined and not hasattr(builtins, name)}
