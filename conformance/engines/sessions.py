"""One session of an engine: reads questions from its standard input, a line each, and answers each with a line.

    sessions.py ENGINE     a question: {"table", "columns", "where"}; an answer: {"rows": [...]} or {"error": "..."}

Runs in the suite's own environment, whose packages nothing else here needs. CATALOG_URI and S3_* say where the tables are. Each
question loads its table anew, as docs/tables.md says of the engine. Values are spelled as `spelling.py` says.
"""
import importlib.util
import json
import os
import pathlib
import sys
import tempfile
import urllib.parse

import pyarrow
from pyiceberg.catalog import load_catalog
from spelling import spell

ENV = os.environ


def quoted(columns):
    return ", ".join('"' + name.replace('"', '""') + '"' for name in columns)


def select(table, columns, where):
    return f"SELECT {quoted(columns)} FROM {table}" + (f" WHERE {where}" if where else "")


class PyIceberg:
    def __init__(self):
        self.catalog = load_catalog("floe", **{
            "type": "rest", "uri": ENV["CATALOG_URI"], "s3.endpoint": ENV["S3_ENDPOINT"], "s3.region": ENV["S3_REGION"],
            "s3.access-key-id": ENV["S3_ACCESS_KEY"], "s3.secret-access-key": ENV["S3_SECRET_KEY"]})

    def load(self, table):
        return self.catalog.load_table(("kafka", table))

    def ask(self, table, columns, where):
        scanned = self.load(table).scan(row_filter=where or "true", selected_fields=tuple(columns))
        return scanned.to_arrow()


class Polars(PyIceberg):
    """Its own reader of Parquet, on the files that PyIceberg names."""

    def ask(self, table, columns, where):
        import polars
        options = {"aws_endpoint_url": ENV["S3_ENDPOINT"], "aws_access_key_id": ENV["S3_ACCESS_KEY"], "aws_allow_http": "true",
                   "aws_secret_access_key": ENV["S3_SECRET_KEY"], "aws_region": ENV["S3_REGION"]}
        frame = polars.scan_iceberg(self.load(table), storage_options=options, reader_override="native")
        if where:
            frame = frame.filter(polars.sql_expr(where))
        return frame.select(columns).collect().to_arrow()


class Daft(PyIceberg):
    """Its own reader of Parquet, on the files that PyIceberg names."""

    def ask(self, table, columns, where):
        import daft
        from daft.io import IOConfig, S3Config
        store = IOConfig(s3=S3Config(
            endpoint_url=ENV["S3_ENDPOINT"], key_id=ENV["S3_ACCESS_KEY"], access_key=ENV["S3_SECRET_KEY"],
            region_name=ENV["S3_REGION"], force_virtual_addressing=False, use_ssl=False))
        frame = daft.read_iceberg(self.load(table), io_config=store)
        if where:
            frame = frame.where(where)
        return frame.select(*columns).to_arrow()


class DataFusion(PyIceberg):
    """Reads by iceberg-rust, from the metadata file that PyIceberg names."""

    def ask(self, table, columns, where):
        from datafusion import SessionContext
        from pyiceberg_core.datafusion import IcebergDataFusionTable
        loaded = self.load(table)
        store = {name: str(value) for name, value in loaded.io.properties.items() if name.startswith("s3.")}
        provider = IcebergDataFusionTable(
            identifier=loaded.name(), metadata_location=loaded.metadata_location,
            file_io_properties=store | {"s3.path-style-access": "true"})
        context = SessionContext()
        context.register_table("t", provider)
        return context.sql(select("t", columns, where)).to_arrow_table()


class DuckDB:
    def __init__(self):
        import duckdb
        self.session = duckdb.connect(config={
            "allow_unsigned_extensions": "true", "extension_directory": tempfile.mkdtemp(dir=ENV["TMPDIR"])})
        for name in ("avro", "httpfs", "iceberg"):
            package = pathlib.Path(importlib.util.find_spec(f"duckdb_extension_{name}").origin).parent
            self.session.execute(f"INSTALL '{next(package.glob(f'extensions/*/{name}.duckdb_extension'))}'")
            self.session.execute(f"LOAD {name}")
        self.session.execute(f"""CREATE SECRET (TYPE s3, KEY_ID '{ENV["S3_ACCESS_KEY"]}', SECRET '{ENV["S3_SECRET_KEY"]}',
            REGION '{ENV["S3_REGION"]}', ENDPOINT '{urllib.parse.urlsplit(ENV["S3_ENDPOINT"]).netloc}', URL_STYLE 'path',
            USE_SSL false)""")
        self.session.execute(f"""ATTACH '' AS lake (TYPE ICEBERG, ENDPOINT '{ENV["CATALOG_URI"]}',
            AUTHORIZATION_TYPE 'none', ACCESS_DELEGATION_MODE 'none')""")

    def ask(self, table, columns, where):
        return self.session.execute(select(f"lake.kafka.{table}", columns, where)).fetch_arrow_table()


class ClickHouse:
    """Its text and its bytes are one type, String: everything comes as bytes, and is compared as bytes."""

    def __init__(self):
        from chdb import session
        self.session = session.Session()
        self.session.query("SET allow_experimental_database_iceberg = 1, allow_database_iceberg = 1")
        self.session.query(f"""CREATE DATABASE lake ENGINE = DataLakeCatalog('{ENV["CATALOG_URI"]}/v1',
            '{ENV["S3_ACCESS_KEY"]}', '{ENV["S3_SECRET_KEY"]}') SETTINGS catalog_type = 'rest', warehouse = '{ENV["WAREHOUSE"]}',
            storage_endpoint = '{ENV["S3_ENDPOINT"]}/{ENV["S3_BUCKET"]}', vended_credentials = false""")

    def ask(self, table, columns, where):
        # In its quoted names a backslash escapes.
        names = [name.replace("\\", "\\\\") for name in columns]
        statement = select(f"lake.`kafka.{table}`", names, where)
        answer = self.session.query(
            f"{statement} SETTINGS session_timezone = 'UTC', output_format_arrow_string_as_string = 0", "ArrowStream")
        return pyarrow.ipc.open_stream(answer.bytes()).read_all()


ENGINES = {"PyIceberg": PyIceberg, "Polars": Polars, "Daft": Daft, "DataFusion": DataFusion, "DuckDB": DuckDB,
           "ClickHouse": ClickHouse}


def main(engine):
    # Engines print as they like: what was standard output is for answers alone.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    session = ENGINES[engine]()
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = {"rows": [spell(row) for row in session.ask(**question).to_pylist()]}
        except Exception as error:  # an engine's error is its answer, whatever it is
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
