"""One raw Produce request (version 9) with a record of its own, for tests that must know which bytes are its answer."""
import socket
import struct
import time

PRODUCE, VERSION = 0, 9
CRC32C_POLYNOMIAL = 0x82F63B78


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ CRC32C_POLYNOMIAL * (value & 1)
    return value ^ 0xFFFFFFFF


def varint(number):
    """Zigzag, as in records."""
    return unsigned(number * 2 if number >= 0 else -number * 2 - 1)


def unsigned(number):
    """Seven bits a byte, as for compact lengths."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def batch(value):
    """A batch of one record without key, headers or producer."""
    record = b"\0" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value + varint(0)
    now_ms = int(time.time() * 1000)
    checked = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + varint(len(record)) + record
    return struct.pack(">qiibI", 0, 4 + 1 + 4 + len(checked), -1, 2, crc32c(checked)) + checked


def compact(data):
    return unsigned(len(data) + 1) + data


def produce(address, topic, partition, value, correlation_id):
    """Sends one record with acks=all and waits; returns (error code, base offset)."""
    client = b"raw"
    header = struct.pack(">hhih", PRODUCE, VERSION, correlation_id, len(client)) + client + b"\0"
    partitions = unsigned(2) + struct.pack(">i", partition) + compact(batch(value)) + b"\0"
    topics = unsigned(2) + compact(topic.encode()) + partitions + b"\0"
    body = b"\0" + struct.pack(">hi", -1, 30_000) + topics + b"\0"
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(header + body)) + header + body)
        answer = read(connection, struct.unpack(">i", read(connection, 4))[0])
    name = compact(topic.encode())
    place = 4 + 1 + 1 + len(name) + 1
    assert answer[:4] == struct.pack(">i", correlation_id) and answer[6:6 + len(name)] == name, answer
    index, error, offset = struct.unpack_from(">ihq", answer, place)
    assert index == partition, answer
    return error, offset


def read(connection, count):
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        assert part, "the broker closed the connection"
        data += part
    return data
