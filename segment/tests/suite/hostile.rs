//! The fuzz targets' entry functions over their corpora, each file also cut and with bits
//! flipped, as a stable test.

use crate::{golden, regenerate};
use kfs::hostile::TARGETS;
use kfs::{BatchView, Codec, Tail, Trailer};
use std::path::PathBuf;

fn corpus(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

const KAFKA: [&str; 7] = ["none", "gzip", "snappy", "lz4", "zstd22", "commit", "abort"];

/// The seeds, all made from the golden files.
fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let mut seeds = Vec::new();
    for name in KAFKA {
        let batch = golden(&format!("kafka-4.4.0-{name}.batch"));
        let view = BatchView::parse(&batch).unwrap();
        let codec = view.header.codec().unwrap();
        let compressed = [&[codec.bits()], view.stored_records()].concat();
        seeds.push(("codec", name.to_owned(), compressed));
        if codec == Codec::None {
            let records = [&[view.header.record_count as u8], view.stored_records()].concat();
            seeds.push(("records", name.to_owned(), records));
        }
        seeds.push(("batch", name.to_owned(), batch));
    }
    let raw = snap::raw::Encoder::new().compress_vec(b"raw raw raw raw").unwrap();
    seeds.push(("codec", "snappy-raw".to_owned(), [&[2], &raw[..]].concat()));
    for name in ["fresh-v2", "merged-v2"] {
        let mut object = golden(&format!("{name}.kfs"));
        let trailer = Trailer::parse(object.len() as u64, &object).unwrap();
        let footer = trailer.footer_range();
        let footer = object[footer.start as usize..footer.end as usize].to_vec();
        assert!(matches!(Tail::parse(object.len() as u64, &object), Ok(Tail::Footer(_))));
        seeds.push(("footer", name.to_owned(), footer));
        object.truncate(4096);
        seeds.push(("object", name.to_owned(), object));
    }
    let none = golden("kafka-4.4.0-none.batch");
    let header = b"KAFS\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0";
    let footer = b"\0\0\0\0\0\0\0\0\0\0\0\x03END!";
    seeds.push(("v1", "segment".to_owned(), [&header[..], &none, footer].concat()));
    let index = b"IDX\0\0\x01\0\0\0\x01\0\0\0\x64\0\0\0\0\0\0\0\0\0\0\0\0\0\x20";
    seeds.push(("v1", "index".to_owned(), index.to_vec()));
    seeds
}

#[test]
fn corpora_hold_the_seeds() {
    for (target, name, bytes) in seeds() {
        let path = corpus(target).join(name);
        if regenerate() {
            std::fs::create_dir_all(corpus(target)).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(std::fs::read(&path).expect("seed") == bytes, "{}", path.display());
    }
}

#[test]
fn entry_functions_hold_over_their_corpora() {
    for (target, entry) in TARGETS {
        let mut files: Vec<PathBuf> = std::fs::read_dir(corpus(target))
            .expect(target)
            .map(|file| file.unwrap().path())
            .collect();
        files.sort();
        assert!(!files.is_empty(), "{target}");
        for file in files {
            let data = std::fs::read(file).unwrap();
            entry(&data);
            // The first bytes are where the structure is; large files are thinned out.
            let step = 1 + data.len() / 200;
            for at in (0..data.len()).step_by(step).chain(0..data.len().min(100)) {
                entry(&data[..at]);
                let mut flipped = data.clone();
                for bit in [0, 4, 7] {
                    flipped[at] = data[at] ^ 1 << bit;
                    entry(&flipped);
                }
            }
        }
    }
}
