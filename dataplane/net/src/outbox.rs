//! Replies on their way out.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::REPLY_LEN_MAX;
use crate::address::{Family, NAME_LEN, SEND_CONTROL_LEN, encode_name, encode_source};

/// Replies queued for the next flush: a ring of fixed slots, nothing allocated after construction. The order of
/// pushes is the order of sends.
pub struct Outbox {
    slots: Box<[Slot]>,
    /// Index of the oldest slot in use.
    head: usize,
    /// Slots in use.
    len: usize,
    /// Of those, the oldest so many are in the kernel's hands; they stay untouched until released.
    staged: usize,
    family: Family,
    /// Only a socket bound to a wildcard needs to be told which address to answer from.
    wildcard: bool,
    refused: u64,
}

/// Every slot holds a reply that is not yet sent; nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("every slot of the outbox holds an unsent reply")]
pub struct OutboxFull;

impl Outbox {
    pub(crate) fn new(slots: usize, family: Family, wildcard: bool) -> Self {
        let slots = (0..slots.max(1)).map(|_| Slot::EMPTY).collect();
        Self { slots, head: 0, len: 0, staged: 0, family, wildcard, refused: 0 }
    }

    /// Queues one reply to `to`. `fill` writes the payload into the slot and returns its length, bytes; what exceeds
    /// [`REPLY_LEN_MAX`] is cut. `from` is the local address to leave from ([`crate::Meta::local`]); it is ignored
    /// unless the socket is bound to a wildcard. When full, `fill` is not called.
    pub fn push(
        &mut self,
        to: SocketAddr,
        from: Option<IpAddr>,
        fill: impl FnOnce(&mut [u8; REPLY_LEN_MAX]) -> usize,
    ) -> Result<(), OutboxFull> {
        if self.len == self.slots.len() {
            self.refused += 1;
            return Err(OutboxFull);
        }
        let index = self.index(self.len);
        let slot = &mut self.slots[index];
        slot.name_len = encode_name(to, self.family, &mut slot.name) as u8;
        slot.control_len = match from {
            Some(from) if self.wildcard => encode_source(from, self.family, &mut slot.control) as u8,
            _ => 0,
        };
        slot.payload_len = fill(&mut slot.payload).min(REPLY_LEN_MAX) as u16;
        self.len += 1;
        Ok(())
    }

    /// Replies queued.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Replies it holds at most.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Pushes refused so far.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// The oldest reply that is not staged, with its slot's index.
    pub(crate) fn next_unstaged(&self) -> Option<(usize, &Slot)> {
        if self.staged == self.len {
            return None;
        }
        let index = self.index(self.staged);
        Some((index, &self.slots[index]))
    }

    /// Puts the reply that `next_unstaged` showed into the kernel's hands.
    pub(crate) fn stage(&mut self) {
        self.staged = (self.staged + 1).min(self.len);
    }

    /// Frees every staged slot, the kernel being done with them; returns how many.
    pub(crate) fn release_staged(&mut self) -> usize {
        let released = std::mem::take(&mut self.staged);
        self.head = self.index(released);
        self.len -= released;
        released
    }

    fn index(&self, nth: usize) -> usize {
        let index = self.head + nth;
        if index >= self.slots.len() { index - self.slots.len() } else { index }
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("len", &self.len).field("capacity", &self.slots.len()).finish()
    }
}

/// One reply as the kernel takes it. Aligned to cache lines so that a slot shares none with its neighbour.
#[repr(align(64))]
pub(crate) struct Slot {
    payload: [u8; REPLY_LEN_MAX],
    name: [u8; NAME_LEN],
    control: [u8; SEND_CONTROL_LEN],
    payload_len: u16,
    name_len: u8,
    control_len: u8,
}

impl Slot {
    const EMPTY: Self = Self {
        payload: [0; REPLY_LEN_MAX],
        name: [0; NAME_LEN],
        control: [0; SEND_CONTROL_LEN],
        payload_len: 0,
        name_len: 0,
        control_len: 0,
    };

    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload[..usize::from(self.payload_len)]
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.name[..usize::from(self.name_len)]
    }

    pub(crate) fn control(&self) -> &[u8] {
        &self.control[..usize::from(self.control_len)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(outbox: &mut Outbox, byte: u8) -> Result<(), OutboxFull> {
        outbox.push("127.0.0.1:9".parse().unwrap(), Some("127.0.0.1".parse().unwrap()), |payload| {
            payload[0] = byte;
            1
        })
    }

    #[test]
    fn keeps_order_across_the_end_of_the_ring() {
        let mut outbox = Outbox::new(3, Family::V4, false);
        let mut expected = 0;
        for byte in 0..20 {
            push(&mut outbox, byte).unwrap();
            if byte % 2 == 1 {
                while let Some((_, slot)) = outbox.next_unstaged() {
                    assert_eq!(slot.payload(), [expected]);
                    assert!(slot.control().is_empty(), "no packet info unless wildcard");
                    expected += 1;
                    outbox.stage();
                }
                assert_eq!(outbox.release_staged(), 2);
            }
        }
        assert!(outbox.is_empty());
    }

    #[test]
    fn full_gives_nothing_and_calls_nothing() {
        let mut outbox = Outbox::new(2, Family::V6, true);
        push(&mut outbox, 1).unwrap();
        outbox.stage();
        push(&mut outbox, 2).unwrap();
        let refused = outbox.push("[::1]:9".parse().unwrap(), None, |_| panic!("called"));
        assert_eq!(refused, Err(OutboxFull));
        assert_eq!((outbox.len(), outbox.capacity(), outbox.refused()), (2, 2, 1));
        let (_, slot) = outbox.next_unstaged().unwrap();
        assert_eq!(slot.payload(), [2]);
        assert_eq!((slot.name().len(), slot.control().len()), (NAME_LEN, SEND_CONTROL_LEN));
    }

    #[test]
    fn an_overlong_fill_is_cut() {
        let mut outbox = Outbox::new(1, Family::V4, false);
        outbox.push("127.0.0.1:9".parse().unwrap(), None, |_| usize::MAX).unwrap();
        assert_eq!(outbox.next_unstaged().unwrap().1.payload().len(), REPLY_LEN_MAX);
    }
}
