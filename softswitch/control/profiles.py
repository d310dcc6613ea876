# SPDX-License-Identifier: Apache-2.0
"""Commands for action profiles. A handle is P4Runtime's id less 1, so that the first one is 0."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from finsy.proto import p4r

from softswitch.control.context import DELETE, INSERT, MODIFY, Answer, Context, Handler
from softswitch.control.entries import action_data, action_message, action_text
from softswitch.control.words import CommandError, full_name, natural
from softswitch.p4info import ActionInfo, ProfileInfo

_MAX_WEIGHT = 1 << 16


def _profile(context: Context, given: str) -> ProfileInfo:
    profiles = {profile.name: profile for profile in context.view.profiles.values()}
    return profiles[full_name(given, profiles, "action profile")]


def _actions(context: Context, profile: ProfileInfo) -> list[ActionInfo]:
    """The actions of the tables that use a profile."""
    actions: dict[int, ActionInfo] = {}
    for table in context.view.tables.values():
        if table.profile_id == profile.id:
            actions.update((i, action) for i, (action, _) in table.actions.items())
    return list(actions.values())


def members(context: Context, profile: ProfileInfo, member_id: int = 0) -> list[Any]:
    """ActionProfileMember messages: of all, or of the one with this id."""
    query = p4r.ActionProfileMember(action_profile_id=profile.id, member_id=member_id)
    return [e.action_profile_member for e in context.read(action_profile_member=query)]


def groups(context: Context, profile: ProfileInfo, group_id: int = 0) -> list[Any]:
    """ActionProfileGroup messages: of all, or of the one with this id."""
    query = p4r.ActionProfileGroup(action_profile_id=profile.id, group_id=group_id)
    return [e.action_profile_group for e in context.read(action_profile_group=query)]


def _unused(used: Iterable[int]) -> int:
    """The lowest id from 1 on that is not used."""
    taken = set(used)
    return next(i for i in range(1, len(taken) + 2) if i not in taken)


def _member_message(
    context: Context, profile: ProfileInfo, member_id: int, action: str, params: list[str]
) -> Any:
    message = p4r.ActionProfileMember(action_profile_id=profile.id, member_id=member_id)
    where = f"action profile {profile.name}"
    message.action.CopyFrom(action_message(_actions(context, profile), action, params, where))
    return message


def create_member(context: Context, words: list[str]) -> Answer:
    """Insert a member."""
    profile = _profile(context, words[0])
    member_id = _unused(m.member_id for m in members(context, profile))
    message = _member_message(context, profile, member_id, words[1], words[2:])
    context.write(INSERT, action_profile_member=message)
    return Answer(f"member {member_id - 1} of {profile.name} added", {"member": member_id - 1})


def modify_member(context: Context, words: list[str]) -> Answer:
    """Change a member's action."""
    profile = _profile(context, words[0])
    member = natural(words[2], "member")
    message = _member_message(context, profile, member + 1, words[1], words[3:])
    context.write(MODIFY, action_profile_member=message)
    return Answer(f"member {member} of {profile.name} modified", {"member": member})


def delete_member(context: Context, words: list[str]) -> Answer:
    """Delete a member."""
    profile = _profile(context, words[0])
    member = natural(words[1], "member")
    message = p4r.ActionProfileMember(action_profile_id=profile.id, member_id=member + 1)
    context.write(DELETE, action_profile_member=message)
    return Answer(f"member {member} of {profile.name} deleted", {"member": member})


def create_group(context: Context, words: list[str]) -> Answer:
    """Insert an empty group."""
    profile = _profile(context, words[0])
    group_id = _unused(g.group_id for g in groups(context, profile))
    message = p4r.ActionProfileGroup(action_profile_id=profile.id, group_id=group_id)
    context.write(INSERT, action_profile_group=message)
    return Answer(f"group {group_id - 1} of {profile.name} added", {"group": group_id - 1})


def _group(context: Context, profile: ProfileInfo, word: str) -> Any:
    group = natural(word, "group")
    found = groups(context, profile, group + 1)
    if not found:
        raise CommandError(f"action profile {profile.name} has no group {group}")
    return found[0]


def delete_group(context: Context, words: list[str]) -> Answer:
    """Delete a group."""
    profile = _profile(context, words[0])
    message = _group(context, profile, words[1])
    context.write(DELETE, action_profile_group=message)
    group = message.group_id - 1
    return Answer(f"group {group} of {profile.name} deleted", {"group": group})


def add_member_to_group(context: Context, words: list[str]) -> Answer:
    """Put a member into a group."""
    profile = _profile(context, words[0])
    member = natural(words[1], "member")
    message = _group(context, profile, words[2])
    weight = natural(words[3], "weight", _MAX_WEIGHT) if len(words) > 3 else 1
    message.members.add(member_id=member + 1, weight=weight)
    context.write(MODIFY, action_profile_group=message)
    return Answer(f"member {member} is in group {message.group_id - 1}", None)


def remove_member_from_group(context: Context, words: list[str]) -> Answer:
    """Take a member out of a group."""
    profile = _profile(context, words[0])
    member = natural(words[1], "member")
    message = _group(context, profile, words[2])
    rest = [item for item in message.members if item.member_id != member + 1]
    group = message.group_id - 1
    if len(rest) == len(message.members):
        raise CommandError(
            f"action profile {profile.name}: member {member} is not in group {group}"
        )
    changed = p4r.ActionProfileGroup()
    changed.CopyFrom(message)
    del changed.members[:]
    changed.members.extend(rest)
    context.write(MODIFY, action_profile_group=changed)
    return Answer(f"member {member} is not in group {group} any more", None)


def dump(context: Context, words: list[str]) -> Answer:
    """Members and groups."""
    profile = _profile(context, words[0])
    actions = _actions(context, profile)
    data: dict[str, Any] = {
        "name": profile.name,
        "size": profile.size,
        "members": [
            {"member": m.member_id - 1, **(action_data(actions, m.action) or {})}
            for m in members(context, profile)
        ],
        "groups": [
            {
                "group": g.group_id - 1,
                "members": [
                    {"member": item.member_id - 1, "weight": item.weight} for item in g.members
                ],
            }
            for g in groups(context, profile)
        ],
    }
    lines = [f"{profile.name}: {len(data['members'])} of {profile.size} members"]
    lines += [f"member {m['member']}\n  => {action_text(m)}" for m in data["members"]]
    for group in data["groups"]:
        inside = (
            f"member {m['member']}" + (f" weight {m['weight']}" if m["weight"] != 1 else "")
            for m in group["members"]
        )
        lines.append(f"group {group['group']}\n  {', '.join(inside) or 'empty'}")
    return Answer("\n".join(lines), data)


HANDLERS: dict[str, Handler] = {
    "act_prof_dump": dump,
    "act_prof_create_member": create_member,
    "act_prof_modify_member": modify_member,
    "act_prof_delete_member": delete_member,
    "act_prof_create_group": create_group,
    "act_prof_delete_group": delete_group,
    "act_prof_add_member_to_group": add_member_to_group,
    "act_prof_remove_member_from_group": remove_member_from_group,
}
