"""The interpreter of each framework, and tiny environments that tests create in seconds and without a network."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
import tiers

from trainscale.cluster import environments
from trainscale.cluster.environments import FACTS, Definition
from trainscale.launch.hosts import choose_pythons


def python_for(framework: str) -> str:
    """Return the tests' own interpreter if it has the framework, else that of an environment (make test makes them)."""
    tiers.require("framework")
    return choose_pythons([framework], {})[framework]


def fabricate(name: str, modules: tuple[str, ...] = (), **facts: Any) -> Path:
    """Create a folder that looks like an environment: a Python that cannot run, and modules of one empty file each."""
    folder = environments.find_environments_folder() / name
    site = folder / "lib/python3.11/site-packages"
    site.mkdir(parents=True)
    for module in modules:
        (site / module).mkdir()
        (site / module / "__init__.py").touch()
    (folder / "bin").mkdir()
    (folder / "bin/python").touch(mode=0o755)
    if facts:
        known = environments.DEFINITIONS.get(name)
        digest = known.compute_digest(cuda=False) if known else ""
        (folder / FACTS).write_text(json.dumps({"complete": True, "cuda": False, "digest": digest, **facts}))
    return folder


def only_local_packages(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let neither pip nor uv use an index, settings of this machine, or the user's cache."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("UV_CACHE_DIR", str(folder / "cache"))
    monkeypatch.setenv("UV_NO_CONFIG", "1")


def define(folder: Path, *requirements: str, name: str = "tiny") -> Definition:
    """Return the definition of an environment with these requirements, for CPUs and for CUDA."""
    folder.mkdir(exist_ok=True)
    definition = Definition(name, ("torch",), files=folder)
    for cuda in (False, True):
        definition.find_requirements(cuda).write_text("\n".join(requirements) + "\n")
    return definition


def write_wheel(folder: Path, name: str, version: str = "1.0", files: int = 1) -> str:
    """Write a wheel; return the requirement line that names it."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    content = {f"{name}/__init__.py": f'VERSION = "{version}"\n'}
    content |= {f"{name}/part{number}.py": f"NUMBER = {number}\n" for number in range(files - 1)}
    content[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    content[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    content[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in [*content, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in content.items():
            wheel.writestr(file, text)
    return f"{name} @ {path.as_uri()}"


def write_stuck_package(folder: Path, name: str = "stuck") -> tuple[str, Path]:
    """Write a package whose build opens a pipe and waits for ever; return its requirement line and the pipe."""
    source = folder / name
    source.mkdir()
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    (source / "pyproject.toml").write_text(
        f'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{name}"\nversion = "1"\n'
    )
    (source / "backend.py").write_text(
        f"import signal\n"
        f"def build_wheel(*arguments, **settings):\n"
        f"    with open({str(pipe)!r}, 'w') as pipe:\n"
        f"        pipe.write('building'); pipe.flush()\n"
        f"        signal.pause()\n"  # reading the pipe here would take from the test what it waits for
    )
    return f"{name} @ {source.as_uri()}", pipe
