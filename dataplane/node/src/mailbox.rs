//! What goes between a ring thread and the store thread: batches in boxes that travel round and round.
//!
//! A ring owns a fixed number of boxes. One is filled while datagrams are received, handed to the store, filled
//! with replies there and handed back. So nothing is allocated, and the boxes bound what is in flight: with none
//! left, a datagram ends as `store_busy`.

use rendezvous_core::handler::{DueRepeat, Pending};
use rendezvous_shared::limits::BATCH_LEN_MAX;
use rendezvous_shared::store::{Reply, Transition};

use crate::clock::Stamp;
use crate::sync::{Receiver, Sender, Waker, bounded};

/// What a ring asked a transition for.
#[derive(Debug)]
pub enum Asked {
    /// A datagram, which has its end with the reply.
    Datagram(Pending),
    /// A repeat that nobody asked for.
    Repeat(DueRepeat),
}

/// Transitions of the datagram path, what each was asked for, and the replies: same index, same transition.
#[derive(Debug)]
pub struct Batch {
    /// For the ring when it comes back.
    pub asked: Vec<Asked>,
    /// For the store.
    pub transitions: Vec<Transition>,
    /// From the store.
    pub replies: Vec<Reply>,
    /// When it was begun: its first datagram was received then, or its first repeat was due.
    pub received: Stamp,
}

impl Batch {
    fn new() -> Self {
        Self {
            asked: Vec::with_capacity(BATCH_LEN_MAX),
            transitions: Vec::with_capacity(BATCH_LEN_MAX),
            replies: Vec::with_capacity(BATCH_LEN_MAX),
            received: Stamp::default(),
        }
    }

    /// Empties it, keeping its room.
    pub fn clear(&mut self) {
        self.asked.clear();
        self.transitions.clear();
        self.replies.clear();
    }

    /// Adds one more transition.
    pub fn push(&mut self, transition: Transition, asked: Asked) {
        self.transitions.push(transition);
        self.asked.push(asked);
    }

    /// Whether it holds as many transitions as one message may.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.transitions.len() >= BATCH_LEN_MAX
    }
}

/// The ring thread's end.
pub struct RingMailbox {
    /// Boxes not in use.
    pub free: Vec<Box<Batch>>,
    /// To the store; as long as there are boxes, so never full.
    pub to_store: Sender<Box<Batch>>,
    /// Back from the store.
    pub from_store: Receiver<Box<Batch>>,
}

/// The store thread's end for one ring.
pub struct StoreMailbox {
    /// From the ring.
    pub from_ring: Receiver<Box<Batch>>,
    /// Back to the ring.
    pub to_ring: Sender<Box<Batch>>,
    /// Wakes the ring once its batches are back.
    pub waker: Waker,
}

/// Both ends of a mailbox of `boxes` boxes, two at least: the last one is kept back. `waker` wakes the ring.
#[must_use]
pub fn mailbox(boxes: usize, waker: Waker) -> (RingMailbox, StoreMailbox) {
    let (to_store, from_ring) = bounded(boxes);
    let (to_ring, from_store) = bounded(boxes);
    let free = (0..boxes).map(|_| Box::new(Batch::new())).collect();
    (RingMailbox { free, to_store, from_store }, StoreMailbox { from_ring, to_ring, waker })
}
