"""Where uv finds packages: the variables that are made from pip's settings."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from trainscale.cluster.package_index import make_uv_options, make_uv_variables, parse_pip_settings, read_pip_settings


def test_pip_settings_are_read_and_variables_win_over_files() -> None:
    text = (
        ":env:.find-links=''\n:env:.index-url='https://mirror/simple'\nglobal.index-url='https://other/simple'\n"
        "global.find-links='/wheels'\ninstall.timeout='5'\nglobal.timeout='9'\ndownload.proxy='x'\nnonsense\n"
    )
    assert parse_pip_settings(text) == {
        "index-url": "https://mirror/simple",
        "find-links": "/wheels",
        "timeout": "5",
    }


@pytest.mark.processes
def test_the_settings_of_the_real_pip_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nextra-index-url =\n    https://a/simple\n    https://b/simple\n")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels /more-wheels")
    settings = read_pip_settings()
    assert settings["find-links"] == "/wheels /more-wheels"
    assert make_uv_variables(settings, {})["UV_INDEX"] == "https://a/simple https://b/simple"
    assert make_uv_variables(settings, {})["UV_FIND_LINKS"] == "/wheels,/more-wheels"


@pytest.mark.processes
def test_a_python_without_pip_has_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'No module named pip' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert read_pip_settings() == {}


def test_every_setting_becomes_a_variable_of_uv() -> None:
    settings = {
        "index-url": "https://mirror/simple",
        "trusted-host": "mirror other",
        "cert": "/etc/ca.pem",
        "proxy": "http://proxy:3128",
        "timeout": "60",
        "no-cache-dir": "true",
    }
    assert make_uv_variables(settings, {"HOME": "/home/me"}) == {
        "HOME": "/home/me",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_DEFAULT_INDEX": "https://mirror/simple",
        "UV_INSECURE_HOST": "mirror other",
        "SSL_CERT_FILE": "/etc/ca.pem",
        "ALL_PROXY": "http://proxy:3128",
        "UV_HTTP_TIMEOUT": "60",
        "UV_NO_CACHE": "1",
    }


@pytest.mark.parametrize(
    "variables",
    [
        {"UV_DEFAULT_INDEX": "https://mine/simple"},
        {"UV_INDEX_URL": "https://mine/simple"},
        {"UV_FIND_LINKS": "/mine", "UV_INDEX_URL": "https://mine/simple", "UV_INDEX_STRATEGY": "first-index"},
    ],
)
def test_variables_of_uv_win_over_settings_of_pip(variables: dict[str, str]) -> None:
    settings = {
        "index-url": "https://pip/simple",
        "no-index": "1",
        **({"find-links": "/pip"} if len(variables) > 1 else {}),
    }
    assert make_uv_variables(settings, variables) == {"UV_INDEX_STRATEGY": "unsafe-best-match", **variables}
    assert make_uv_options(settings, variables) == []


def test_no_index_is_an_option() -> None:
    assert make_uv_options({"no-index": "yes"}, {}) == ["--no-index"]
    assert make_uv_options({"no-index": "0"}, {}) == []
    assert make_uv_options({}, {}) == []


def test_relative_folders_count_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wheels").mkdir()
    monkeypatch.chdir(tmp_path)
    settings = {"find-links": "wheels https://example.org/links absent"}
    assert make_uv_variables(settings, {})["UV_FIND_LINKS"] == f"{tmp_path}/wheels,https://example.org/links,absent"
