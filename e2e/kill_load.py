"""A producer process: kill_load.py ADDRESS TOPIC PARTITION NAME once|plain NOTES

Sends the records `NAME:0`, `NAME:1`, ... with acks=all until its standard input closes, waits until all are acknowledged,
and writes a line `NUMBER OFFSET` to the file NOTES for each acknowledgement, in the order in which they came. `once` is the
idempotent producer; `plain` has one request in flight, without which Kafka promises no order either. Exits with 1, and says
why, where a record was refused or is never acknowledged.
"""
import select
import sys
import time

import confluent_kafka

FLUSH_SECONDS = 120
RECORDS_PER_PAUSE = 50
PAUSE_SECONDS = 0.02
KINDS = {"once": {"enable.idempotence": True}, "plain": {"max.in.flight.requests.per.connection": 1}}


def client(address, kind):
    return confluent_kafka.Producer({
        "bootstrap.servers": address, "acks": "all", "linger.ms": 5, "log_level": 0, "message.timeout.ms": 180_000,
        "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 50, "queue.buffering.max.messages": 20_000,
    } | KINDS[kind])


def is_over():
    """Whether the standard input was closed."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def main(address, topic, partition, name, kind, notes):
    producer, sent, errors = client(address, kind), 0, []
    with open(notes, "w", buffering=1) as output:
        def on_delivery(error, record):
            if error:
                errors.append(str(error))
            else:
                output.write(f"{record.value().decode().partition(':')[2]} {record.offset()}\n")

        while not is_over() and not errors:
            try:
                producer.produce(topic, value=f"{name}:{sent}", partition=int(partition), on_delivery=on_delivery)
                sent += 1
            except BufferError:  # the queue is full while the broker is away
                producer.poll(0.05)
            producer.poll(0)
            if sent % RECORDS_PER_PAUSE == 0:
                time.sleep(PAUSE_SECONDS)
        left = producer.flush(FLUSH_SECONDS)
    if errors or left:
        sys.exit(f"{name}: {left} records were never acknowledged, {len(errors)} refused: {errors[:3]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
