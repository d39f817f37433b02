#!/usr/bin/env python3
"""Shows a header's plain comments to Doxygen as documentation: Doxyfile's INPUT_FILTER.

    filter.py HEADER

- The comment that a file begins with is the file's.
- A comment on lines of its own is that of the declaration right below it; one with an empty line below it is a remark.
- A comment behind a declaration, with lines below it that begin in the same column, is that declaration's.
- Lines of a comment that are indented by three spaces or more are code.
- A comment that begins with "Internal: " keeps what it is for out of the reference.
"""
import re
import sys

OWN = re.compile(r"^(\s*)//( ?)(.*)$")
BEHIND = re.compile(r"^(\s*[^\s/}].*?)\s+// (.*)$")


def as_documentation(indent, texts, mark="///"):
    """The comment's lines, with code set apart."""
    lines, in_code = [], False
    if texts[0].startswith("Internal: "):
        lines.append(f"{indent}{mark} @private")
    for number, text in enumerate(texts):
        following = next((later for later in texts[number:] if later.strip()), "")
        if following.startswith("  ") != in_code and (in_code or text.strip()):
            in_code = not in_code
            lines.append(f"{indent}{mark} @{'code{.cpp}' if in_code else 'endcode'}")
        lines.append(f"{indent}{mark} {text}")
    if in_code:
        lines.append(f"{indent}{mark} @endcode")
    return lines


def filtered(source):
    out, i, seen_code = [], 0, False
    while i < len(source):
        own = OWN.match(source[i])
        if own:
            block = []
            while i < len(source) and (line := OWN.match(source[i])):
                block.append(line.group(3))
                i += 1
            below = source[i].strip() if i < len(source) else ""
            if not seen_code:
                out += ["/// @file"] + as_documentation("", block)
            elif below and not below.startswith(("}", "#if", "#include")):
                out += as_documentation(own.group(1), block)
            seen_code = True
            continue
        seen_code = seen_code or bool(source[i].strip())
        behind = None if source[i].lstrip().startswith(("#if", "#e")) else BEHIND.match(source[i])
        if not behind:
            out.append(source[i])
            i += 1
            continue
        column = source[i].index("// ", len(behind.group(1)))
        texts = [behind.group(2)]
        i += 1
        while i < len(source) and (line := OWN.match(source[i])) and len(line.group(1)) == column:
            texts.append(line.group(3))
            i += 1
        first, *more = as_documentation("", texts, "///<")
        out += [f"{behind.group(1)}  {first}"] + more
    return out


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        print("\n".join(filtered(header.read().splitlines())))
