//! The store against a stupid model of itself: the model passes the store's contract, and over long random histories
//! the real store answers exactly what the model answers.
#![cfg(test)]

#[path = "store_model/contract.rs"]
mod contract;
