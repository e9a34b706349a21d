"""Compare the pinned packages with the published advisories.

Exit 1 if a pin has an advisory that is not listed in ACCEPTED; exit 0, and say so, if the advisories cannot be reached.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ACCEPTED: dict[str, str] = {}
"""Advisories that do not concern this project: id, and why not."""

SECONDS = 300


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "audit.json")
        command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--progress-spinner", "off",
                   "--requirement", "requirements.txt", "--format", "json", "--output", str(report)]  # fmt: skip
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
            said = ran.stderr.strip().splitlines()
        except subprocess.TimeoutExpired:
            said = [f"no answer in {SECONDS} s"]
        if not report.exists():  # pip-audit writes a report whenever it had an answer
            print(f"audit skipped: the advisories cannot be reached ({said[-1][:160] if said else 'no reason given'})")
            return 0
        packages = json.loads(report.read_text())["dependencies"]
    found = [(p["name"], p["version"], v["id"], v["fix_versions"]) for p in packages for v in p.get("vulns", [])]
    open_ = [one for one in found if one[2] not in ACCEPTED]
    for name, version, advisory, fixed in open_:
        print(f"{name} {version}: {advisory}; fixed in {', '.join(fixed) or 'no version yet'}")
    print(f"audit: {len(packages)} packages, {len(open_)} with an open advisory, {len(found) - len(open_)} accepted")
    return 1 if open_ else 0


if __name__ == "__main__":
    sys.exit(main())
