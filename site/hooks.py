"""What the site needs beside mkdocs: the library's reference, which Doxygen has written, and links that leave docs/.

A page links to files of the project by relative paths (../CONTRIBUTING.md): they are shown as what they are, text.
"""
import os
import re
import shutil

HERE = os.path.dirname(os.path.abspath(__file__))
REFERENCE = os.path.join(HERE, "../build/reference/html")


def on_page_markdown(markdown, page, config, files):
    """Links to what is not part of the site become the names of files; each must exist."""

    def outside(match):
        text, target = match.groups()
        path = os.path.normpath(os.path.join(config["docs_dir"], os.path.dirname(page.file.src_path), target.split("#")[0]))
        if not os.path.exists(path):
            raise SystemExit(f"{page.file.src_path}: the link {target} leads nowhere")
        name = os.path.relpath(path, os.path.join(HERE, ".."))
        return f"`{name}`" if text.strip("`") in (name, target) else f"{text} (`{name}`)"

    return re.sub(r"\[([^\]]*)\]\((\.\./[^)\s]*)\)", outside, markdown)


def on_post_build(config):
    target = os.path.join(config["site_dir"], "reference")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(REFERENCE, target)
