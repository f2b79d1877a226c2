"""What was acknowledged is there after a restart. Kills under load are in test_kill.py."""
from kit import read_all, send


def test_a_graceful_restart_loses_nothing(floe, topic):
    for round_number in range(3):
        send(floe, topic, [f"{round_number}-{number}" for number in range(200)], partition=0)
        floe.restart()
    got = [record.value().decode() for record in read_all(floe, topic)[0]]
    assert got == [f"{round_number}-{number}" for round_number in range(3) for number in range(200)]


def test_readiness_and_data_survive_many_kills_without_load(floe, topic):
    send(floe, topic, [b"kept"], partition=0)
    for _ in range(5):
        floe.kill9()
        floe.start()
    assert [record.value() for record in read_all(floe, topic)[0]] == [b"kept"]
