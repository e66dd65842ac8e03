"""Tells uv where pip finds packages: uv does not read pip's configuration itself. uv's own variables win."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_SECTIONS = ("global", "install", ":env:")  # in pip's order: the last one wins
_TRUE = ("1", "true", "yes", "on")
# The variable of uv for each setting of pip, and an older variable of uv with the same meaning.
_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    "extra-index-url": ("UV_INDEX", "UV_EXTRA_INDEX_URL"),
    "find-links": ("UV_FIND_LINKS", ""),
    "trusted-host": ("UV_INSECURE_HOST", ""),
    "constraint": ("UV_CONSTRAINT", ""),
    "timeout": ("UV_HTTP_TIMEOUT", ""),
    "default-timeout": ("UV_HTTP_TIMEOUT", ""),
    "cert": ("SSL_CERT_FILE", ""),
    "client-cert": ("SSL_CLIENT_CERT", ""),
    "proxy": ("ALL_PROXY", ""),
}
_PATHS = ("find-links", "constraint", "cert", "client-cert")  # relative ones count from the current folder


def read_pip_settings() -> dict[str, str]:
    """Return pip's settings for ``pip install`` from its files and variables; none if this Python has no pip."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    return parse_pip_settings(done.stdout) if done.returncode == 0 else {}


def parse_pip_settings(text: str) -> dict[str, str]:
    """Parse the output of ``pip config list``: lines such as ``global.index-url='https://…'``."""
    sections: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if equals and section in sections:
            try:
                sections[section][key] = str(ast.literal_eval(value))
            except (ValueError, SyntaxError):
                continue
    return {key: value for section in _SECTIONS for key, value in sections[section].items() if value.strip()}


def make_uv_variables(settings: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables for uv: those of the user, and pip's settings where the user set none."""
    variables = dict(environment)
    # pip compares the versions of all indexes; uv would take those of the first index that has the package.
    variables.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    for key, (variable, older_variable) in _VARIABLES.items():
        if key in settings and not environment.get(variable) and not environment.get(older_variable):
            separator = "," if variable == "UV_FIND_LINKS" else " "
            values = settings[key].split()
            variables[variable] = separator.join(map(_make_absolute, values) if key in _PATHS else values)
    if settings.get("no-cache-dir", "").lower() in _TRUE:
        variables.setdefault("UV_NO_CACHE", "1")
    return variables


def make_uv_options(settings: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the options of ``uv pip install`` for which uv has no variable."""
    has_own_index = any(environment.get(name) for key in ("index-url", "extra-index-url") for name in _VARIABLES[key])
    return ["--no-index"] if settings.get("no-index", "").lower() in _TRUE and not has_own_index else []


def _make_absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute()) if "://" not in path and Path(path).expanduser().exists() else path
