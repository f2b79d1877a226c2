"""What the parts of an acknowledgement cost without Floe: a PUT to an S3 store or to a directory, and a commit to SQLite."""
import contextlib
import datetime
import hashlib
import hmac
import http.client
import os
import sqlite3
import time

PROBE_BYTES = 4096
ACCESS_KEY, SECRET_KEY, REGION = "rigkey", "rigsecret123", "us-east-1"
PAYLOAD = "UNSIGNED-PAYLOAD"


def put_seconds(endpoint, count):
    """Seconds of `count` PUTs, one after the other on one connection, as signed as Floe's; sorted."""
    host = endpoint.removeprefix("http://")
    connection = http.client.HTTPConnection(host)
    seconds = []
    for number in range(count):
        path = f"/floe/probe/{time.time_ns()}-{number}"
        began = time.perf_counter()
        connection.request("PUT", path, b"x" * PROBE_BYTES, signed(host, path))
        answer = connection.getresponse()
        answer.read()
        seconds.append(time.perf_counter() - began)
        if answer.status != 200:
            raise RuntimeError(f"the probe's PUT was answered with {answer.status}")
    connection.close()
    return sorted(seconds)


def signed(host, path):
    """Headers of a PUT in the way of AWS Signature Version 4."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    names = "host;x-amz-content-sha256;x-amz-date"
    request = "\n".join(["PUT", path, "", f"host:{host}", f"x-amz-content-sha256:{PAYLOAD}", f"x-amz-date:{now}", "",
                         names, PAYLOAD])
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{SECRET_KEY}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.new(key, part.encode(), "sha256").digest()
    credential = f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    return {"x-amz-content-sha256": PAYLOAD, "x-amz-date": now, "Authorization": credential}


def commit_seconds(path, count):
    """Seconds of `count` commits of a row to SQLite that wait for the disk; sorted."""
    database = sqlite3.connect(path, isolation_level=None)
    with contextlib.closing(database):
        database.execute("PRAGMA journal_mode = wal")
        database.execute("PRAGMA synchronous = full")
        database.execute("CREATE TABLE IF NOT EXISTS rows (value BLOB)")
        seconds = []
        for _ in range(count):
            began = time.perf_counter()
            database.execute("INSERT INTO rows VALUES (zeroblob(200))")
            seconds.append(time.perf_counter() - began)
    return sorted(seconds)


def directory_put_seconds(folder, count):
    """Seconds of `count` durable files: data, name and folder each reach the disk; sorted."""
    seconds = []
    directory = os.open(folder, os.O_RDONLY)
    try:
        for number in range(count):
            path = folder / f"probe-{number}"
            began = time.perf_counter()
            file = os.open(f"{path}.part", os.O_CREAT | os.O_WRONLY)
            os.write(file, b"x" * PROBE_BYTES)
            os.fdatasync(file)
            os.close(file)
            os.rename(f"{path}.part", path)
            os.fsync(directory)
            seconds.append(time.perf_counter() - began)
            path.unlink()
    finally:
        os.close(directory)
    return sorted(seconds)
