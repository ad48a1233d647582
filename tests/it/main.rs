//! Integration tests: real repositories, real processes. One binary.
