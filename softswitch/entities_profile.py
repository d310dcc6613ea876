# SPDX-License-Identifier: Apache-2.0
"""Action profiles and selectors: members, groups and one-shot action sets (P4Runtime 1.4, section
9.2).

Table entries refer to a `Member`, a `Group` or a `OneShot`; `entries` counts how many do, because
one that is referred to cannot be deleted. A profile is programmed either with members and groups or
with one-shot sets, never with both at a time (9.2.3).

Where BMv2's server is more lenient than the specification, so is this one: a group's `max_size` of
0 means the profile's `max_group_size`, also in a MODIFY.

A member with a watch port is passed over while that port is down; reads do not show it. When all
of a group are down, the group does what an empty one does: no action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from finsy.proto import p4r

from softswitch.boundary import ProfileLike
from softswitch.entities_match import ActionParser, shorten, shorten_watch
from softswitch.errors import NotFound
from softswitch.p4info import PORT_BITS, ActionInfo, ProfileInfo, decode_unsigned
from softswitch.status import (
    ALREADY_EXISTS,
    FAILED_PRECONDITION,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    Failure,
    Undo,
    invalid,
)
from softswitch.values import ActionCall, GroupRef, MemberRef
from softswitch.wire import ENTITY_GROUP, ENTITY_MEMBER, message_field

_MOST_WEIGHTS = 1 << 16
_DEFAULT_MODE: int = p4r.ActionProfileActionSet.DEFAULT_MODE_DETERMINED_BY_ACTION_SELECTOR
_HASH: int = p4r.ActionProfileActionSet.HASH
_RANDOM: int = p4r.ActionProfileActionSet.RANDOM


class Member:
    """An action profile member; `groups` counts the groups that it is in."""

    __slots__ = ("action", "entries", "groups", "handle", "id", "wire")

    def __init__(self, number: int, handle: int, action: ActionCall, wire: bytes) -> None:
        self.id = number
        self.handle = handle
        self.action = action
        self.wire = wire
        self.groups = 0
        self.entries = 0

    def target(self) -> MemberRef:
        return MemberRef(self.handle)


class Share(NamedTuple):
    """A member of a group; `watch` is the port that must be up for it, None: always."""

    member: Member
    weight: int
    watch: int | None


class Group:
    """An action profile group: shares by the id of the member, as BMv2's server orders them."""

    __slots__ = ("entries", "handle", "max_size", "members", "wire")

    def __init__(self, handle: int, members: list[Share], max_size: int, wire: bytes) -> None:
        self.handle = handle
        self.members = members
        self.max_size = max_size
        self.wire = wire
        self.entries = 0

    def target(self) -> GroupRef:
        return GroupRef(self.handle)


class OneShotAction(NamedTuple):
    """One action of a set, with a weight and the port to watch, None: always."""

    action: ActionCall
    weight: int
    watch: int | None


class OneShot:
    """An action set of one table entry: a group and members that only this entry has."""

    __slots__ = ("actions", "at_random", "handle", "members")

    def __init__(self, actions: list[OneShotAction], at_random: bool) -> None:
        self.actions = actions
        self.at_random = at_random
        self.members: list[int] = []
        self.handle = -1

    def target(self) -> GroupRef:
        return GroupRef(self.handle)


class ProfileStore:
    """What is programmed into one action profile."""

    def __init__(
        self,
        info: ProfileInfo,
        actions: Mapping[int, tuple[ActionInfo, int]],
        widths: Mapping[str, tuple[int, ...]],
        profile: ProfileLike,
        port_is_up: Callable[[int], bool],
    ) -> None:
        """`port_is_up` raises NotFound for a port that is not there."""
        self.info = info
        self._profile = profile
        self._port_is_up = port_is_up
        self._actions = ActionParser(f"action profile {info.name!r}", actions, widths)
        self._members: dict[int, Member] = {}
        self._groups: dict[int, Group] = {}
        self._one_shots: dict[int, OneShot] = {}
        """By the handle of the group."""

    # --- members ------------------------------------------------------------------------------

    def member(self, member_id: int) -> Member:
        """The member with this id. Raises `Failure` NOT_FOUND."""
        member = self._members.get(member_id)
        if member is None:
            raise Failure(NOT_FOUND, f"{self._where} has no member {member_id}")
        return member

    def insert_member(self, message: Any, undo: Undo | None) -> None:
        """INSERT an ActionProfileMember."""
        member_id = self._id(message.member_id, "member_id")
        self._check_not_one_shot()
        if member_id in self._members:
            raise Failure(ALREADY_EXISTS, f"{self._where} has a member {member_id}; use MODIFY")
        action, wire = self._parse_member(message)
        handle = self._profile.add_member(action)
        self._members[member_id] = Member(member_id, handle, action, wire)
        if undo is not None:
            undo.append(lambda: self._remove_member(member_id))

    def modify_member(self, message: Any, undo: Undo | None) -> None:
        """MODIFY an ActionProfileMember; every group that it is in follows."""
        member = self.member(self._id(message.member_id, "member_id"))
        action, wire = self._parse_member(message)
        self._set_member(member, action, wire, undo)

    def delete_member(self, message: Any, undo: Undo | None) -> None:
        """DELETE an ActionProfileMember that no group and no table entry refers to."""
        member_id = self._id(message.member_id, "member_id")
        member = self.member(member_id)
        if member.groups or member.entries:
            raise Failure(
                FAILED_PRECONDITION,
                f"{self._where}: member {member_id} is in {member.groups} groups and "
                f"{member.entries} table entries",
            )
        self._remove_member(member_id)
        if undo is not None:

            def put_back() -> None:
                member.handle = self._profile.add_member(member.action)
                self._members[member_id] = member

            undo.append(put_back)

    def _set_member(
        self, member: Member, action: ActionCall, wire: bytes, undo: Undo | None
    ) -> None:
        before = (member.action, member.wire)
        self._profile.modify_member(member.handle, action)
        member.action, member.wire = action, wire
        if undo is not None:
            undo.append(lambda: self._set_member(member, *before, None))

    def _remove_member(self, member_id: int) -> None:
        self._profile.delete_member(self._members[member_id].handle)
        del self._members[member_id]

    def _parse_member(self, message: Any) -> tuple[ActionCall, bytes]:
        if not message.HasField("action"):
            raise invalid(f"{self._where}: member {message.member_id} needs an action")
        action, canonical = self._actions.parse(message.action, default=False)
        if canonical:
            return action, message.SerializeToString()
        copy = p4r.ActionProfileMember()
        copy.CopyFrom(message)
        shorten(copy.action)
        return action, copy.SerializeToString()

    # --- groups -------------------------------------------------------------------------------

    def group(self, group_id: int) -> Group:
        """The group with this id. Raises `Failure` NOT_FOUND."""
        group = self._groups.get(group_id)
        if group is None:
            raise Failure(NOT_FOUND, f"{self._where} has no group {group_id}")
        return group

    def insert_group(self, message: Any, undo: Undo | None) -> None:
        """INSERT an ActionProfileGroup."""
        group_id = self._id(message.group_id, "group_id")
        if not self.info.with_selector:
            raise invalid(f"{self._where} has no selector, so it has no groups")
        self._check_not_one_shot()
        if group_id in self._groups:
            raise Failure(ALREADY_EXISTS, f"{self._where} has a group {group_id}; use MODIFY")
        limit = self.info.max_group_size
        if message.max_size < 0 or (limit and message.max_size > limit):
            raise invalid(
                f"{self._where}: group {group_id}: max_size {message.max_size} is not in "
                f"0..{limit or 'any'}"
            )
        members = self._parse_members(message, message.max_size)
        handle = self._profile.create_group(message.max_size or limit)
        try:
            self._fill(handle, members)
        except Exception:
            self._profile.delete_group(handle)
            raise
        _count(members, 1)
        wire = _group_wire(message, message.max_size)
        self._groups[group_id] = Group(handle, members, message.max_size, wire)
        if undo is not None:
            undo.append(lambda: self._remove_group(group_id))

    def modify_group(self, message: Any, undo: Undo | None) -> None:
        """MODIFY an ActionProfileGroup: replace its members."""
        group_id = self._id(message.group_id, "group_id")
        group = self.group(group_id)
        if message.max_size not in (0, group.max_size):
            raise invalid(
                f"{self._where}: group {group_id} was made with max_size {group.max_size}, which "
                f"cannot be changed to {message.max_size}"
            )
        members = self._parse_members(message, group.max_size)
        self._set_group(group, members, _group_wire(message, group.max_size), undo)

    def delete_group(self, message: Any, undo: Undo | None) -> None:
        """DELETE an ActionProfileGroup that no table entry refers to."""
        group_id = self._id(message.group_id, "group_id")
        group = self.group(group_id)
        if group.entries:
            raise Failure(
                FAILED_PRECONDITION,
                f"{self._where}: group {group_id} is in {group.entries} table entries",
            )
        self._remove_group(group_id)
        if undo is not None:

            def put_back() -> None:
                group.handle = self._profile.create_group(group.max_size)
                self._fill(group.handle, group.members)
                _count(group.members, 1)
                self._groups[group_id] = group

            undo.append(put_back)

    def _set_group(
        self, group: Group, members: list[Share], wire: bytes, undo: Undo | None
    ) -> None:
        before = (group.members, group.wire)
        self._fill(group.handle, members)
        _count(group.members, -1)
        _count(members, 1)
        group.members, group.wire = members, wire
        if undo is not None:
            undo.append(lambda: self._set_group(group, *before, None))

    def _remove_group(self, group_id: int) -> None:
        group = self._groups[group_id]
        self._profile.delete_group(group.handle)
        _count(group.members, -1)
        del self._groups[group_id]

    def _fill(self, handle: int, members: list[Share]) -> None:
        """Give a group its members in the data plane, those that are down to be passed over."""
        self._profile.set_group(
            handle,
            [(share.member.handle, share.weight) for share in members],
            down=[share.member.handle for share in members if self._is_down(share.watch)],
        )

    def _parse_members(self, message: Any, max_size: int) -> list[Share]:
        where = f"{self._where}: group {message.group_id}"
        members: list[Share] = []
        seen: set[int] = set()
        for item in message.members:
            if item.member_id in seen:
                raise invalid(f"{where} has member {item.member_id} twice; use its weight")
            seen.add(item.member_id)
            watch = self._check_share(item, f"{where}, member {item.member_id}")
            members.append(Share(self.member(item.member_id), item.weight, watch))
        _check_weights(where, [share.weight for share in members])
        size = self._size([share.weight for share in members])
        limit = max_size or self.info.max_group_size
        if limit and size > limit:
            raise Failure(RESOURCE_EXHAUSTED, f"{where}: size {size} exceeds max_size {limit}")
        return sorted(members, key=lambda share: share.member.id)

    # --- watch ports --------------------------------------------------------------------------

    def port_changed(self, port: int) -> None:
        """A port went up or down: the groups that watch it follow."""
        for group in self._groups.values():
            if any(share.watch == port for share in group.members):
                self._fill(group.handle, group.members)
        for one_shot in self._one_shots.values():
            if any(action.watch == port for action in one_shot.actions):
                self._fill_one_shot(one_shot)

    def _is_down(self, port: int | None) -> bool:
        if port is None:
            return False
        try:
            return not self._port_is_up(port)
        except NotFound:  # taken away since
            return True

    def _watched(self, item: Any, where: str) -> int | None:
        """The port that a member or action watches; the older field `watch` has it as a number."""
        if item.WhichOneof("watch_kind") == "watch":
            port = item.watch
            if port < 0 or port >> PORT_BITS:
                raise invalid(f"{where}: watch {port} does not fit in {PORT_BITS} bits")
        else:
            port = 0
            if item.watch_port:
                port = decode_unsigned(item.watch_port, PORT_BITS, f"{where}: watch_port")
        if not port and not item.watch_port:
            return None
        try:
            self._port_is_up(port)
        except NotFound:
            raise invalid(f"{where}: watch port {port}: the switch has no such port") from None
        return int(port)

    # --- one-shot action sets -----------------------------------------------------------------

    def create_one_shot(self, action_set: Any) -> OneShot:
        """Make the group of a table entry's ActionProfileActionSet (9.2.3)."""
        where = f"{self._where}: action set"
        if not self.info.with_selector:
            raise invalid(f"{where}: a profile without selector has no groups")
        if self._members or self._groups:
            raise invalid(
                f"{where}: this profile is programmed with {len(self._members)} members and "
                f"{len(self._groups)} groups; delete them first"
            )
        if action_set.action_selection_mode not in (_DEFAULT_MODE, _HASH, _RANDOM):
            mode = action_set.action_selection_mode
            raise invalid(f"{where}: unknown action_selection_mode {mode}")
        sum_of_members = self._sum_of_members(action_set.size_semantics, where)
        actions = []
        for item in action_set.action_profile_actions:
            watch = self._check_share(item, where)
            action, _ = self._actions.parse(item.action, default=False)
            actions.append(OneShotAction(action, item.weight, watch))
        size = len(actions) if sum_of_members else sum(action.weight for action in actions)
        limit = self.info.max_group_size
        if limit and size > limit:
            raise invalid(f"{where}: size {size} exceeds max_group_size {limit}")
        _check_weights(where, [action.weight for action in actions])
        one_shot = OneShot(actions, action_set.action_selection_mode == _RANDOM)
        self.recreate(one_shot)
        return one_shot

    def _sum_of_members(self, semantics: int, where: str) -> bool:
        if semantics == p4r.ActionProfileActionSet.DEFAULT_SIZE_DETERMINED_BY_ACTION_SELECTOR:
            return self.info.sum_of_members
        if semantics == p4r.ActionProfileActionSet.SUM_OF_MEMBERS:
            return True
        if semantics == p4r.ActionProfileActionSet.SUM_OF_WEIGHTS:
            return False
        raise invalid(f"{where}: unknown size_semantics {semantics}")

    def recreate(self, one_shot: OneShot) -> None:
        """Put the group and members of an action set into the data plane; all or nothing."""
        try:
            for action, weight, _ in one_shot.actions:
                one_shot.members.append(self._profile.add_member(action, weight))
            one_shot.handle = self._profile.create_group(self.info.max_group_size)
            self._fill_one_shot(one_shot)
        except Exception:
            self._clear(one_shot)
            raise
        self._one_shots[one_shot.handle] = one_shot

    def _fill_one_shot(self, one_shot: OneShot) -> None:
        shares = list(zip(one_shot.members, one_shot.actions, strict=True))
        self._profile.set_group(
            one_shot.handle,
            [(member, action.weight) for member, action in shares],
            down=[member for member, action in shares if self._is_down(action.watch)],
            at_random=one_shot.at_random,
        )

    def destroy_one_shot(self, one_shot: OneShot) -> None:
        """Remove the group and members of an action set from the data plane."""
        del self._one_shots[one_shot.handle]
        self._clear(one_shot)

    def _clear(self, one_shot: OneShot) -> None:
        if one_shot.handle >= 0:
            self._profile.delete_group(one_shot.handle)
            one_shot.handle = -1
        while one_shot.members:
            self._profile.delete_member(one_shot.members.pop())

    def _check_not_one_shot(self) -> None:
        if self._one_shots:
            raise invalid(
                f"{self._where} is programmed with one-shot action sets "
                f"({len(self._one_shots)} "
                "entries); it cannot have members and groups at the same time"
            )

    # --- common -------------------------------------------------------------------------------

    def read_members(self, member_id: int) -> Iterator[bytes]:
        """Serialised Entity messages of one member, or of all when `member_id` is 0."""
        for key, member in self._members.items():
            if member_id in (0, key):
                yield message_field(ENTITY_MEMBER, member.wire)

    def read_groups(self, group_id: int) -> Iterator[bytes]:
        """Serialised Entity messages of one group, or of all when `group_id` is 0."""
        for key, group in self._groups.items():
            if group_id in (0, key):
                yield message_field(ENTITY_GROUP, group.wire)

    def _check_share(self, item: Any, where: str) -> int | None:
        """Check weight and watch port of a member or action; the port."""
        if item.weight <= 0:
            raise invalid(f"{where}: weight {item.weight} is not positive")
        if self.info.max_member_weight and item.weight > self.info.max_member_weight:
            raise invalid(
                f"{where}: weight {item.weight} exceeds max_member_weight "
                f"{self.info.max_member_weight}"
            )
        return self._watched(item, where)

    def _size(self, weights: list[int]) -> int:
        return len(weights) if self.info.sum_of_members else sum(weights)

    def _id(self, number: int, field: str) -> int:
        if not number:
            raise invalid(f"{self._where}: {field} 0 is only for reading all of them")
        return number

    @property
    def _where(self) -> str:
        return f"action profile {self.info.name!r}"


def _count(members: list[Share], step: int) -> None:
    for share in members:
        share.member.groups += step


def _check_weights(where: str, weights: list[int]) -> None:
    """A member is in a group once per weight, so that these need a limit of their own."""
    if sum(weights) > _MOST_WEIGHTS:
        raise Failure(
            RESOURCE_EXHAUSTED,
            f"{where}: the weights sum up to {sum(weights)}; at most {_MOST_WEIGHTS}",
        )


def _group_wire(message: Any, max_size: int) -> bytes:
    """The group as it is read: byte strings in their shortest form."""
    copy = p4r.ActionProfileGroup()
    copy.CopyFrom(message)
    copy.max_size = max_size
    for item in copy.members:
        shorten_watch(item)
    return bytes(copy.SerializeToString())
