-- Every table is keyed for the one path that reads it. A topic is the 16 bytes of its UUID.

CREATE TABLE facts (
    key   TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE partitions (
    topic              BLOB    NOT NULL,
    partition          INTEGER NOT NULL,
    version            INTEGER NOT NULL,
    log_start_offset   INTEGER NOT NULL,
    high_watermark     INTEGER NOT NULL,
    last_stable_offset INTEGER NOT NULL,
    bytes              INTEGER NOT NULL CHECK (bytes >= 0),
    fresh_from         INTEGER NOT NULL, -- extents from this offset on are in fresh_segments
    producers          BLOB    NOT NULL, -- those that wrote last, packed
    PRIMARY KEY (topic, partition)
) WITHOUT ROWID;

-- An object dies when no extent names a byte of it any more.
CREATE TABLE objects (
    id            INTEGER PRIMARY KEY,
    key           TEXT    NOT NULL UNIQUE,
    size          INTEGER NOT NULL,
    live_bytes    INTEGER NOT NULL CHECK (live_bytes >= 0),
    fresh_extents INTEGER NOT NULL CHECK (fresh_extents >= 0), -- of its row in fresh_segments
    dead_since_ms INTEGER
);
CREATE INDEX dead_objects ON objects (dead_since_ms, key) WHERE dead_since_ms IS NOT NULL;

-- All extents that a segment's commit made, packed. Never changed; gone with the last that is fresh.
CREATE TABLE fresh_segments (
    object  INTEGER PRIMARY KEY,
    extents BLOB    NOT NULL
);

-- Extents before their partition's fresh_from.
-- Either object, position and length are set, or place (a marker or a hole).
CREATE TABLE extents (
    topic            BLOB    NOT NULL,
    partition        INTEGER NOT NULL,
    base_offset      INTEGER NOT NULL,
    last_offset      INTEGER NOT NULL,
    object           INTEGER,
    position         INTEGER,
    length           INTEGER,
    place            BLOB,
    flags            INTEGER NOT NULL,
    max_timestamp_ms INTEGER NOT NULL,
    PRIMARY KEY (topic, partition, base_offset)
) WITHOUT ROWID;

-- Producers that no longer are in their partition's row; one that is there is newer there.
CREATE TABLE producers (
    topic             BLOB    NOT NULL,
    partition         INTEGER NOT NULL,
    producer          INTEGER NOT NULL,
    epoch             INTEGER NOT NULL,
    batches           BLOB    NOT NULL,
    transaction_start INTEGER,
    last_written_ms   INTEGER NOT NULL,
    PRIMARY KEY (topic, partition, producer)
) WITHOUT ROWID;

CREATE TABLE aborted (
    topic              BLOB    NOT NULL,
    partition          INTEGER NOT NULL,
    last_offset        INTEGER NOT NULL,
    producer           INTEGER NOT NULL,
    first_offset       INTEGER NOT NULL,
    last_stable_offset INTEGER NOT NULL,
    PRIMARY KEY (topic, partition, last_offset)
) WITHOUT ROWID;

CREATE TABLE outcomes (
    broker  INTEGER NOT NULL,
    epoch   INTEGER NOT NULL,
    counter INTEGER NOT NULL,
    outcome BLOB    NOT NULL,
    PRIMARY KEY (broker, epoch, counter)
) WITHOUT ROWID;

-- Outcomes up to this counter are gone; a segment up to it is never decided again.
CREATE TABLE forgotten_outcomes (
    broker INTEGER NOT NULL,
    epoch  INTEGER NOT NULL,
    up_to  INTEGER NOT NULL,
    PRIMARY KEY (broker, epoch)
) WITHOUT ROWID;
