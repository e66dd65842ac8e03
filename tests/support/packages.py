"""Packages that tests install with pip into a folder of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"


def install(source: Path, target: Path) -> Path:
    """Install a package without a network. Its build tool, hatchling, is installed with the tests."""
    done = subprocess.run(
        [
            sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps",
            "--no-build-isolation", "--target", str(target), str(source),
        ],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return target


def write_package(folder: Path, name: str, files: dict[str, str], entry_points: dict[str, dict[str, str]]) -> Path:
    """Write a source tree that pip can install: a package of these files, with entry points by group and name."""
    lines = [
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"',
        f'[project]\nname = "{name}"\nversion = "1.0"',
    ]
    for group, entries in entry_points.items():
        lines.append(f'[project.entry-points."{group}"]')
        lines += [f'"{entry}" = "{reference}"' for entry, reference in entries.items()]
    package = folder / name.replace("-", "_")
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text("\n".join(lines) + "\n")
    for file, content in {"__init__.py": "", **files}.items():
        (package / file).write_text(content)
    return folder
