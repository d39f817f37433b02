#!/usr/bin/env python3
"""Runs every command that the documentation shows, as a reader would type it, and looks up every message that it quotes and every file to which it links.

    commands.py SKEIN SOURCE_DIR [PAGE…]

The commands are those in blocks marked `sh` of README.md and docs/*.md. The blocks of a page run one after the other in a folder of its own, in which the
project's files and `build/skein` are where a reader has them. `make TARGET` is looked up, and not run. A comment on the line above a block changes that:

    <!-- test: skip: WHY -->          it is not run, and the reason is printed
    <!-- test: add OPTIONS -->        each `skein train` of the block gets these too: to be shorter
    <!-- test: replace OLD by NEW --> in the block's text

A command with a `$` before it, in a block that is not marked, would never run: that is an error.

Messages are what stands in the first column of the tables of docs/troubleshooting.md between backquotes; each must be in the program, `…` standing for anything.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

LIMIT_S = 1200  # more than a busy machine needs: what takes as long hangs
ANY_BLOCK = re.compile(r"^ *```(?P<kind>[^\n]*)\n(?P<text>.*?)^ *```", re.M | re.S)
BLOCK = re.compile(r"^(?P<indent> *)```sh\n(?P<text>.*?)^ *```", re.M | re.S)
NOTE = re.compile(r"<!-- test: (.*?) -->")


class Block:
    def __init__(self, page, match, text):
        self.line = text.count("\n", 0, match.start()) + 1
        self.page = page
        indent = match["indent"]
        self.text = "".join(line[len(indent):] if line.startswith(indent) else line for line in match["text"].splitlines(True))
        self.notes = []
        for line in reversed(text[: match.start()].splitlines()):
            note = NOTE.fullmatch(line.strip())
            if not note:
                break
            self.notes.insert(0, note[1])

    def skipped(self):
        return next((note[len("skip: "):] for note in self.notes if note.startswith("skip: ")), None)

    def commands(self):
        text = self.text
        for note in self.notes:
            kind, _, rest = note.partition(" ")
            if kind == "add":
                joined = text.replace("\\\n", " ")
                text = re.sub(r"(skein train[^\n#|;]*)", lambda m: f"{m[1].rstrip()} {rest} ", joined)
            elif kind == "replace":
                old, _, new = rest.partition(" by ")
                if old not in text:
                    raise ValueError(f"there is no '{old}' to replace")
                text = text.replace(old, new)
            elif kind != "skip:":
                raise ValueError(f"test: {note}: expected skip, add or replace")
        return re.sub(r"^make (?=[a-z])", "make -n ", text, flags=re.M)


def place(folder, skein, source):
    """The project as a reader has it: its files, and the program in build/."""
    for entry in os.listdir(source):
        if not entry.startswith(("build", "out", ".git")):
            os.symlink(os.path.join(source, entry), os.path.join(folder, entry))
    os.mkdir(os.path.join(folder, "build"))
    for entry in os.listdir(os.path.dirname(skein)):
        os.symlink(os.path.join(os.path.dirname(skein), entry), os.path.join(folder, "build", entry))


def environment(folder):
    """That of a reader whose home is `folder` and who has installed the program. As root, and with fewer cores than workers, Open MPI wants to be told."""
    more = {"HOME": folder, "PATH": os.path.join(folder, "build") + ":" + os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "", "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    return {**os.environ, **more}


def run(block, folder):
    try:
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", block.commands()], cwd=folder, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=LIMIT_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as late:
        return f"did not end within {LIMIT_S} s\n{late.output or ''}"
    except ValueError as error:
        return str(error)
    return "" if done.returncode == 0 else f"exit code {done.returncode}\n" + "\n".join(done.stdout.splitlines()[-15:])


def run_page(page, skein, source):
    """How many blocks ran, how many were skipped, and what went wrong."""
    with open(os.path.join(source, page), encoding="utf-8") as file:
        text = file.read()
    blocks = [Block(page, match, text) for match in BLOCK.finditer(text)]
    ran, skipped, wrong = 0, 0, unmarked_commands(page, text)
    with tempfile.TemporaryDirectory(prefix="skein-docs-") as folder:
        if blocks:
            place(folder, skein, source)
        for block in blocks:
            where = f"{page}:{block.line}"
            if block.skipped() is not None:
                print(f"{where}: skipped: {block.skipped()}", flush=True)
                skipped += 1
                continue
            print(f"{where}: {block.text.splitlines()[0]}", flush=True)
            ran += 1
            failure = run(block, folder)
            if failure:
                wrong.append(f"{where}: {failure}\n--- the block\n{block.text}")
    return ran, skipped, wrong


def unmarked_commands(page, text):
    """Commands that look like ones of a shell and stand in a block that nobody runs."""
    return [f"{page}:{text.count(chr(10), 0, block.start('text') + line.start()) + 1}: '{line[0]}' never runs: put the command in a block marked sh"
            for block in ANY_BLOCK.finditer(text) if block["kind"].strip() != "sh" for line in re.finditer(r"^ *\$ .*", block["text"], re.M)]


def program_text(source):
    parts = []
    for kind in ("cpp", "h", "cu"):
        for path in glob.glob(os.path.join(source, "src", "**", f"*.{kind}"), recursive=True):
            with open(path, encoding="utf-8") as file:
                parts.append(re.sub(r'"\s*\n\s*"', "", file.read()))  # literals that stand in several lines
    return "\n".join(parts)


def broken_links(source):
    """Links of README.md and the pages to files of the project; the site's builder sees those between pages alone."""
    broken = []
    for page in ["README.md", "CONTRIBUTING.md", *sorted(os.path.relpath(path, source) for path in glob.glob(os.path.join(source, "docs/*.md")))]:
        with open(os.path.join(source, page), encoding="utf-8") as file:
            text = re.sub(r"```.*?```|`[^`\n]*`", "", file.read(), flags=re.S)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if not re.match(r"[a-z]+:", target) and not os.path.exists(os.path.join(source, os.path.dirname(page), target)):
                broken.append(f"{page}: the link {target} leads nowhere")
    return broken


def missing_messages(source):
    with open(os.path.join(source, "docs/troubleshooting.md"), encoding="utf-8") as file:
        rows = re.findall(r"^\| `([^`]+)`", file.read(), re.M)
    program = program_text(source)
    missing = [f"docs/troubleshooting.md: '{part}' of '{row}' is in no message of the program"
               for row in rows for part in map(str.strip, row.split("…")) if len(part) > 2 and part not in program]
    print(f"docs/troubleshooting.md: {len(rows)} messages looked up", flush=True)
    return missing if rows else ["docs/troubleshooting.md has no messages"]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    skein, source = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    pages = sys.argv[3:] or ["README.md", *sorted(os.path.relpath(path, source) for path in glob.glob(os.path.join(source, "docs/*.md")))]
    ran, skipped, wrong = 0, 0, []
    for page in pages:
        more, fewer, failures = run_page(page, skein, source)
        ran, skipped, wrong = ran + more, skipped + fewer, wrong + failures
    if not sys.argv[3:]:
        wrong += missing_messages(source) + broken_links(source)
    for each in wrong:
        print(f"\nFAILED {each}")
    print(f"\n{ran} blocks of commands ran, {skipped} were skipped, {len(wrong)} failures")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
