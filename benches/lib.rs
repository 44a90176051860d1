//! What the benchmarks share. The benchmarks themselves are the `[[bench]]` targets beside this file: one file, one
//! question, each with a floor measured in the same run.
#![forbid(unsafe_code)]
