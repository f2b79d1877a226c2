"""Consumer groups of the newer protocol (KIP-848), with librdkafka's: sharing, restarts, both protocols in one group."""
import time

import confluent_kafka
from confluent_kafka.admin import AdminClient

from kit import CLIENT_SECONDS, QUIET, create_topic, send

POLL_SECONDS = 0.1


class Member:
    """A consumer that notes what happens to its partitions: `calls` are "assign", "revoke", "lost" with partitions."""

    def __init__(self, floe, group, topics, protocol="consumer", **settings):
        self.calls, self.values = [], []
        self.client = confluent_kafka.Consumer({
            "bootstrap.servers": floe.kafka, "group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "topic.metadata.refresh.interval.ms": 1_000,
        } | QUIET | settings)
        note = {name: lambda _, places, name=name: self.calls.append((name, sorted(place.partition for place in places)))
                for name in ("assign", "revoke", "lost")}
        self.client.subscribe(topics, on_assign=note["assign"], on_revoke=note["revoke"], on_lost=note["lost"])

    def poll(self):
        record = self.client.poll(POLL_SECONDS)
        if record is not None and record.error() is None:
            self.values.append(record.value())

    def has(self):
        return sorted(place.partition for place in self.client.assignment())

    def close(self):
        self.client.close()


def poll_until(members, is_done, what):
    deadline = time.monotonic() + CLIENT_SECONDS
    while not is_done():
        assert time.monotonic() < deadline, f"{what}: {[(member.has(), member.calls) for member in members]}"
        for member in members:
            member.poll()


def poll_for(members, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for member in members:
            member.poll()


def is_shared(members, partitions):
    """Whether every partition has one member, and no member two more than another."""
    parts = [member.has() for member in members]
    sizes = [len(part) for part in parts]
    return sorted(sum(parts, [])) == list(range(partitions)) and max(sizes) - min(sizes) <= 1


def described(floe, group):
    admin = AdminClient({"bootstrap.servers": floe.kafka} | QUIET)
    return admin.describe_consumer_groups([group])[group].result(CLIENT_SECONDS)


def fill(floe, topic, partitions, count):
    create_topic(floe, topic, partitions)
    for partition in range(partitions):
        send(floe, topic, [f"{partition}-{number}" for number in range(count)], partition=partition)


def test_members_share_partitions_and_the_last_gets_all(floe, topic):
    fill(floe, topic, 6, 20)
    group = f"group-{topic}"
    members = [Member(floe, group, [topic]) for _ in range(3)]
    poll_until(members, lambda: is_shared(members, 6), "three share")
    # While they came, records may have been read by two of them in turn; none is missing.
    poll_until(members, lambda: len({value for member in members for value in member.values}) == 120, "all is read")
    view = described(floe, group)
    assert (view.state.name, view.type.name, len(view.members)) == ("STABLE", "CONSUMER", 3)
    members[0].close()
    members[1].close()
    poll_until(members[2:], lambda: is_shared(members[2:], 6), "the last has all")
    places = [confluent_kafka.TopicPartition(topic, partition, 20) for partition in range(6)]
    committed = members[2].client.commit(offsets=places, asynchronous=False)
    assert all(place.error is None for place in committed)
    members[2].close()

    late = Member(floe, group, [topic])
    poll_until([late], lambda: is_shared([late], 6), "a new one has all")
    poll_for([late], 1)
    assert late.values == []
    late.close()


def test_a_kill_causes_no_rebalance(floe, topic):
    fill(floe, topic, 4, 5)
    group = f"group-{topic}"
    members = [Member(floe, group, [topic]) for _ in range(2)]
    poll_until(members, lambda: is_shared(members, 4), "two share")
    poll_until(members, lambda: described(floe, group).state.name == "STABLE", "settled")
    before = [(member.has(), list(member.calls)) for member in members]
    epochs = described(floe, group)
    for _ in range(3):
        floe.kill9()
        floe.start()
        # Longer than a heartbeat's interval.
        poll_for(members, 6)
    assert [(member.has(), member.calls) for member in members] == before
    assert {each.member_id for each in described(floe, group).members} == {each.member_id for each in epochs.members}
    send(floe, topic, [b"after"], partition=0)
    poll_until(members, lambda: any(b"after" in member.values for member in members), "they go on")
    for member in members:
        place = [confluent_kafka.TopicPartition(topic, partition, 1) for partition in member.has()]
        assert all(each.error is None for each in member.client.commit(offsets=place, asynchronous=False))
        member.close()


def test_subscription_by_regex_finds_topics_that_come_later(floe, topic):
    create_topic(floe, f"{topic}-a", 2)
    create_topic(floe, f"x-{topic}-a", 1)
    member = Member(floe, f"group-{topic}", [f"^{topic}-.*"])
    poll_until([member], lambda: len(member.has()) == 2, "the first topic")
    create_topic(floe, f"{topic}-b", 3)
    poll_until([member], lambda: len(member.has()) == 5, "the second topic")
    assert {place.topic for place in member.client.assignment()} == {f"{topic}-a", f"{topic}-b"}
    member.close()


def test_a_group_moves_to_the_newer_protocol_and_back_online(floe, topic):
    fill(floe, topic, 4, 10)
    group = f"group-{topic}"
    old = [Member(floe, group, [topic], "classic", **{"partition.assignment.strategy": "cooperative-sticky"}) for _ in range(2)]
    poll_until(old, lambda: is_shared(old, 4), "two of the classic protocol")
    assert described(floe, group).type.name == "CLASSIC"
    new = Member(floe, group, [topic])
    poll_until([*old, new], lambda: is_shared([*old, new], 4), "both protocols")
    assert described(floe, group).type.name == "CONSUMER"
    new.close()
    poll_until(old, lambda: is_shared(old, 4), "back to the classic protocol")
    assert described(floe, group).type.name == "CLASSIC"
    assert not [call for member in old for call in member.calls if call[0] == "lost"], "they could commit until they rejoined"

    new = [Member(floe, group, [topic]) for _ in range(2)]
    old[0].close()
    poll_until([old[1], *new], lambda: is_shared([old[1], *new], 4), "one of three")
    old[1].close()
    poll_until(new, lambda: is_shared(new, 4), "the newer protocol alone")
    view = described(floe, group)
    assert (view.type.name, view.state.name) == ("CONSUMER", "STABLE")
    for member in new:
        member.close()


def test_a_static_member_comes_back_to_its_partitions(floe, topic):
    create_topic(floe, topic, 4)
    group = f"group-{topic}"
    one = Member(floe, group, [topic], **{"group.instance.id": "one"})
    other = Member(floe, group, [topic])
    poll_until([one, other], lambda: is_shared([one, other], 4), "two share")
    before, calls = one.has(), list(other.calls)
    one.close()
    poll_for([other], 6)
    again = Member(floe, group, [topic], **{"group.instance.id": "one"})
    poll_until([again, other], lambda: again.has() == before, "the same partitions")
    assert other.calls == calls, "nobody else was disturbed"
    again.close()
    other.close()


def test_a_static_member_moves_to_the_newer_protocol(floe, topic):
    fill(floe, topic, 4, 1)
    group = f"group-{topic}"
    settings = {"group.instance.id": "one", "session.timeout.ms": 40_000}
    old = Member(floe, group, [topic], "classic", **settings)
    poll_until([old], lambda: old.has() == [0, 1, 2, 3] and len(old.values) == 4, "all partitions")
    old.client.commit(asynchronous=False)
    # A static member does not say that it goes.
    old.close()
    new = Member(floe, group, [topic], **{"group.instance.id": "one"})
    poll_until([new], lambda: new.has() == [0, 1, 2, 3], "the next process takes its place")
    view = described(floe, group)
    assert (view.type.name, [member.group_instance_id for member in view.members]) == ("CONSUMER", ["one"])
    poll_for([new], 1)
    assert new.values == []
    new.close()
