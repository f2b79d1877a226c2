//! See `kfs::hostile::records`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kfs::hostile::records(data));
