"""Every kind of metric moves with what it measures: a metric that nobody records would be 0 for ever."""
import socket
import struct

from kit import create_topic, duckdb_on, read_all, run_kcat, send

# Kind of metric: series that must be above 0 once records were written, read and queried, and a client has erred.
MOVED = {
    "requests": ['floe_kafka_requests_total{api="Produce"}', 'floe_kafka_requests_total{api="Fetch"}'],
    "bytes": ['floe_kafka_request_bytes_total{api="Produce"}', 'floe_kafka_response_bytes_total{api="Fetch"}'],
    "errors": ['floe_kafka_errors_total{api="Metadata",error="UNKNOWN_TOPIC_OR_PARTITION"}', "floe_kafka_connections_refused_total"],
    "latencies": [
        'floe_kafka_request_seconds_count{api="Produce"}', "floe_log_upload_seconds_count", "floe_log_commit_seconds_count",
        'floe_store_request_seconds_count{kind="put"}', 'floe_store_request_seconds_count{kind="get"}',
    ],
    "store requests": [
        *(f'floe_store_requests_total{{kind="{kind}",outcome="ok"}}' for kind in ("put", "get", "head", "list", "delete")),
        'floe_store_bytes_total{kind="put"}', 'floe_store_bytes_total{kind="get"}',
    ],
    "segments": [
        "floe_log_segment_bytes_count", 'floe_log_segments_cut_total{reason="time"}', "floe_log_batches_total",
        'floe_log_commits_total{outcome="applied"}',
    ],
    "queue waits": ["floe_log_produce_queue_seconds_count"],
    "memory": [
        "floe_memory_budget_bytes", "floe_memory_counted_bytes", "floe_process_resident_bytes", "floe_cache_held_bytes",
        "floe_cache_hits_total",
    ],
    "connections": ["floe_kafka_connections_opened_total", "floe_process_open_files", "floe_ready"],
    "jobs": ['floe_job_rounds_total{job="tables"}'],
}
# Series that must be there, whatever their value.
SHOWN = ['floe_table_lag_records{table="%s"}', 'floe_table_lag_seconds{table="%s"}']


def metrics(floe):
    lines = (line.rpartition(" ") for line in floe.get("/metrics")[1].splitlines() if not line.startswith("#"))
    return {series: float(value) for series, _, value in lines}


def test_every_kind_of_metric_moves(floe, topic):
    create_topic(floe, topic, 1)
    send(floe, topic, [b"x" * 1000] * 10)
    read_all(floe, topic)
    with duckdb_on(floe) as lake:
        assert lake.sql(f"SELECT count(*) FROM lake.kafka.{topic}").fetchall() == [(10,)]
    # Asked for without being made.
    assert run_kcat(floe, "-C", "-t", "nowhere", "-e").returncode != 0
    host, port = floe.kafka.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", -1))
        assert connection.recv(1) == b"", "a length that is none closes the connection"
    found = metrics(floe)
    still = {kind: [each for each in series if not found.get(each)] for kind, series in MOVED.items()}
    assert not any(still.values()), {kind: series for kind, series in still.items() if series}
    for series in SHOWN:
        assert series % topic in found, series % topic
