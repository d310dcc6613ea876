# SPDX-License-Identifier: Apache-2.0
"""The control flow of ingress and egress: a C function of labels, one per table or condition."""

from __future__ import annotations

from softswitch.bmjson import Conditional, Pipeline, Program, Table, find_action
from softswitch.codegen.expressions import Expressions
from softswitch.codegen.layout import TableLayout
from softswitch.codegen.names import Names
from softswitch.codegen.tables import NO_ACTION
from softswitch.errors import BadProgram


def control_function(
    names: Names, program: Program, pipeline: Pipeline, layouts: dict[str, TableLayout]
) -> str:
    """The C function `control_<name>` of a pipeline."""
    nodes: list[Table | Conditional] = [
        *pipeline.tables.values(),
        *pipeline.conditionals.values(),
    ]
    labels = {node.name: f"n{number}" for number, node in enumerate(nodes)}

    def label(target: str | None) -> str:
        if target is None:
            return "end"
        if target not in labels:
            raise BadProgram(f"pipeline {pipeline.name}: there is no node {target!r}")
        return labels[target]

    lines = [
        f"static void control_{pipeline.name}(struct ss_state *s, struct ss_packet *p, "
        "struct phv *v) {",
        "    (void)s, (void)p, (void)v;",
        f"    goto {label(pipeline.init)};",
    ]
    for node in _reached(nodes, pipeline.init):
        lines.append(f"{labels[node.name]}: /* {node.name} */")
        if isinstance(node, Conditional):
            test = Expressions(names, f"condition {node.name}").boolean(node.expression)
            yes, no = label(node.true_next), label(node.false_next)
            lines.append(f"    if ({test}) goto {yes};")
            lines.append(f"    goto {no};")
            continue
        lines += [f"    {line}" for line in _after(program, node, layouts[node.name], label)]
    return "\n".join([*lines, "end:;", "}"])


def _reached(nodes: list[Table | Conditional], first: str | None) -> list[Table | Conditional]:
    """The nodes that control can come to, in depth-first order."""
    by_name = {node.name: node for node in nodes}
    order: dict[str, Table | Conditional] = {}
    open_ = [first]
    while open_:
        name = open_.pop()
        if name is None or name in order or name not in by_name:
            continue
        node = by_name[name]
        order[name] = node
        if isinstance(node, Conditional):
            open_ += [node.false_next, node.true_next]
        else:
            open_ += [node.base_default_next, *node.next_tables.values()]
    return list(order.values())


def _after(program: Program, table: Table, layout: TableLayout, label: object) -> list[str]:
    """Where control goes after a table, by what it did."""
    assert callable(label)
    where = f"table {table.name}"
    actions = [find_action(program, number, where) for number in table.actions]
    exits = any(p.op == "exit" for action in actions for p in action.primitives)
    call = f"apply_{layout.index}(s, p, v)"
    leave = ["if (p->exit) goto end;"] if exits else []
    following = dict(table.next_tables)
    if "__HIT__" in following or "__MISS__" in following:
        hit = label(following.get("__HIT__", table.base_default_next))
        miss = label(following.get("__MISS__", table.base_default_next))
        if hit == miss and not exits:
            return [f"{call};", f"goto {hit};"]
        return [
            f"{{ uint32_t r = {call};",
            *leave,
            f"if (r & 1) goto {hit};",
            f"goto {miss}; }}",
        ]
    targets = {label(target) for target in following.values()}
    if targets == {label(table.base_default_next)} or not targets:
        return [f"{call};", *leave, f"goto {label(table.base_default_next)};"]
    by_action = [
        f"case {action.id}u: goto {label(following[action.name])};"
        for action in actions
        if action.name in following
    ]
    return [
        f"{{ uint32_t r = {call};",
        *leave,
        f"if (r >= {NO_ACTION}u) goto {label(table.base_default_next)};",
        f"switch (r >> 1) {{ {' '.join(by_action)} }}",
        f"goto {label(table.base_default_next)}; }}",
    ]
