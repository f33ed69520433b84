"""Merges modules of solo into one namespace, for the bundle: importing modules from each other takes half of a start.

What an ordinary run uses is at hand. The rest of each module is a part of its own, executed in the same namespace when
a name in it is first wanted: `merge` replaces such a name by `_late("name")`, and gives a class that lacks methods a
`__getattr__` that loads them. Imports between merged modules go. All this is decided from the source: a name that two
modules define is renamed in one of them, and a name that could not be found at run time is an error here.
"""

import ast
import builtins
import copy
import dis
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, NamedTuple, Optional, Union

LATE, LATE_METHOD, EXPOSE = "_late", "_late_method", "_expose"  # functions of the loader
FUNCTIONS = (ast.FunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Definition(NamedTuple):
    """A name that a merged module defines."""

    module: str
    name: str


class Import(NamedTuple):
    """A thing that a module outside of those merged provides: `name` of `module`, or the module itself."""

    module: str
    name: Optional[str]


class Whole(NamedTuple):
    """A merged module, imported as a whole."""

    module: str


Target = Union[Definition, Import, Whole]
Scope = Mapping[str, Optional[Target]]  # what the local names of a scope mean; None if they are only local
Statement = tuple[str, int]  # its module and its number there
Refer = Callable[[Target, Optional[str]], str]


class Merged(NamedTuple):
    """`at_hand` is executed at the start; `parts` by module and `methods` by class when they are first wanted.

    `owners` is the module of each late name, `renamed` the merged names by module and name where they differ.
    """

    at_hand: ast.Module
    parts: "dict[str, ast.Module]"
    methods: "dict[str, ast.Module]"
    owners: "dict[str, str]"
    renamed: "dict[str, dict[str, str]]"


class Untyped(ast.NodeTransformer):
    """Removes what only type checkers and readers need: a start would load and evaluate it."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.visit_block(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node if "NamedTuple" in map(ast.unparse, node.bases) else self.visit_block(node)

    def visit_block(self, node: "ast.FunctionDef | ast.ClassDef") -> ast.AST:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> "ast.AST | None":
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_If(self, node: ast.If) -> "ast.AST | list[ast.stmt]":
        if ast.unparse(node.test) != "TYPE_CHECKING":
            return self.generic_visit(node)
        return node.orelse

    def visit_Expr(self, node: ast.Expr) -> "ast.AST | None":
        return None if isinstance(node.value, ast.Constant) else node


def list_stored(nodes: "Iterable[ast.AST]") -> "Iterator[str]":
    """Yield the names that statements bind in their own scope."""
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield (alias.asname or alias.name).partition(".")[0]
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, COMPREHENSIONS):
            inner = [part for part in ast.walk(node) if isinstance(part, ast.NamedExpr)]
            yield from (part.target.id for part in inner)
        elif not isinstance(node, FUNCTIONS):
            if isinstance(node, ast.ExceptHandler) and node.name:
                yield node.name
            yield from list_stored(ast.iter_child_nodes(node))


class Module:
    """The tree of one module: its statements, and what its names mean."""

    def __init__(self, name: str, source: str, merged: "set[str]") -> None:
        self.name = name
        self.tree = Untyped().visit(ast.parse(source))
        self.meaning: dict[str, Target] = {}
        self.statements = []
        for node in self.tree.body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self.meaning.update(read_import(node, merged))
            elif not (isinstance(node, ast.Assign) and ast.unparse(node) == "TYPE_CHECKING = False"):
                self.statements.append(node)
                self.meaning.update((stored, Definition(name, stored)) for stored in list_stored([node]))


def read_import(node: "ast.Import | ast.ImportFrom", merged: "set[str]") -> "dict[str, Target]":
    """{the name that it binds: what it means}"""
    if isinstance(node, ast.Import):
        return {(alias.asname or alias.name).partition(".")[0]: Import(alias.name, None) for alias in node.names}
    found: dict[str, Target] = {}
    assert node.module
    for alias in node.names:
        inner = f"{node.module}.{alias.name}"
        found[alias.asname or alias.name] = (
            Whole(inner)
            if inner in merged
            else Definition(node.module, alias.name)
            if node.module in merged
            else Import(node.module, alias.name)
        )
    return found


class Resolver(ast.NodeTransformer):
    """Replaces each global name of a module by what `refer(target, context)` returns: a name, or None for a late one.

    `context` is the outermost function around it, as `function` or `Class.method`, or None: executed with the module.
    """

    def __init__(self, module: Module, merged: "set[str]", refer: Refer) -> None:
        self.module, self.merged, self.refer = module, merged, refer
        self.scopes: list[tuple[bool, Scope]] = []  # and whether it is a class's
        self.path: list[str] = []

    @property
    def context(self) -> "str | None":
        is_function = any(not is_class for is_class, _ in self.scopes)
        return ".".join(self.path[:2]) if is_function else None

    def find(self, name: str) -> "tuple[bool, Target | None]":
        """Return (whether the name is global, what it means if that is known)."""
        for names in self.list_visible():
            if name in names:
                return names[name] is not None, names[name]
        return True, self.module.meaning.get(name)

    def list_visible(self) -> "list[Scope]":
        """Return the names of the scopes that an expression here sees, the innermost first."""
        scopes = list(reversed(self.scopes))
        return [names for depth, (is_class, names) in enumerate(scopes) if not is_class or depth == 0]

    def make(self, target: Target, node: "ast.Name | ast.Attribute") -> ast.expr:
        """Return the expression for a target. A local name may hide the merged one."""
        name = self.refer(target, self.context)
        is_hidden = any(name in names and names[name] is None for names in self.list_visible())
        is_late = name.startswith("=") or is_hidden
        return ast.copy_location(call(LATE, name.lstrip("=")) if is_late else ast.Name(name, node.ctx), node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        is_global, target = self.find(node.id)
        if not is_global or target is None:
            return node
        if isinstance(target, Whole):
            raise ValueError(f"{self.module.name}: {node.id}, a merged module, is used as a value")
        if isinstance(node.ctx, ast.Load):
            return self.make(target, node)
        return ast.copy_location(ast.Name(self.refer(target, self.context).lstrip("="), node.ctx), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name):
            is_global, target = self.find(node.value.id)
            if is_global and isinstance(target, Whole):
                return self.make(Definition(target.module, node.attr), node)
        return self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> ast.AST:
        node.names = [self.refer(self.module.meaning[name], None).lstrip("=") for name in node.names]
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> "ast.AST | list[ast.AST]":
        if (node.module or "").partition(".")[0] != "solo":
            return node
        found = read_import(node, self.merged).values()
        if any(isinstance(target, Import) for target in found):
            return [ast.Expr(call(EXPOSE)), node]
        # An error of loading a part belongs here.
        names = [self.refer(target, self.context) for target in found if isinstance(target, Definition)]
        loads: list[ast.stmt] = [ast.Expr(call(LATE, name[1:])) for name in names if name.startswith("=")]
        return [ast.copy_location(made, node) for made in loads or [ast.Pass()]]

    def visit_body(self, node: "ast.FunctionDef | ast.ClassDef", names: Scope, is_class: bool) -> None:
        self.scopes.append((is_class, names))
        self.path.append(node.name)
        node.body = [made for part in node.body for made in as_list(self.visit(part))]
        self.path.pop()
        self.scopes.pop()

    def rename_definition(self, node: "ast.FunctionDef | ast.ClassDef") -> None:
        is_global, target = self.find(node.name)
        if not self.scopes and target is not None:
            self.path.append(node.name)
            node.name = self.refer(target, None).lstrip("=")
            self.path.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        name = node.name
        self.rename_definition(node)
        node.decorator_list = [self.visit(part) for part in node.decorator_list]
        self.visit_defaults(node.args)
        renamed, node.name = node.name, name
        self.visit_body(node, self.list_locals(node, node.body), False)
        node.name = renamed
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        name = node.name
        self.rename_definition(node)
        for part in ("bases", "keywords", "decorator_list"):
            setattr(node, part, [self.visit(one) for one in getattr(node, part)])
        renamed, node.name = node.name, name
        self.visit_body(node, dict.fromkeys(list_stored(node.body)), True)
        node.name = renamed
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self.visit_defaults(node.args)
        self.scopes.append((False, self.list_locals(node, [node.body])))
        node.body = self.visit(node.body)
        self.scopes.pop()
        return node

    def visit_comprehension_of(self, node: Any) -> Any:
        targets = dict.fromkeys(name for part in node.generators for name in list_stored([part.target]))
        is_class = bool(self.scopes) and self.scopes[-1][0]
        self.scopes.append((is_class or not self.scopes, targets))
        self.generic_visit(node)
        self.scopes.pop()
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_comprehension_of

    def visit_defaults(self, arguments: ast.arguments) -> None:
        arguments.defaults = [self.visit(one) for one in arguments.defaults]
        arguments.kw_defaults = [one and self.visit(one) for one in arguments.kw_defaults]

    def list_locals(self, node: "ast.FunctionDef | ast.Lambda", body: "Sequence[ast.AST]") -> Scope:
        """{the names local to a function: None}, and what those mean that it imports from merged modules."""
        inner = [part for one in body for part in walk_scope(one)]
        outside = {name for part in inner if isinstance(part, (ast.Global, ast.Nonlocal)) for name in part.names}
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        names: dict[str, Target | None] = dict.fromkeys(one.arg for one in every if one is not None)
        names.update((name, None) for name in list_stored(body) if name not in outside)
        for part in inner:
            if isinstance(part, ast.ImportFrom):
                found = read_import(part, self.merged)
                names.update((name, target) for name, target in found.items() if not isinstance(target, Import))
        return names


def call(function: str, *words: str) -> ast.Call:
    return ast.Call(ast.Name(function, ast.Load()), [ast.Constant(word) for word in words], [])


def walk_scope(node: ast.AST) -> "Iterator[ast.AST]":
    """Yield the node and those below it, without those of inner functions and classes."""
    yield node
    if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        for part in ast.iter_child_nodes(node):
            yield from walk_scope(part)


def as_list(node: Any) -> "list[Any]":
    return node if isinstance(node, list) else [] if node is None else [node]


class Merger:
    """Merges modules, in the order in which they are executed. `used` has the names that are wanted at
    hand, by module: a function, class or constant, or a method as `Class.method`.
    """

    def __init__(self, sources: "dict[str, str]", used: "dict[str, set[str]]") -> None:
        self.merged = set(sources)
        self.modules = {name: Module(name, source, self.merged) for name, source in sources.items()}
        self.used = used
        self.names = self.choose_names()
        # Of each statement: {context: the targets it refers to}.
        self.uses: dict[Statement, dict[str | None, set[Target]]] = {}
        self.statements: dict[Target, Statement] = {}  # that define it
        for module in self.modules.values():
            for number, node in enumerate(module.statements):
                self.uses[module.name, number] = self.collect(module, node)
                for name in list_stored([node]):
                    self.statements[Definition(module.name, name)] = module.name, number
        self.early: set[Statement] = set()  # the statements at hand
        self.imports: set[Import] = set()  # at hand
        self.find_early()

    def choose_names(self) -> "dict[Target, str]":
        """Return the merged name of each target: its own, unless another has that, too."""
        wanted: dict[str, list[Target]] = {}
        for module in self.modules.values():
            for name, target in module.meaning.items():
                if not isinstance(target, Whole):
                    own = target.name if isinstance(target, Definition) else name
                    others = wanted.setdefault(own, [])
                    if target not in others:
                        others.append(target)
        names: dict[Target, str] = {
            target: own
            if len(others) == 1
            else f"module_{own}"
            if isinstance(target, Import) and target.name is None
            else f"{own}_of_{target.module.replace('.', '_')}"
            for own, others in wanted.items()
            for target in others
        }
        assert len(set(names.values())) == len(names)
        return names

    def collect(self, module: Module, node: ast.stmt) -> "dict[str | None, set[Target]]":
        """{context: the targets to which the statement refers there}"""
        found: dict[str | None, set[Target]] = {}

        def refer(target: Target, context: "str | None") -> str:
            found.setdefault(context, set()).add(target)
            return self.names[target]

        Resolver(module, self.merged, refer).visit(copy.deepcopy(node))
        return found

    def find_early(self) -> None:
        waiting = [
            (module.name, number)
            for module in self.modules.values()
            for number, node in enumerate(module.statements)
            if self.is_used(module.name, node) or any(isinstance(part, ast.Global) for part in ast.walk(node))
        ]
        waiting += [
            self.statements[Definition(module.name, name)]
            for module in self.modules.values()
            for part in ast.walk(module.tree)
            if isinstance(part, ast.Global)
            for name in part.names
        ]
        while waiting:
            key = waiting.pop()
            if key in self.early:
                continue
            self.early.add(key)
            late = self.list_late_methods(*key)
            for context, targets in self.uses[key].items():
                for target in targets if context not in late else ():
                    if isinstance(target, Import):
                        self.imports.add(target)
                    elif context is None or not isinstance(self.get(target), (ast.FunctionDef, ast.ClassDef)):
                        waiting.append(self.statements[target])

    def get(self, target: Target) -> Any:
        module, number = self.statements[target]
        return self.modules[module].statements[number]

    def is_used(self, module: str, node: ast.stmt) -> bool:
        wanted = {name.partition(".")[0] for name in self.used.get(module, ())}
        return not wanted.isdisjoint(list_stored([node]))

    def merge(self) -> Merged:
        at_hand: list[ast.stmt] = []
        parts: dict[str, ast.Module] = {}
        methods: dict[str, ast.Module] = {}
        owners: dict[str, str] = {}
        for module in self.modules.values():
            part: list[ast.stmt] = []
            imports: set[Import] = set()
            for number, node in enumerate(module.statements):
                is_early = (module.name, number) in self.early
                made = self.resolve(module, node, set() if is_early else imports, None if is_early else module.name)
                if not is_early:
                    part.append(made)
                    owners.update((self.names[Definition(module.name, n)], module.name) for n in list_stored([node]))
                    continue
                at_hand.append(made)
                if isinstance(node, ast.ClassDef):
                    self.split(module, number, made, methods)
                    drop_slots(made)
            if part:
                parts[module.name] = ast.Module([*self.make_imports(imports - self.imports), *part], [])
        merged = Merged(
            ast.Module([*self.make_imports(self.imports), *at_hand], []), parts, methods, owners, self.list_renamed()
        )
        check(merged)
        return merged

    def resolve(self, module: Module, node: ast.stmt, imports: "set[Import]", part: "str | None") -> Any:
        """Return the statement with merged names, as a part of the module or at hand. Add what it imports."""

        def refer(target: Target, context: "str | None") -> str:
            if isinstance(target, Import):
                imports.add(target)
                return self.names[target]
            if not isinstance(target, Definition) or target not in self.statements:
                raise ValueError(f"{module.name}: no {target}")
            owner = self.statements[target]
            return self.names[target] if owner in self.early or owner[0] == part else "=" + self.names[target]

        return Resolver(module, self.merged, refer).visit(copy.deepcopy(node))

    def list_late_methods(self, module: str, number: int) -> "set[str]":
        """Return the methods, as `Class.method`, of a class at hand that no ordinary run calls."""
        node = self.modules[module].statements[number]
        if not isinstance(node, ast.ClassDef):
            return set()
        bound = {  # as the value of another name
            part.id
            for one in node.body
            if not isinstance(one, ast.FunctionDef)
            for part in ast.walk(one)
            if isinstance(part, ast.Name)
        }
        late = {
            f"{node.name}.{one.name}"
            for one in node.body
            if isinstance(one, ast.FunctionDef)
            and one.name not in bound
            and not one.name.startswith("__")
            and all(ast.unparse(decorator) in ("property", "staticmethod") for decorator in one.decorator_list)
        }
        return late - self.used.get(module, set())

    def split(self, module: Module, number: int, made: ast.ClassDef, methods: "dict[str, ast.Module]") -> None:
        """Move the late methods of a class to a part of their own."""
        late = {name.partition(".")[2] for name in self.list_late_methods(module.name, number)}
        if not late:
            return
        imports: set[Import] = set()
        whole = self.resolve(module, module.statements[number], imports, None)
        body: list[ast.stmt] = [part for part in whole.body if isinstance(part, ast.FunctionDef) and part.name in late]
        methods[made.name] = ast.Module(
            [*self.make_imports(imports - self.imports), ast.ClassDef("_Methods", [], [], body, [])], []
        )
        kept = [part for part in made.body if not (isinstance(part, ast.FunctionDef) and part.name in late)]
        made.body = [*kept, ast.Assign([ast.Name("__getattr__", ast.Store())], ast.Name(LATE_METHOD, ast.Load()))]

    def make_imports(self, wanted: "set[Import]") -> "list[ast.stmt]":
        made: list[ast.stmt] = []
        by_module: dict[str, list[ast.alias]] = {}
        for target in sorted(wanted, key=lambda one: (one.module, one.name or "")):
            name = self.names[target]
            if target.module.partition(".")[0] == "solo":
                made.append(ast.Expr(call(EXPOSE)))
            if target.name is None:
                is_plain = name == target.module.partition(".")[0]  # `import a.b` binds a
                made.append(ast.Import([ast.alias(target.module, None if is_plain else name)]))
            else:
                alias = ast.alias(target.name, None if name == target.name else name)
                by_module.setdefault(target.module, []).append(alias)
        return [*made, *(ast.ImportFrom(module, names, 0) for module, names in by_module.items())]

    def list_renamed(self) -> "dict[str, dict[str, str]]":
        renamed: dict[str, dict[str, str]] = {name: {} for name in self.modules}
        for module in self.modules.values():
            for name, target in module.meaning.items():
                if not isinstance(target, Whole) and self.names[target] != name:
                    renamed[module.name][name] = self.names[target]
        return renamed


def drop_slots(node: ast.ClassDef) -> None:
    """Remove __slots__: each slot makes an object, and an ordinary run makes few instances."""
    is_slots = [isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) == "__slots__" for part in node.body]
    node.body = [part for part, is_one in zip(node.body, is_slots) if not is_one] or [ast.Pass()]


def check(merged: Merged) -> None:
    """Raise ValueError if a part refers to a global name that is not there when it is executed."""
    known = {
        *dir(builtins),
        "__name__",
        "__annotations__",
        LATE,
        LATE_METHOD,
        EXPOSE,
        *list_stored(merged.at_hand.body),
    }
    for part in (merged.at_hand, *merged.parts.values(), *merged.methods.values()):
        here = known | set(list_stored(part.body))
        code = compile(ast.fix_missing_locations(part), "part", "exec", dont_inherit=True)
        for name in list_globals(code):
            if name not in here:
                raise ValueError(f"{name} is not defined where it is used")


def list_globals(code: CodeType) -> "Iterator[str]":
    stored = {one.argval for one in dis.get_instructions(code) if one.opname == "STORE_NAME"}
    for one in dis.get_instructions(code):
        if one.opname == "LOAD_GLOBAL" or one.opname == "LOAD_NAME" and one.argval not in stored:
            yield one.argval
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            yield from (name for name in list_globals(constant) if name not in ("__module__", "__qualname__"))
