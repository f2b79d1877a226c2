"""The engines of the demo: each answers the same question about the flights from the table, through Floe's catalog."""
import importlib.util
import os
import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "e2e"), str(ROOT / "conformance")]

import pyarrow.compute as compute  # noqa: E402
from kit import duckdb_on  # noqa: E402
from pyiceberg.catalog import load_catalog  # noqa: E402

# flights, without a key, cancelled, miles, minutes of delay.
COLUMNS = ("_kafka_key", "dep_time", "distance", "arr_delay")


def attach(floe, folder):
    """DuckDB on the catalog, as anybody attaches it; its extensions are kept beside the demo's data."""
    extensions = folder / "duckdb"
    extensions.mkdir(exist_ok=True)
    os.environ["FLOE_DUCKDB_EXTENSIONS"] = str(extensions)
    return duckdb_on(floe)


def ask_duckdb(lake):
    return lake.sql("""SELECT count(*), count(*) FILTER (_kafka_key IS NULL), count(*) FILTER (dep_time IS NULL),
        sum(distance), sum(arr_delay) FROM lake.kafka.flights""").fetchone()


def ask_pyiceberg(floe):
    catalog = load_catalog("floe", type="rest", uri=f"http://{floe.http}/iceberg")
    rows = catalog.load_table("kafka.flights").scan(selected_fields=COLUMNS).to_arrow()
    key, departed, miles, delay = (rows.column(name) for name in COLUMNS)
    return rows.num_rows, key.null_count, departed.null_count, compute.sum(miles).as_py(), compute.sum(delay).as_py()


def has_java():
    return all(shutil.which(program) for program in ("java", "javac", "mvn"))


def ask_spark(floe, folder):
    """Spark as `make conformance` has it: its jars come by Maven, once."""
    spec = importlib.util.spec_from_file_location("spark_suite", ROOT / "conformance" / "spark" / "suite.py")
    suite = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(suite)
    suite.SUITE.prepare()
    spark = suite.Session(suite.SUITE, floe, folder)
    try:
        row, = spark.sql("SELECT count(*) AS a, count_if(_kafka_key IS NULL) AS b, count_if(dep_time IS NULL) AS c, "
                         "sum(distance) AS d, sum(arr_delay) AS e FROM lake.kafka.flights")
        return tuple(row[name] for name in "abcde")
    finally:
        spark.close()
