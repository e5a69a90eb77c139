"""Sphinx: the documentation site. ``nox -s docs`` builds it."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import subprocess
import sys

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.autodoc.mock import mock  # type: ignore[attr-defined]
from sphinx.util import logging

import fastrec

project = "fastrec"
author = "The fastrec authors"
copyright = author
release = importlib.metadata.version("fastrec-io")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]

# Pages.
exclude_patterns = ["_build"]
highlight_language = "default"
myst_heading_anchors = 3  # as on GitHub, so links work in both
myst_enable_extensions = ["colon_fence"]
copybutton_prompt_text = "$ "

# The API reference. Frameworks need not be installed: adapters only name them.
default_role = "py:obj"
add_module_names = False
autodoc_default_options = {"members": True, "inherited-members": "tuple,dict"}
autodoc_member_order = "bysource"
autodoc_mock_imports = [
    *("google", "grain", "jax", "keras", "polars", "pyarrow", "ray", "tensorflow"),
    "torch",
]
autodoc_typehints = "none"  # docstrings name types, shapes and units
napoleon_google_docstring = False
napoleon_use_param = False  # types as the docstring has them
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]

# Looks.
html_theme = "furo"
html_title = "fastrec"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_theme_options = {
    "source_repository": "https://github.com/fastrec/fastrec",
    "source_branch": "main",
    "source_directory": "docs/",
    "top_of_page_buttons": ["view"],
}


TYPER = [sys.executable, "-m", "typer"]


def append_commands(_app: Sphinx, page: str, source: list[str]) -> None:
    """Append what typer writes about the commands to their page."""
    if page == "command-reference":
        done = subprocess.run(
            [*TYPER, "fastrec.cli.app", "utils", "docs", "--name", "fastrec"],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        commands = done.stdout[done.stdout.index("## ") :]  # without the overview
        parts = commands.replace(" <list[str]>`", "`").split("`")
        parts[::2] = [re.sub(r"--\w[\w-]*", r"`\g<0>`", part) for part in parts[::2]]
        source[0] += "\n" + "`".join(parts)


def check_names(_app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of public names that the API reference lacks."""
    documented = {
        *env.domains.python_domain.objects,
        *env.domains.python_domain.modules,
    }
    names = {f"fastrec.{name}" for name in dir(fastrec)} - {"fastrec.compat"}
    with mock(autodoc_mock_imports):
        for module in env.domains.python_domain.modules:
            public = importlib.import_module(module).__all__
            names |= {f"{module}.{name}" for name in public}
    for name in sorted(names - documented):
        logging.getLogger(__name__).warning("%s is not in docs/api", name)


def setup(app: Sphinx) -> None:
    """Connect the command reference and the check of the API reference."""
    app.connect("source-read", append_commands)
    app.connect("env-check-consistency", check_names)
