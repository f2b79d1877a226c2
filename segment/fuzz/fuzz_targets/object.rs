//! See `kfs::hostile::object`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kfs::hostile::object(data));
