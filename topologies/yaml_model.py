# SPDX-License-Identifier: Apache-2.0
"""Reading a YAML file into a pydantic model, with errors a person can act on.

Each complaint names the file, the line, the key, what is wrong and what is allowed. A key given
twice is an error, because PyYAML would silently keep the last one.
"""

from __future__ import annotations

import types
import typing
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

Location = tuple[int | str, ...]
ModelT = TypeVar("ModelT", bound=BaseModel)


def load_model(path: str | Path, model: type[ModelT], error: type[Exception], what: str) -> ModelT:
    """Reads `path` and validates it as `model`.

    `what` names the kind of file in messages ("topology", "policy"). Raises `error` with one line
    per complaint; never returns a partly valid model.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as ex:  # whose text would repeat the path
        raise error(f"{path}: cannot read the {what} file: {ex.strerror}") from ex
    except UnicodeDecodeError as ex:
        raise error(f"{path}: cannot read the {what} file: {ex}") from ex
    return parse_model(text, str(path), model, error, what)


def parse_model(
    text: str, source: str, model: type[ModelT], error: type[Exception], what: str
) -> ModelT:
    """Like `load_model` for a text already read; `source` is what messages call it."""
    lines: dict[tuple[str, ...], int] = {}
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is not None:
            _index_lines(root, (), lines, source, error)
        document = yaml.safe_load(text)
    except yaml.YAMLError as ex:
        raise error(f"{source}: not valid YAML: {ex}") from ex
    except RecursionError as ex:
        raise error(f"{source}: an anchor that contains itself is not a {what}") from ex
    if not isinstance(document, dict):
        found = "nothing" if document is None else f"a {type(document).__name__}"
        allowed = ", ".join(model.model_fields)
        raise error(f"{source}: a {what} is a mapping, found {found}; allowed keys: {allowed}")
    try:
        return model.model_validate(document)
    except ValidationError as ex:
        complaints = [
            _complaint(source, lines, model, details) for details in ex.errors(include_url=False)
        ]
        raise error("\n".join(complaints)) from ex


def _index_lines(
    node: yaml.Node,
    at: tuple[str, ...],
    lines: dict[tuple[str, ...], int],
    source: str,
    error: type[Exception],
) -> None:
    """Notes the line (from 1) of every key and list item of the document."""
    lines.setdefault(at, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            where = (*at, str(key.value))
            line = key.start_mark.line + 1
            if where in lines:
                raise error(
                    f"{source}:{line}: {format_location(where)}: given twice "
                    f"(first in line {lines[where]}); allowed: once"
                )
            lines[where] = line
            _index_lines(value, where, lines, source, error)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _index_lines(item, (*at, str(index)), lines, source, error)


def format_location(location: Location) -> str:
    """`("deny", "links", 2)` as `deny.links.2`."""
    return ".".join(str(part) for part in location) or "(whole file)"


def _complaint(
    source: str, lines: dict[tuple[str, ...], int], model: type[BaseModel], details: Any
) -> str:
    location: Location = details["loc"]
    path = tuple(str(part) for part in location)
    # A missing key has no line: the mapping that lacks it does.
    line = next(lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in lines)
    where = f"{source}:{line}: {format_location(location)}"
    kind = details["type"]
    if kind == "extra_forbidden":
        return f"{where}: unknown key; allowed keys: {', '.join(_keys_at(model, location[:-1]))}"
    if kind == "missing":
        return f"{where}: this key is required"
    if kind == "value_error":  # our own validators say themselves what they found
        return f"{where}: {details['msg'].removeprefix('Value error, ')}"
    return f"{where}: {details['msg']}, got {details['input']!r}"


def _keys_at(model: type[BaseModel], location: Location) -> list[str]:
    """The keys allowed in the mapping at `location` of a document described by `model`."""
    current: Any = model
    for part in location:
        if _is_model(current) and part in current.model_fields:
            current = current.model_fields[part].annotation
        current = _innermost_model(current)
    return list(current.model_fields) if _is_model(current) else []


def _is_model(candidate: Any) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, BaseModel)


def _innermost_model(annotation: Any) -> Any:
    """The model inside `X | None`, `tuple[X, ...]` or `dict[int, X]`; else the annotation."""
    if typing.get_origin(annotation) in (types.UnionType, typing.Union, list, tuple, dict):
        for argument in typing.get_args(annotation):
            found = _innermost_model(argument)
            if _is_model(found):
                return found
    return annotation
