"""Files that comments, docstrings and pages name exist."""

import re
from pathlib import Path

import pytest
from doc_pages import PAGES, ROOT

FILES = [path for path in ROOT.glob("[!.]*/**/*") if path.is_file() and "__pycache__" not in path.parts]
NAMES = {path.relative_to(ROOT).as_posix() for path in FILES if path.suffix in (".py", ".md", ".sh")}
ENDINGS = {name[start:] for name in NAMES for start in (0, *(match.end() for match in re.finditer("/", name)))}
OTHERS = {"parse_log.py", "my_training.py", "ray.py"}  # of other projects, and examples

# The folders of this project, under which a path in a page must exist; those of the package are named without it.
TOP = ("src", "docs", "tests", "bench", "examples")
PACKAGE = sorted(path.name for path in (ROOT / "src" / "trainscale").iterdir() if path.is_dir() and path.name[0] != "_")
FOLDERS = "|".join((*TOP, *PACKAGE))


def test_files_that_the_source_names_exist() -> None:
    pattern = r"(?<![\w/.{}-])(?:[\w-]+/)*[\w-]+\.(?:py|md)\b"
    named = {path: set(re.findall(pattern, path.read_text())) for path in sorted((ROOT / "src").rglob("*.py"))}
    missing = {path.name: names - OTHERS - ENDINGS for path, names in named.items()}
    assert {name: names for name, names in missing.items() if names} == {}


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "bench" / "README.md"], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_paths_that_a_page_names_exist(page: Path) -> None:
    """Paths such as `tests/lab`, `bench/overhead.py` or `launch/trial/state.py`. NAME in a path stands for any name."""
    pattern = rf"(?<![\w/.:{{}}~$-])((?:{FOLDERS})/[\w./-]*[\w/])(?!\w|…|/?\*|\{{)"
    named = [name for name in re.findall(pattern, page.read_text()) if not re.search("[A-Z]{3}", name)]
    package = ROOT / "src" / "trainscale"
    assert [name for name in named if not (ROOT / name).exists() and not (package / name).exists()] == []
