"""Installed packages of third parties, each in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def use(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Commands find these installed packages, before whatever they found already."""
    already = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*map(str, folders), *already]))


def write_installed_package(
    folder: Path, name: str, files: dict[str, str], entry_points: dict[str, dict[str, str]]
) -> Path:
    """Write what pip installs: a package of these files, with entry points by group and name. Return the folder."""
    package, metadata = folder / name.replace("-", "_"), folder / f"{name.replace('-', '_')}-1.0.dist-info"
    for path in (package, metadata):
        path.mkdir(parents=True)
    for file, content in {"__init__.py": "", **files}.items():
        (package / file).write_text(content)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = []
    for group, entries in entry_points.items():
        lines += [f"[{group}]", *(f"{entry} = {reference}" for entry, reference in entries.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder
