# SPDX-License-Identifier: Apache-2.0
"""What `pip install .` installs is what a checkout has."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = {
    name: ROOT / name.replace(".", "/") for name in PYPROJECT["tool"]["setuptools"]["packages"]
}


def test_every_package_is_listed() -> None:
    top = {path for name, path in PACKAGES.items() if "." not in name}
    found = {module.parent for package in top for module in package.rglob("*.py")}
    assert found == set(PACKAGES.values())


def test_every_other_file_is_package_data() -> None:
    data = PYPROJECT["tool"]["setuptools"]["package-data"]
    installed = {
        file for name, patterns in data.items() for p in patterns for file in PACKAGES[name].glob(p)
    }
    others = {
        file
        for name, path in PACKAGES.items()
        if "." not in name
        for file in path.rglob("*")
        if file.is_file() and file.suffix != ".py" and "__pycache__" not in file.parts
    }
    assert others == installed


def test_every_script_is_there() -> None:
    for target in PYPROJECT["project"]["scripts"].values():
        module, _, function = target.partition(":")
        source = ROOT / (module.replace(".", "/") + ".py")
        assert f"def {function}(" in source.read_text()
