//! Checks the golden vectors of the UDP protocol, `golden/vectors.json`.
//!
//! Every vector is built here from fixed inputs with the product's own code and compared with the committed
//! file byte for byte; then every datagram of the file is parsed and its MAC verified. A change of the wire
//! format therefore shows as a changed file. `UPDATE_GOLDEN=1` rewrites the file; `golden/check.py` computes
//! it again from the rules of `docs/protocol.md` alone.
//!
//! What this cannot show: that a server or client acts on these bytes as the page says.
#![cfg(test)]

#[path = "golden/datagrams.rs"]
mod datagrams;
#[path = "golden/file.rs"]
mod file;
#[path = "golden/world.rs"]
mod world;

use std::path::PathBuf;
use std::sync::LazyLock;

use rendezvous_shared::credential::{Direction, KeyId, Secret};
use rendezvous_shared::id::{AttemptId, ListingId};
use rendezvous_shared::wire::{Answer, Claim, PeerBody, Request, parse_answer, parse_peer, parse_request};

use file::{DatagramVector, Vectors, unhex};
use world::World;

/// The committed file, written anew before anything reads it when that was asked for.
static COMMITTED: LazyLock<String> = LazyLock::new(|| {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "golden", "vectors.json"].iter().collect();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, made()).unwrap();
    }
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
});

fn made() -> String {
    serde_json::to_string_pretty(&World::new().vectors()).unwrap() + "\n"
}

#[test]
fn the_vectors_are_what_the_code_makes() {
    let made = made();
    let differs = COMMITTED.lines().zip(made.lines()).position(|(old, new)| old != new);
    assert!(*COMMITTED == made, "vectors.json differs, first in line {:?}", differs.map(|it| it + 1));
}

#[test]
fn every_vector_parses_and_its_mac_is_good() {
    let world = World::new();
    let vectors: Vectors = serde_json::from_str(&COMMITTED).unwrap();
    assert_eq!(vectors.datagrams.len(), 24);
    for it in &vectors.datagrams {
        let wire = unhex(&it.hex);
        assert_eq!(wire.len() as u64, it.len, "{}", it.name);
        let secret = (it.secret != "none").then(|| world.secret(&it.secret));
        let (kind, good) = match it.direction.as_str() {
            "c2s" => read_request(&wire, secret.as_ref()),
            "s2c" => read_answer(&wire, secret.as_ref()),
            _ => read_peer(&wire, secret.as_ref()),
        };
        assert_eq!(kind, it.kind, "{}", it.name);
        assert!(good, "{}: the MAC is not good", it.name);
        if let Some(secret) = &secret {
            tampered_is_refused(it, &wire, secret);
        }
    }
}

#[test]
fn ids_and_key_ids_are_read_back() {
    let vectors: Vectors = serde_json::from_str(&COMMITTED).unwrap();
    for it in &vectors.ids {
        let bytes: [u8; 16] = unhex(&it.bytes).try_into().unwrap();
        let read = match it.text.strip_prefix("lst_") {
            Some(_) => it.text.parse::<ListingId>().unwrap().to_bytes(),
            None => it.text.parse::<AttemptId>().unwrap().to_bytes(),
        };
        assert_eq!(read, bytes, "{}", it.text);
    }
    for it in &vectors.key_ids {
        let key_id = KeyId::from_hex(&it.hex).unwrap();
        assert_eq!(key_id.role().map(|role| role as u64), Some(it.role));
        assert_eq!(u64::from(key_id.tenant().0), it.tenant);
        assert_eq!(key_id.instance().to_string(), it.instance);
        assert_eq!(key_id.expires().as_millis(), it.expires_ms);
        let secret = World::new().master.secret(&key_id).to_hex();
        let name = if it.name == "host" { "presence_secret" } else { "joiner_secret" };
        assert_eq!(vectors.keys[name], secret);
    }
}

/// One bit more anywhere: not parsed, or not verified, in no direction but its own.
fn tampered_is_refused(it: &DatagramVector, wire: &[u8], secret: &Secret) {
    for at in 0..wire.len() {
        let mut bad = wire.to_vec();
        bad[at] ^= 1;
        let secret = Some(secret);
        let passes = match it.direction.as_str() {
            "c2s" => parse_request(&bad).is_ok_and(|_| read_request(&bad, secret).1),
            "s2c" => parse_answer(&bad).is_ok_and(|_| read_answer(&bad, secret).1),
            _ => parse_peer(&bad).is_ok_and(|_| read_peer(&bad, secret).1),
        };
        assert!(!passes, "{}: byte {at} may change", it.name);
    }
    let readers = [
        ("c2s", parse_request(wire).is_ok()),
        ("s2c", parse_answer(wire).is_ok()),
        ("p2p", parse_peer(wire).is_ok()),
    ];
    for (direction, reads) in readers {
        assert_eq!(reads, direction == it.direction, "{} as {direction}", it.name);
    }
}

fn read_request(wire: &[u8], secret: Option<&Secret>) -> (&'static str, bool) {
    let request = parse_request(wire).unwrap_or_else(|error| panic!("{error}"));
    let kind = match &request {
        Request::Hello(_) => "HELLO",
        Request::Proved(_, Claim::Presence) => "PRESENCE",
        Request::Proved(_, Claim::Bind(_)) => "BIND",
        Request::Proved(_, Claim::Report(_)) => "REPORT",
        Request::Proved(_, Claim::Bye) => "BYE",
    };
    let verifies = |it: &Secret| match &request {
        Request::Hello(signed) => signed.verify(Direction::ToServer, it),
        Request::Proved(signed, _) => signed.verify(Direction::ToServer, it),
    };
    (kind, secret.is_some_and(verifies))
}

fn read_answer(wire: &[u8], secret: Option<&Secret>) -> (&'static str, bool) {
    let to_client = Direction::ToClient;
    let good = |verify: &dyn Fn(&Secret) -> bool| secret.is_some_and(verify);
    match parse_answer(wire).unwrap_or_else(|error| panic!("{error}")) {
        Answer::Challenge(_) => ("CHALLENGE", secret.is_none()),
        Answer::Ack(it) => ("ACK", good(&|secret| it.verify(to_client, secret))),
        Answer::Notice(it) => ("NOTICE", good(&|secret| it.verify(to_client, secret))),
        Answer::Bound(it) => ("BOUND", good(&|secret| it.verify(to_client, secret))),
        Answer::Introduce(it) => ("INTRODUCE", good(&|secret| it.verify(to_client, secret))),
    }
}

fn read_peer(wire: &[u8], secret: Option<&Secret>) -> (&'static str, bool) {
    let datagram = parse_peer(wire).unwrap_or_else(|error| panic!("{error}"));
    let kind = match datagram.body {
        PeerBody::Punch { .. } => "PUNCH",
        PeerBody::Message { .. } => "MESSAGE",
    };
    (kind, secret.is_some_and(|it| datagram.verify(it)))
}
