"""The tests that execute each line, and their durations: measured by coverage, and kept until code or tests change."""

from __future__ import annotations

import ast
import hashlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

from tools.mutants import ROOM
from tools.mutants.working_copy import environment

LONGEST_SECONDS = 10.0
# a mutant changes the generated pages as well, so that comparing them would detect every mutant
GENERATED_PAGES = ("tests/project/test_docs.py", "tests/project/test_tutorial.py", "tests/project/test_plots_page.py")
# a subprocess of a test has the name of the test in its environment; a signal ends some of them
CONFIGURATION = """[run]
parallel = true
data_file = {folder}/coverage
include = {copy}/iscsitrace/*
context = ${{PYTEST_CURRENT_TEST-}}
sigterm = true
disable_warnings = no-data-collected, module-not-measured, couldnt-parse
"""


@dataclass
class Lines:
    """The tests that execute each line of the modules, the duration of each test, and the text of their files."""

    text: dict[str, str]
    executed: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]
    text_of_tests: dict[str, str]

    @classmethod
    def measured(cls, copy: Path, tests: list[str], workers: int, seed: int) -> Lines:
        """Measured in a run of these tests in a working copy, or in the last run if nothing has changed since."""
        from coverage import CoverageData  # a dependency of the extra `mutants`

        state = hashlib.sha256(f"{copy} {tests}".encode())
        for file in sorted(file for top in ("iscsitrace", "tests") for file in (copy / top).rglob("*.[ps][yo]")):
            state.update(file.read_bytes())
        folder = ROOM / f"lines-{state.hexdigest()[:16]}"
        if not (folder / "coverage").exists():
            _run_under_coverage(folder, copy, tests, workers, seed)
        data = CoverageData(str(folder / "coverage"))
        data.read()
        files = {str(Path(file).relative_to(copy)): file for file in data.measured_files()}
        executed = {module: data.contexts_by_lineno(file) for module, file in files.items()}
        text = {module: Path(file).read_text() for module, file in files.items()}
        seconds = seconds_of_passed((folder / "tests.xml").read_text())
        text_of_tests = {file: (copy / file).read_text() for file in sorted({test.split("::")[0] for test in seconds})}
        return cls(text, executed, seconds, text_of_tests)

    def tests_of(self, module: str, line: int) -> list[str]:
        """The tests that execute a line, the quickest first, grouped by file: tests of a file share fixtures."""
        around = [node for node in ast.walk(ast.parse(self.text.get(module, ""))) if line in _lines_of(node)]
        functions = [node for node in around if isinstance(node, ast.FunctionDef)]
        contexts = set(self.executed.get(module, {}).get(line, []))
        # a line that runs at import, or in a cached function, counts for all tests that use its name
        is_cached = any("cache" in ast.unparse(decorator) for node in functions for decorator in node.decorator_list)
        if around and (is_cached or not functions or line < functions[-1].body[0].lineno):
            contexts = {f"{context} (setup)" for context in contexts if "::" in context} if is_cached else set()
            contexts |= self._contexts_by_name(module, around[0])
        files = {context.split("::")[0] for context in contexts if context.endswith("(setup)")}
        names = {context.rpartition(" (")[0] for context in contexts}
        tests = [test for test in self.seconds if test in names or test.split("::")[0] in files]
        total: dict[str, float] = {}
        for test in tests:
            total[test.split("::")[0]] = total.get(test.split("::")[0], 0) + self.seconds[test]
        return sorted(tests, key=lambda test: (total[test.split("::")[0]], self.seconds[test], test))

    def _contexts_by_name(self, module: str, statement: ast.AST) -> set[str]:
        """Contexts of the lines of a statement, and of the lines that use a name which it defines."""
        stored = {
            node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        names = {statement.name} if isinstance(statement, ast.FunctionDef | ast.ClassDef) else stored
        used = re.compile(rf"\b({'|'.join(sorted(names)) or '(?!)'})\b")
        found: set[str] = set()
        for file, text in self.text.items():
            for number, content in enumerate(text.splitlines(), 1):
                if used.search(content) or (file == module and number in _lines_of(statement)):
                    found.update(self.executed[file].get(number, []))
        # a test that uses it directly
        return found | {f"{file}:: (setup)" for file, text in self.text_of_tests.items() if used.search(text)}


def _lines_of(node: ast.AST) -> range:
    if not isinstance(node, ast.stmt):
        return range(0)
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
    return range(
        min([node.lineno, *(decorator.lineno for decorator in decorators)]), (node.end_lineno or node.lineno) + 1
    )


def _run_under_coverage(folder: Path, copy: Path, tests: list[str], workers: int, seed: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    configuration = folder / "coveragerc"
    configuration.write_text(CONFIGURATION.format(folder=folder, copy=copy))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tools.mutants.contexts",
        "-p",
        "no:cacheprovider",
        "--tb=line",
    ]
    command += ["-m", "not needs_root", f"--numprocesses={workers}", "--dist=worksteal", f"--hypothesis-seed={seed}"]
    command += [f"--ignore={page}" for page in GENERATED_PAGES] + [f"--junitxml={folder / 'tests.xml'}", *tests]
    measured = environment(copy) | {"COVERAGE_PROCESS_START": str(configuration)}
    # tests that fail under coverage are not used to test mutants
    subprocess.run(command, cwd=copy, env=measured, check=False, stdout=sys.stderr)
    subprocess.run(
        [sys.executable, "-m", "coverage", "combine", "-q", f"--rcfile={configuration}"], cwd=folder, check=True
    )


def seconds_of_passed(junit: str) -> dict[str, float]:
    """Durations of the tests that passed in pytest's JUnit report, except those that take too long."""
    seconds = {}
    for case in ET.fromstring(junit).iter("testcase"):  # noqa: S314 (pytest wrote it)
        if (
            not {"failure", "error", "skipped"} & {child.tag for child in case}
            and float(case.attrib["time"]) <= LONGEST_SECONDS
        ):
            test = f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name']}"
            seconds[test] = float(case.attrib["time"])
    return seconds
