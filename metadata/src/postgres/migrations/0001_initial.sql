-- Every table is keyed for the one path that reads it. The collation of facts is that of bytes.

-- A value is NULL only within a transaction that checks that a fact is absent.
CREATE TABLE facts (
    key   text COLLATE "C" PRIMARY KEY,
    value bytea
);

-- Every commit updates rows here: with as much room as they take, the new version stays in the page
-- and no index changes.
CREATE TABLE partitions (
    topic              uuid    NOT NULL,
    partition          integer NOT NULL,
    version            bigint  NOT NULL,
    log_start_offset   bigint  NOT NULL,
    high_watermark     bigint  NOT NULL,
    last_stable_offset bigint  NOT NULL,
    bytes              bigint  NOT NULL CHECK (bytes >= 0),
    fresh_from         bigint  NOT NULL, -- extents from this offset on are in fresh_segments
    producers          bytea   NOT NULL, -- those that wrote last, packed
    PRIMARY KEY (topic, partition)
) WITH (fillfactor = 45);

-- An object dies when no extent names a byte of it any more.
CREATE TABLE objects (
    id            bigint PRIMARY KEY,
    key           text COLLATE "C" NOT NULL UNIQUE,
    size          bigint NOT NULL,
    live_bytes    bigint NOT NULL CHECK (live_bytes >= 0),
    fresh_extents bigint NOT NULL CHECK (fresh_extents >= 0), -- of its row in fresh_segments
    dead_since_ms bigint
);
CREATE INDEX dead_objects ON objects (dead_since_ms, key) WHERE dead_since_ms IS NOT NULL;
CREATE SEQUENCE object_ids;

-- All extents that a segment's commit made, packed. Never changed; gone with the last that is fresh.
CREATE TABLE fresh_segments (
    object  bigint PRIMARY KEY,
    extents bytea  NOT NULL
);

-- Extents before their partition's fresh_from.
-- Either object, position and length are set, or place (a marker or a hole).
CREATE TABLE extents (
    topic            uuid     NOT NULL,
    partition        integer  NOT NULL,
    base_offset      bigint   NOT NULL,
    last_offset      bigint   NOT NULL,
    object           bigint,
    position         bigint,
    length           bigint,
    place            bytea,
    flags            smallint NOT NULL,
    max_timestamp_ms bigint   NOT NULL,
    PRIMARY KEY (topic, partition, base_offset)
);

-- Producers that no longer are in their partition's row; one that is there is newer there.
CREATE TABLE producers (
    topic             uuid     NOT NULL,
    partition         integer  NOT NULL,
    producer          bigint   NOT NULL,
    epoch             smallint NOT NULL,
    batches           bytea    NOT NULL,
    transaction_start bigint,
    last_written_ms   bigint   NOT NULL,
    PRIMARY KEY (topic, partition, producer)
);

CREATE TABLE aborted (
    topic              uuid    NOT NULL,
    partition          integer NOT NULL,
    last_offset        bigint  NOT NULL,
    producer           bigint  NOT NULL,
    first_offset       bigint  NOT NULL,
    last_stable_offset bigint  NOT NULL,
    PRIMARY KEY (topic, partition, last_offset)
);

CREATE TABLE outcomes (
    broker  integer NOT NULL,
    epoch   bigint  NOT NULL,
    counter bigint  NOT NULL,
    outcome bytea   NOT NULL,
    PRIMARY KEY (broker, epoch, counter)
);

-- Outcomes up to this counter are gone; a segment up to it is never decided again.
CREATE TABLE forgotten_outcomes (
    broker integer NOT NULL,
    epoch  bigint  NOT NULL,
    up_to  bigint  NOT NULL,
    PRIMARY KEY (broker, epoch)
);
