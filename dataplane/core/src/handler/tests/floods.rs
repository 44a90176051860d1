//! Ceilings on what strangers get.

use super::*;

#[test]
fn a_flood_of_hellos_is_answered_up_to_the_ceiling_and_known_keys_still_get_through() {
    let mut server = Server::with(AddressPolicy::Public, 2_000);
    let known = server.register().lease.presence_key;
    let known = server.client(known, "9.9.9.1:4000");
    let mut stranger = known.clone();
    stranger.secret = Secret::from_bytes([0; 32]);
    let (flood, hello) = (stranger.hello(160), known.hello(160));
    let mut answered = 0;
    for step in 0..100_000u32 {
        server.sleep(Duration::from_micros(10));
        let source = SocketAddr::from(([9, 10, (step >> 8) as u8, step as u8], 4_000 + (step >> 16) as u16));
        let end = server.receive(source, &flood);
        answered += usize::from(!end.is_silent());
        assert!(end.is_silent() == (end.outcome == DatagramOutcome::UnprovedCeiling));
        if step % 1_000 == 999 {
            assert!(!server.receive(known.source, &hello).is_silent(), "a known key was kept out");
        }
    }
    assert!((900..=1_101).contains(&answered), "{answered} in a second of half of 2,000");
    assert_eq!(server.handler.next_timeout(), None, "nothing is kept for a stranger");
}

#[test]
fn the_whole_ceiling_holds_for_known_keys_too() {
    let mut server = Server::with(AddressPolicy::Public, 2_000);
    let known = server.register().lease.presence_key;
    let known = server.client(known, "9.9.9.1:4000");
    let hello = known.hello(160);
    let mut answered = 0;
    for _ in 0..100_000 {
        server.sleep(Duration::from_micros(10));
        answered += usize::from(!server.receive(known.source, &hello).is_silent());
    }
    assert!((1_900..=2_202).contains(&answered), "{answered} in a second");
}
