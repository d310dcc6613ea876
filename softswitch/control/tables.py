# SPDX-License-Identifier: Apache-2.0
"""Commands for tables."""

from __future__ import annotations

from typing import Any

from finsy.proto import p4r

from softswitch.control.context import DELETE, INSERT, MODIFY, Answer, Context, Handler
from softswitch.control.entries import (
    ARROW,
    MAX_PRIORITY,
    action_data,
    action_message,
    action_text,
    key_data,
    key_entry,
    key_text,
    priority_word,
)
from softswitch.control.words import CommandError, aligned, natural
from softswitch.entities_direct import DEFAULT_HANDLE
from softswitch.entities_entry import Entry
from softswitch.entities_meter import config_message
from softswitch.entities_table import TableStore
from softswitch.p4info import ActionInfo, TableInfo


def _actions(table: TableInfo) -> list[ActionInfo]:
    return [action for action, _ in table.actions.values()]


def _store(context: Context, table: TableInfo) -> TableStore:
    return context.store.table(table.id)


def _keys_data(table: TableInfo) -> list[dict[str, Any]]:
    return [{"name": f.name, "match": f.kind.name.lower(), "width": f.width} for f in table.fields]


def _table_data(context: Context, table: TableInfo) -> dict[str, Any]:
    profile = context.view.profiles.get(table.profile_id)
    return {
        "name": table.name,
        "entries": len(_store(context, table).entries.by_key),
        "size": table.size,
        "keys": _keys_data(table),
        "profile": None if profile is None else profile.name,
        "const": table.is_const,
        "counter": table.has_counter,
        "meter": table.meter is not None,
    }


def _keys_text(keys: list[dict[str, Any]]) -> str:
    return ", ".join(f"{k['name']} {k['match']}/{k['width']}" for k in keys) or "no key"


def show_tables(context: Context, words: list[str]) -> Answer:
    """All tables."""
    tables = sorted(context.view.tables.values(), key=lambda table: table.name)
    data = [_table_data(context, table) for table in tables]
    rows = [["table", "entries", "size", "keys"]]
    rows += [[t["name"], str(t["entries"]), str(t["size"]), _keys_text(t["keys"])] for t in data]
    return Answer(aligned(rows), data)


def _action_rows(actions: list[ActionInfo]) -> tuple[str, list[dict[str, Any]]]:
    # The JSON has an action again for each table that uses it.
    actions = sorted({a.name: a for a in actions}.values(), key=lambda action: action.name)
    data = [
        {"name": a.name, "params": [{"name": p.name, "width": p.width} for p in a.params]}
        for a in actions
    ]
    return aligned(
        [a.name, ", ".join(f"{p.name}/{p.width}" for p in a.params)] for a in actions
    ), data


def show_actions(context: Context, words: list[str]) -> Answer:
    """All actions."""
    return Answer(*_action_rows(list(context.view.actions.values())))


def table_show_actions(context: Context, words: list[str]) -> Answer:
    """The actions of a table."""
    return Answer(*_action_rows(_actions(context.table(words[0]))))


def table_info(context: Context, words: list[str]) -> Answer:
    """Keys, size, occupancy and actions."""
    table = context.table(words[0])
    data = _table_data(context, table)
    actions, data["actions"] = _action_rows(_actions(table))
    rows = [["key", k["name"], k["match"], f"{k['width']} bits"] for k in data["keys"]]
    rows += [["action", *line.split(None, 1)] for line in actions.splitlines()]
    notes = [f"action profile {data['profile']}"] if data["profile"] else []
    notes += ["constant entries"] if data["const"] else []
    notes += [f"direct {what}" for what in ("counter", "meter") if data[what]]
    head = f"{table.name}: {data['entries']} of {table.size} entries"
    return Answer("\n".join([", ".join([head, *notes]), aligned(rows, "  ")]), data)


def table_num_entries(context: Context, words: list[str]) -> Answer:
    """How many entries there are."""
    count = _table_data(context, context.table(words[0]))["entries"]
    return Answer(str(count), count)


# --- entries ------------------------------------------------------------------------------------


def _target_data(table: TableInfo, message: Any) -> dict[str, Any] | None:
    """What an entry does: an action, a member, a group, or actions with weights (one-shot)."""
    actions = _actions(table)
    match message.WhichOneof("type"):
        case "action_profile_member_id":
            return {"member": message.action_profile_member_id - 1}
        case "action_profile_group_id":
            return {"group": message.action_profile_group_id - 1}
        case "action_profile_action_set":
            return {
                "weighted": [
                    {"weight": item.weight, **(action_data(actions, item.action) or {})}
                    for item in message.action_profile_action_set.action_profile_actions
                ]
            }
        case _:
            return action_data(actions, message.action)


def _target_text(data: dict[str, Any] | None) -> str:
    match data:
        case {"member": int(member)}:
            return f"member {member}"
        case {"group": int(group)}:
            return f"group {group}"
        case {"weighted": list(items)}:
            return " | ".join(f"{action_text(item)} weight {item['weight']}" for item in items)
        case _:
            return action_text(data)


def _entry_data(context: Context, table: TableInfo, entry: Entry) -> dict[str, Any]:
    message = p4r.TableEntry.FromString(entry.wire)
    default = entry.handle == DEFAULT_HANDLE
    data: dict[str, Any] = {"handle": None if default else entry.handle}
    if not default:
        data["key"] = key_data(table.fields, message.match)
        if table.needs_priority:
            data["priority"] = MAX_PRIORITY - message.priority
            data["p4runtime_priority"] = message.priority
    data["action"] = _target_data(table, message.action)
    if entry.const:
        data["const"] = True
    if message.idle_timeout_ns:
        data["idle_timeout_ms"] = message.idle_timeout_ns / 1e6
    target = context.dataplane.tables[table.name]
    if table.has_counter:
        packets, bytes_ = (
            target.read_default_counter() if default else target.read_counter(entry.handle)
        )
        data["packets"], data["bytes"] = packets, bytes_
    return data


def _entry_text(data: dict[str, Any]) -> str:
    if data["handle"] is None:
        lines = ["default"]
    else:
        notes = ", constant" if data.get("const") else ""
        lines = [f"entry {data['handle']}{notes}"]
        lines.append(aligned(([k["name"], k["match"], key_text(k)] for k in data["key"]), "  "))
    lines.append(f"  => {_target_text(data['action'])}")
    if "priority" in data:
        lines.append(f"  priority {data['priority']} (P4Runtime's {data['p4runtime_priority']})")
    if "idle_timeout_ms" in data:
        lines.append(f"  idle time-out {data['idle_timeout_ms']:g} ms")
    if "packets" in data:
        lines.append(f"  {data['packets']} packets, {data['bytes']} bytes")
    return "\n".join(lines)


def table_dump(context: Context, words: list[str]) -> Answer:
    """All entries, then the default."""
    table = context.table(words[0])
    store = _store(context, table)
    data = _table_data(context, table)
    data["entries"] = [
        _entry_data(context, table, entry) for entry in store.entries.by_key.values()
    ]
    data["default"] = _entry_data(context, table, store.entries.default_entry())
    head = f"{table.name}: {len(data['entries'])} of {table.size} entries"
    return Answer(
        "\n".join([head, *map(_entry_text, data["entries"]), _entry_text(data["default"])]), data
    )


def _by_handle(context: Context, table: TableInfo, word: str) -> Entry:
    handle = natural(word, "handle")
    entry = _store(context, table).entries.with_handle(handle)
    if entry is None:
        raise CommandError(f"table {table.name} has no entry with handle {handle}")
    return entry


def _by_key(table: TableInfo, words: list[str]) -> Any:
    """The TableEntry that names the entry with this key; takes the priority off."""
    priority = priority_word(table, words)
    return key_entry(table, words, priority)


def table_dump_entry(context: Context, words: list[str]) -> Answer:
    """One entry."""
    table = context.table(words[0])
    data = _entry_data(context, table, _by_handle(context, table, words[1]))
    return Answer(_entry_text(data), data)


def table_dump_entry_from_key(context: Context, words: list[str]) -> Answer:
    """One entry by its key."""
    table = context.table(words[0])
    entry = _store(context, table).entries.named(_by_key(table, words[1:]))
    data = _entry_data(context, table, entry)
    return Answer(_entry_text(data), data)


def _insert(context: Context, table: TableInfo, message: Any) -> Answer:
    context.write(INSERT, table_entry=message)
    handle = _store(context, table).entries.named(message).handle
    return Answer(f"entry {handle} of {table.name} added", {"handle": handle})


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """What is before and what is after the arrow."""
    if ARROW not in words:
        raise CommandError(f"no {ARROW} between key and parameters (in a shell it must be quoted)")
    at = words.index(ARROW)
    return words[:at], words[at + 1 :]


def table_add(context: Context, words: list[str]) -> Answer:
    """Insert an entry."""
    table = context.table(words[0])
    key, params = _split(words[2:])
    priority = priority_word(table, params)
    message = key_entry(table, key, priority)
    message.action.action.CopyFrom(
        action_message(_actions(table), words[1], params, f"table {table.name}")
    )
    return _insert(context, table, message)


def _indirect_add(context: Context, words: list[str], field: str) -> Answer:
    table = context.table(words[0])
    key, target = _split(words[1:])
    priority = priority_word(table, target)
    if len(target) != 1:
        raise CommandError(f"after {ARROW}: one handle, not {len(target)} words")
    message = key_entry(table, key, priority)
    setattr(message.action, field, natural(target[0], "handle") + 1)
    return _insert(context, table, message)


def table_indirect_add(context: Context, words: list[str]) -> Answer:
    """Insert an entry that refers to a member."""
    return _indirect_add(context, words, "action_profile_member_id")


def table_indirect_add_with_group(context: Context, words: list[str]) -> Answer:
    """Insert an entry that refers to a group."""
    return _indirect_add(context, words, "action_profile_group_id")


def _for_change(context: Context, table: TableInfo, entry: Entry) -> Any:
    """An entry's message for MODIFY, which would reset a meter that it does not name."""
    message = p4r.TableEntry.FromString(entry.wire)
    if table.meter is not None:
        config = context.dataplane.tables[table.name].read_meter(entry.handle).config
        if config is not None:
            message.meter_config.CopyFrom(config_message(config))
    return message


def table_modify(context: Context, words: list[str]) -> Answer:
    """Change an entry's action."""
    table = context.table(words[0])
    entry = _by_handle(context, table, words[2])
    message = _for_change(context, table, entry)
    action = action_message(_actions(table), words[1], words[3:], f"table {table.name}")
    message.action.Clear()
    message.action.action.CopyFrom(action)
    context.write(MODIFY, table_entry=message)
    return Answer(f"entry {entry.handle} of {table.name} modified", {"handle": entry.handle})


def table_set_timeout(context: Context, words: list[str]) -> Answer:
    """Change an entry's idle time-out."""
    table = context.table(words[0])
    entry = _by_handle(context, table, words[1])
    message = _for_change(context, table, entry)
    message.idle_timeout_ns = natural(words[2], "milliseconds") * 1_000_000
    context.write(MODIFY, table_entry=message)
    return Answer(f"entry {entry.handle} of {table.name}: {words[2]} ms", {"handle": entry.handle})


def _delete(context: Context, table: TableInfo, entry: Entry) -> None:
    context.write(DELETE, table_entry=p4r.TableEntry.FromString(entry.wire))


def table_delete(context: Context, words: list[str]) -> Answer:
    """Delete an entry."""
    table = context.table(words[0])
    entry = _by_handle(context, table, words[1])
    handle = entry.handle
    _delete(context, table, entry)
    return Answer(f"entry {handle} of {table.name} deleted", {"handle": handle})


def table_delete_match(context: Context, words: list[str]) -> Answer:
    """Delete an entry by its key."""
    table = context.table(words[0])
    entry = _store(context, table).entries.named(_by_key(table, words[1:]))
    handle = entry.handle
    _delete(context, table, entry)
    return Answer(f"entry {handle} of {table.name} deleted", {"handle": handle})


def clear(context: Context, table: TableInfo) -> int:
    """Delete the entries that are not the program's own; how many."""
    entries = [e for e in _store(context, table).entries.by_key.values() if not e.const]
    for entry in entries:
        _delete(context, table, entry)
    return len(entries)


def table_clear(context: Context, words: list[str]) -> Answer:
    """Delete all entries."""
    table = context.table(words[0])
    count = clear(context, table)
    return Answer(f"{count} entries of {table.name} deleted", {"deleted": count})


def table_set_default(context: Context, words: list[str]) -> Answer:
    """Change the default action."""
    table = context.table(words[0])
    message = p4r.TableEntry(table_id=table.id, is_default_action=True)
    message.action.action.CopyFrom(
        action_message(_actions(table), words[1], words[2:], f"table {table.name}")
    )
    context.write(MODIFY, table_entry=message)
    return Answer(f"default of {table.name} set", None)


def table_reset_default(context: Context, words: list[str]) -> Answer:
    """Back to the program's default action."""
    table = context.table(words[0])
    context.write(MODIFY, table_entry=p4r.TableEntry(table_id=table.id, is_default_action=True))
    return Answer(f"default of {table.name} reset", None)


HANDLERS: dict[str, Handler] = {
    "show_tables": show_tables,
    "show_actions": show_actions,
    "table_show_actions": table_show_actions,
    "table_info": table_info,
    "table_num_entries": table_num_entries,
    "table_dump": table_dump,
    "table_dump_entry": table_dump_entry,
    "table_dump_entry_from_key": table_dump_entry_from_key,
    "table_add": table_add,
    "table_modify": table_modify,
    "table_delete": table_delete,
    "table_delete_match": table_delete_match,
    "table_clear": table_clear,
    "table_set_default": table_set_default,
    "table_reset_default": table_reset_default,
    "table_set_timeout": table_set_timeout,
    "table_indirect_add": table_indirect_add,
    "table_indirect_add_with_group": table_indirect_add_with_group,
    "table_indirect_delete": table_delete,
}
