//! See `kfs::hostile::batch`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kfs::hostile::batch(data));
