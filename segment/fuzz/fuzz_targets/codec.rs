//! See `kfs::hostile::codec`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kfs::hostile::codec(data));
