"""The sample of mutants in Python: random places in the code, and a random change at each of them.

The changes are cosmic-ray's operators. Places are drawn with equal probability, not changes: else most mutants would be
changes of binary operators, which can each be replaced in eleven ways.
"""

from __future__ import annotations

import ast
import difflib
import random
from dataclasses import dataclass

from tools.mutants import ROOT

PACKAGES = (
    "measure",
    "model",
    "fit",
    "relate",
    "events",
    "taps",
    "findings",
    "diagnosis",
    "compare",
    "report",
    "watch",
    "cli",
    "tables",
)


@dataclass(frozen=True)
class Mutant:
    """One change of one module: the lines before and after it, and the changed text of the module."""

    module: str
    line: int
    before: str
    after: str
    text: str


def draw(size: int, seed: int) -> list[Mutant]:
    """A sample of this size of mutants of the packages: equal for equal seeds and equal code."""
    files = sorted(file for name in PACKAGES for file in (ROOT / "iscsitrace" / name).rglob("*.py"))
    return drawn_from({str(file.relative_to(ROOT)): file.read_text() for file in files}, size, seed)


def drawn_from(modules: dict[str, str], size: int, seed: int) -> list[Mutant]:
    """A sample of this size of mutants of these modules (path to text); smaller if there are too few places."""
    # a dependency of the extra `mutants`
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    choice = random.Random(seed)  # noqa: S311 (a sample, not a secret)
    classes = [get_operator(name) for name in operator_names()]
    operators = [operator() for operator in classes if not operator.arguments()]
    nodes = {module: list(ast_nodes(get_ast(text))) for module, text in modules.items()}
    places = [(module, index) for module in modules for index in range(len(nodes[module]))]
    choice.shuffle(places)
    mutants: list[Mutant] = []
    for module, index in places:
        if len(mutants) == size:
            break
        possible = [operator for operator in operators if any(operator.mutation_positions(nodes[module][index]))]
        if possible:
            operator = choice.choice(possible)
            counts = [len(list(operator.mutation_positions(node))) for node in nodes[module][: index + 1]]
            changed = mutate_code(modules[module], operator, sum(counts[:-1]) + choice.randrange(counts[-1]))
            if meaning(changed) not in (None, meaning(modules[module])):
                mutants.append(mutant_of(module, modules[module], changed))
    return mutants


def mutant_of(module: str, text: str, changed: str) -> Mutant:
    """The mutant with this changed text of a module."""
    old, new = text.splitlines(), changed.splitlines()
    changes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    _, first, end, new_first, new_end = next(change for change in changes if change[0] != "equal")
    line = next((index for index in range(first, end) if old[index].strip()), first)
    before, after = (" ".join(" ".join(part).split()) for part in (old[first:end], new[new_first:new_end]))
    return Mutant(module, line + 1, before, after, changed)


def meaning(text: str) -> str | None:
    """The module without annotations and `frozen`, which only mypy checks; None if it is not valid Python."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        for name in {"annotation", "returns"} & set(node._fields):
            setattr(node, name, ast.Constant(None))
        if isinstance(node, ast.Call):
            node.keywords = [each for each in node.keywords if each.arg != "frozen"]
    return ast.dump(tree)
