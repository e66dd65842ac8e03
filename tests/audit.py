"""Looks for known weaknesses: of our own code (bandit), of installed packages (pip-audit), of workflow files (zizmor).

python tests/audit.py

It ends with 1 if something is found that is not explained below, and says what it could not check.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent

# Findings of bandit that are no weakness here: file and test → why.
EXPLAINED = {
    ("worker/keeper/bootstrap.py", "B202"): "the archive is the controller's own and checked by its digest",
    ("worker/keeper/program.py", "B202"): "the archive holds the user's own folder, sent by the user's controller",
    ("cluster/datasets.py", "B310"): "http, https and files of the user; what arrives is checked by its checksum",
    ("cluster/yarn.py", "B104"): "a default of Hadoop that is recognised, not an address to listen on",
    ("cluster/yarn.py", "B314"): "Hadoop's own configuration files, which its administrator wrote",
    ("cluster/hosts.py", "B108"): "a default of --remote-dir; below it is a folder that only the user may enter",
    ("spec/groups.py", "B108"): "the same default, in a help text",
    ("worker/inspection/host.py", "B108"): "the same default",
    ("launch/launchers/mpi.py", "B108"): "the folder is made by mkdtemp, which only the user may enter",
    ("report/pages.py", "B704"): "of this package, or JSON whose < is encoded; the template escapes what users write",
}


def main() -> int:
    return int(audit_code()) | int(audit_packages()) | int(audit_workflows())


def audit_code() -> bool:
    """Return whether bandit finds something of medium or high severity that is not explained."""
    command = [str(BIN / "bandit"), "-q", "-r", "src", "-ll", "-f", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    findings: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    keys = [(f["filename"].removeprefix("src/trainscale/"), f["test_id"]) for f in findings]
    new = [f for f, key in zip(findings, keys, strict=True) if key not in EXPLAINED]
    for finding in new:
        print(f"bandit: {finding['filename']}:{finding['line_number']}: {finding['test_id']} {finding['issue_text']}")
    for file, test in sorted(set(EXPLAINED) - set(keys)):
        print(f"bandit: {file}: {test} is explained in {Path(__file__).name} and no longer found; remove it there")
    print(f"bandit: {len(new)} findings, besides {len(findings) - len(new)} that are explained")
    return bool(new)


def audit_packages() -> bool:
    """Return whether an installed package has a known weakness. Without its data pip-audit cannot know that."""
    command = [str(BIN / "pip-audit"), "--progress-spinner", "off", "--skip-editable", "--format", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, subprocess.TimeoutExpired):
        packages = []
    skipped = [p["name"] for p in packages if "skip_reason" in p]  # a mirror of the index may not have the data either
    if len(skipped) == len(packages):
        print("pip-audit: NOT CHECKED, because its data could not be downloaded; run this with a network")
        return False
    if skipped:
        print(f"pip-audit: NOT CHECKED: {', '.join(skipped)}")
    weak = [(p["name"], p["version"], v["id"]) for p in packages for v in p.get("vulns", ())]
    for name, version, identifier in weak:
        print(f"pip-audit: {name} {version}: {identifier}")
    print(f"pip-audit: {len(weak)} weaknesses in {len(packages) - len(skipped)} packages")
    return bool(weak)


def audit_workflows() -> bool:
    workflows = ROOT / ".github" / "workflows"
    if not workflows.is_dir():
        print("zizmor: nothing to check, because there are no workflow files")
        return False
    return subprocess.run([str(BIN / "zizmor"), "--offline", str(workflows)], check=False).returncode != 0


if __name__ == "__main__":
    sys.exit(main())
