#!/usr/bin/env python3
"""How long a new user waits from `git clone` until `make demo` prints the first row of its first table, and until that table is whole.

Packages are installed already; nothing of an earlier build is used, and nothing is left behind.

usage: bench/first_table.py [REPOSITORY]       this one unless given
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

BUDGET_S = 4 * 60
HERE = os.path.dirname(os.path.abspath(__file__))


def rows(lines):
    """When the first row of the first table came, and when the blank line or the end after its last."""
    ruled, first = False, None
    for line in lines:
        if first is None and ruled:
            first = time.monotonic()
            yield first
        elif first is not None and not line.strip():
            break
        ruled = ruled or bool(re.fullmatch(r"-+(  -+)+", line.strip()))
    if first is not None:
        yield time.monotonic()


def main():
    repository = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(HERE)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        clone, log = os.path.join(folder, "skein"), []
        began = time.monotonic()
        subprocess.run(["git", "clone", "-q", repository, clone], check=True)
        demo = subprocess.Popen(["make", "demo"], cwd=clone, env={**os.environ, "CCACHE_DIR": os.path.join(folder, "ccache")}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
        try:
            times = [each - began for each in rows(log.append(line.rstrip()) or line for line in demo.stdout)]
        finally:
            try:
                os.killpg(demo.pid, signal.SIGTERM)  # two more clusters would follow
            except ProcessLookupError:
                pass
            demo.communicate()  # until all of them have ended: the folder goes next
    if not times:
        sys.exit("make demo ended without a table:\n" + "\n".join(log[-20:]))
    first, whole = times
    print(f"the first table is whole after {whole:.0f} s")
    print(f"from git clone to the first row of a table: budget <= {BUDGET_S} s: {first:.0f} s {'ok' if first <= BUDGET_S else 'MISSED'}")


if __name__ == "__main__":
    main()
