"""What was acknowledged is there after kill -9, once and in order."""
import threading
import time

from kit import CLIENT_SECONDS, producer, read_all, send

KILLS = 3
SECONDS_BETWEEN_KILLS = 1.5


class Load(threading.Thread):
    """A producer that sends numbered records to partition 0 until it is told to stop, and notes what was acknowledged."""

    def __init__(self, floe, topic):
        super().__init__(daemon=True)
        self.client = producer(floe, **{
            "message.timeout.ms": 120_000, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 50,
            "queue.buffering.max.messages": 20_000,
        })
        self.topic, self.sent, self.acknowledged, self.errors = topic, 0, {}, []
        self.ending = threading.Event()

    def on_delivery(self, error, record):
        if error:
            self.errors.append(str(error))
        else:
            self.acknowledged[int(record.value())] = record.offset()

    def run(self):
        while not self.ending.is_set():
            try:
                self.client.produce(self.topic, value=str(self.sent), partition=0, on_delivery=self.on_delivery)
                self.sent += 1
            except BufferError:  # the queue is full while the broker is away
                self.client.poll(0.05)
            self.client.poll(0)
            if self.sent % 500 == 0:
                time.sleep(0.01)

    def finish(self):
        self.ending.set()
        self.join(CLIENT_SECONDS)
        assert self.client.flush(CLIENT_SECONDS) == 0, "records are never acknowledged after the last restart"


def test_acknowledged_records_survive_kill_9(floe, topic):
    send(floe, topic, ["-1"], partition=0)
    load = Load(floe, topic)
    load.start()
    for _ in range(KILLS):
        before = len(load.acknowledged)
        time.sleep(SECONDS_BETWEEN_KILLS)
        assert len(load.acknowledged) > before, "nothing was acknowledged before the kill"
        floe.kill9()
        floe.start()
    load.finish()
    assert not load.errors, load.errors[:3]

    records = read_all(floe, topic)[0]
    values = [int(record.value()) for record in records]
    # Idempotent over restarts: every record once, in the order in which it was sent, and where the answer said.
    assert values == list(range(-1, load.sent))
    assert {int(record.value()): record.offset() for record in records if record.value() != b"-1"} == load.acknowledged


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
