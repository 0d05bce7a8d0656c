"""The check for import circles and shared class names: small crates and packages with and without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.circles import circles, describe, main, python_arrows
from tools.rust_imports import rust_arrows, rust_tokens


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def rust(root: Path, files: dict[str, str]) -> list[list[str]]:
    """Circles of a crate with these files, as names of files."""
    source = write(root, {f"core/one/src/{name}": text for name, text in files.items()}) / "core" / "one" / "src"
    return [[str(file.relative_to(source)) for file in circle] for circle in circles(rust_arrows(root / "core"))]


def python(root: Path, files: dict[str, str]) -> list[list[str]]:
    package = write(root, {f"package/{name}": text for name, text in files.items()}) / "package"
    return [[str(file.relative_to(package)) for file in circle] for circle in circles(python_arrows(package))]


PAIR = "mod a;\nmod b;\n"


@pytest.mark.parametrize(
    ("a", "b", "is_circle"),
    [
        ("use crate::b::Bar; pub struct Foo;", "use crate::a::Foo; pub struct Bar;", True),
        ("use crate::b::Bar; pub struct Foo;", "pub struct Bar;", False),
        ("use super::b::Bar; pub struct Foo;", "pub struct Bar(super::a::Foo);", True),
        ("use crate::{b::{Bar, self}, std}; pub struct Foo;", "use crate::{a::{Foo}}; pub struct Bar;", True),
        ("use crate::b; fn f() { b::g() }", "use crate::a as first; pub fn g() { first::f() }", True),
        # a module that is imported and not used is no arrow
        ("use crate::b; fn f() {}", "use crate::a::f; pub fn g() {}", False),
        ("use crate::b::*; pub struct Foo;", "use crate::a::Foo; pub struct Bar;", True),
        # comments, literals and other crates have no paths
        ("use crate::b::Bar; pub struct Foo;", "// crate::a::Foo\n/* /* */ crate::a::Foo */ pub struct Bar;", False),
        ("use crate::b::Bar; pub struct Foo;", 'pub struct Bar; const T: &str = "crate::a::Foo";', False),
        ("use crate::b::Bar; pub struct Foo;", "pub struct Bar; const C: char = '\"'; type T = crate::a::Foo;", True),
        ("use crate::b::Bar; pub struct Foo;", "use ::other::a::Foo; use other::a::Baz; pub struct Bar;", False),
        # tests may use everything
        (
            "use crate::b::Bar; pub struct Foo;",
            "pub struct Bar; #[cfg(test)] mod tests { use crate::a::Foo; }",
            False,
        ),
        ("use crate::b::Bar; pub struct Foo;", "pub struct Bar; #[cfg(test)] use crate::a::Foo;", False),
        ("use crate::b::Bar; pub struct Foo;", "pub struct Bar; #[cfg(not(test))] use crate::a::Foo;", True),
        # a block within a file: its `super` is the file
        ("use crate::b::Bar; pub struct Foo;", "pub struct Bar; mod inner { use super::super::a::Foo; }", True),
        ("use crate::b::Bar; pub struct Foo;", "pub struct Bar; mod inner { use super::Bar; }", False),
        ("fn f() -> u8 { super::b::g::<u8>() }", "pub fn g<T>() -> T { crate::a::f() }", True),
    ],
)
def test_two_files_of_a_crate(tmp_path: Path, a: str, b: str, is_circle: bool) -> None:
    assert rust(tmp_path, {"lib.rs": PAIR, "a.rs": a, "b.rs": b}) == ([["a.rs", "b.rs"]] if is_circle else [])


def test_declaring_a_module_is_no_arrow(tmp_path: Path) -> None:
    child = "use super::Limit; pub struct Child;"
    assert rust(tmp_path / "declared", {"lib.rs": "mod child; pub struct Limit;", "child.rs": child}) == []
    used = "mod child; use child::Child; pub struct Limit;"
    assert rust(tmp_path / "used", {"lib.rs": used, "child.rs": child}) == [["child.rs", "lib.rs"]]
    spelled = "mod child; pub struct Limit; type T = child::Child;"
    assert rust(tmp_path / "spelled", {"lib.rs": spelled, "child.rs": child}) == [["child.rs", "lib.rs"]]


@pytest.mark.parametrize("parent", ["parent.rs", "parent/mod.rs"])
def test_a_name_is_followed_through_a_reexport(tmp_path: Path, parent: str) -> None:
    files = {
        "lib.rs": "mod parent;",
        parent: "mod first; mod second; pub use first::First; pub use self::second::*;",
        "parent/first.rs": "pub struct First;",
        "parent/second.rs": "use super::First; pub struct Second;",
    }
    assert rust(tmp_path / "tree", files) == []
    files["parent/first.rs"] = "use super::Second; pub struct First;"
    assert rust(tmp_path / "circle", files) == [["parent/first.rs", "parent/second.rs"]]


def test_a_module_file_and_mod_rs_have_the_same_children(tmp_path: Path) -> None:
    for parent in ("outer.rs", "outer/mod.rs"):
        files = {
            "lib.rs": "mod outer; mod other;",
            parent: "pub mod inner;",
            "outer/inner.rs": "use super::super::other::Other; pub struct Inner;",
            "other.rs": "use crate::outer::inner::Inner; pub struct Other;",
        }
        assert rust(tmp_path / parent, files) == [["other.rs", "outer/inner.rs"]]


def test_a_test_file_does_not_count(tmp_path: Path) -> None:
    files = {
        "lib.rs": "#[cfg(test)]\n#[allow(unused)]\npub(crate) mod tests; mod a; use a::A; pub struct B;",
        "a.rs": "pub struct A;",
        "tests.rs": "use super::B;",
    }
    assert rust(tmp_path, files) == []


def test_a_circle_of_three_files_is_reported_with_its_names(tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a; mod b; mod c; mod free;",
        "a.rs": "use crate::b::{Bar, bar}; pub struct Foo;",
        "b.rs": "use crate::c::Baz; pub struct Bar; pub fn bar() {}",
        "c.rs": "use crate::a::Foo; use crate::free::Free; pub struct Baz;",
        "free.rs": "pub struct Free;",
    }
    assert rust(tmp_path, files) == [["a.rs", "b.rs", "c.rs"]]
    arrows = rust_arrows(tmp_path / "core")
    (circle,) = circles(arrows)
    assert describe(circle, arrows, tmp_path / "core" / "one" / "src").splitlines() == [
        "import circle of 3 files:",
        "  a.rs -> b.rs: Bar, bar",
        "  b.rs -> c.rs: Baz",
        "  c.rs -> a.rs: Foo",
    ]


def test_tokens_are_words_and_signs() -> None:
    code = r"""fn f<'a>(x: &'a str) -> char { /* no /* nested */ */ r#"raw " text"#; b'\''; "a\"b"; 'x' } // end"""
    assert rust_tokens(code) == [*"fn f < > ( x : & str ) - > char { ; ; ; }".split()]


@pytest.mark.parametrize(
    ("a", "b", "is_circle"),
    [
        ("from package.b import bar", "from package.a import foo", True),
        ("from package.b import bar", "import os", False),
        ("import package.b", "from . import a", True),
        # one inside a function counts, one for type checkers does not
        ("from package.b import bar", "def f():\n    from .a import foo", True),
        (
            "from package.b import bar",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from package.a import foo",
            False,
        ),
        (
            "from package.b import bar",
            "import typing\nif typing.TYPE_CHECKING:\n    pass\nelse:\n    from package.a import foo",
            True,
        ),
        ("from package.b import bar", "from other.a import foo", False),
        # a name in a string may be imported; a docstring only tells of it
        ("from package.b import bar", 'HOMES = {"foo": "package.a"}', True),
        ("from package.b import bar", '"""package.a"""\nLIMIT = 1', False),
        ("from package.b import bar", 'TEXT = "see package.a"', False),
    ],
)
def test_two_files_of_a_package(tmp_path: Path, a: str, b: str, is_circle: bool) -> None:
    assert python(tmp_path, {"__init__.py": "", "a.py": a, "b.py": b}) == ([["a.py", "b.py"]] if is_circle else [])


def test_a_module_that_imports_from_its_package(tmp_path: Path) -> None:
    sub = {"sub/__init__.py": "from .inner import thing\nLIMIT = 1", "__init__.py": ""}
    assert python(tmp_path / "name", {**sub, "sub/inner.py": "from . import LIMIT"}) == [
        ["sub/__init__.py", "sub/inner.py"]
    ]
    siblings = {**sub, "sub/inner.py": "from . import other", "sub/other.py": "from .. import sub"}
    assert python(tmp_path / "siblings", siblings) == [["sub/__init__.py", "sub/inner.py", "sub/other.py"]]
    assert python(tmp_path / "tree", {**siblings, "sub/other.py": ""}) == []


def test_a_compiled_module_is_no_file_of_the_package(tmp_path: Path) -> None:
    files = {"__init__.py": 'HOMES = {"foo": "package.a"}', "a.py": "from package import _core"}
    assert python(tmp_path / "compiled", files | {"_core.pyi": ""}) == []
    assert python(tmp_path / "name", files) == [["__init__.py", "a.py"]]


def test_it_fails_when_there_is_a_circle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {
        "core/one/src/lib.rs": PAIR,
        "core/one/src/a.rs": "pub struct A;",
        "core/one/src/b.rs": "use crate::a::A;",
        "iscsitrace/__init__.py": "",
        "iscsitrace/a.py": "from iscsitrace.b import b",
        "iscsitrace/b.py": "",
    }
    assert main(write(tmp_path, files)) == 0
    assert capsys.readouterr().out == ""
    write(tmp_path, {"iscsitrace/b.py": "import iscsitrace.a"})
    assert main(tmp_path) == 1
    assert "iscsitrace/a.py -> iscsitrace/b.py: b" in capsys.readouterr().out


def test_it_fails_when_two_classes_have_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inner = "class Other:\n    class Line: ...\n"
    files = {"__init__.py": "", "a.py": "class Line: ...", "b.py": inner + "from iscsitrace.a import Line"}
    root = write(tmp_path, {f"iscsitrace/{name}": text for name, text in files.items()} | {"core/one/src/lib.rs": ""})
    assert main(root) == 0
    assert capsys.readouterr().out == ""
    write(root, {"iscsitrace/sub/c.py": "class Line(int): ..."})
    assert main(root) == 1
    assert capsys.readouterr().out == "classes with the name Line: iscsitrace/a.py, iscsitrace/sub/c.py\n"
