//! The file of vectors: its shape, and how values are written in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A field's value in the file: numbers, text (hexadecimal, or `address:port`), or a list of texts.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(untagged)]
pub(crate) enum Value {
    Number(u64),
    Text(String),
    List(Vec<String>),
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
pub(crate) struct Vectors {
    pub(crate) about: String,
    pub(crate) ids: Vec<IdVector>,
    pub(crate) keys: BTreeMap<String, String>,
    pub(crate) key_ids: Vec<KeyIdVector>,
    pub(crate) masks: Vec<MaskVector>,
    pub(crate) datagrams: Vec<DatagramVector>,
    pub(crate) tables: BTreeMap<String, BTreeMap<String, u64>>,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
pub(crate) struct IdVector {
    pub(crate) text: String,
    pub(crate) bytes: String,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
pub(crate) struct KeyIdVector {
    pub(crate) name: String,
    pub(crate) role: u64,
    pub(crate) tenant: u64,
    pub(crate) instance: String,
    pub(crate) handle: String,
    pub(crate) expires_ms: u64,
    pub(crate) hex: String,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
pub(crate) struct MaskVector {
    pub(crate) secret: String,
    pub(crate) attempt: String,
    pub(crate) punch_secret: String,
    pub(crate) masked: String,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
pub(crate) struct DatagramVector {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) direction: String,
    pub(crate) secret: String,
    pub(crate) fields: BTreeMap<String, Value>,
    pub(crate) len: u64,
    pub(crate) hex: String,
}

pub(crate) fn named(fields: impl IntoIterator<Item = (impl Into<String>, Value)>) -> BTreeMap<String, Value> {
    fields.into_iter().map(|(name, value)| (name.into(), value)).collect()
}

pub(crate) fn text(it: impl Into<String>) -> Value {
    Value::Text(it.into())
}

pub(crate) fn bytes(it: &[u8]) -> Value {
    text(hex(it))
}

/// A 64-bit number that JSON readers would round.
pub(crate) fn wide(it: u64) -> Value {
    bytes(&it.to_be_bytes())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digit = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap_or_else(|_| panic!("not hex: {text}"));
    (0..text.len()).step_by(2).map(digit).collect()
}
