//! Where the tasks of a runtime lay down what happened, and the engine takes it up. One thread has both.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::{Context, Poll, Waker};

/// What happened, and one place for each receiving task.
pub(crate) struct Desk {
    /// With the index of the task whose buffer it is.
    datagrams: RefCell<VecDeque<(usize, SocketAddr, Vec<u8>)>>,
    errors: RefCell<VecDeque<i32>>,
    wakes: Cell<u64>,
    places: Box<[Place]>,
    /// The turn that waits for something to happen.
    turn: Cell<Option<Waker>>,
}

/// Where a task finds its buffer again.
#[derive(Default)]
struct Place {
    /// Back from the engine, and not to be used before the next turn.
    returned: Cell<Option<Vec<u8>>>,
    buffer: Cell<Option<Vec<u8>>>,
    task: Cell<Option<Waker>>,
}

impl Desk {
    pub(crate) fn new(places: usize) -> Self {
        Self {
            datagrams: RefCell::new(VecDeque::with_capacity(places)),
            errors: RefCell::new(VecDeque::with_capacity(places + 1)),
            wakes: Cell::new(0),
            places: (0..places).map(|_| Place::default()).collect(),
            turn: Cell::new(None),
        }
    }

    /// A task's: its receive brought a datagram.
    pub(crate) fn put_datagram(&self, index: usize, source: SocketAddr, bytes: Vec<u8>) {
        self.datagrams.borrow_mut().push_back((index, source, bytes));
        self.happened();
    }

    /// A task's: its receive failed. It goes on with the next turn: were it to go on at once, a receive that fails
    /// for ever would be a turn that never ends.
    pub(crate) fn put_error(&self, index: usize, errno: i32, buffer: Vec<u8>) {
        self.errors.borrow_mut().push_back(errno);
        self.give_back(index, buffer);
        self.happened();
    }

    /// The watching task's: the eventfd was written.
    pub(crate) fn put_wake(&self) {
        self.wakes.set(self.wakes.get() + 1);
        self.happened();
    }

    /// The watching task's: it can watch no longer.
    pub(crate) fn put_fatal(&self) {
        self.errors.borrow_mut().push_back(libc::EBADF);
        self.happened();
    }

    /// A task's: its buffer, once the engine resumes it.
    pub(crate) async fn buffer(&self, index: usize) -> Vec<u8> {
        let place = &self.places[index];
        poll_fn(|cx| match place.buffer.take() {
            Some(buffer) => Poll::Ready(buffer),
            None => {
                place.task.set(Some(cx.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }

    /// The engine's: this buffer goes back to its task.
    pub(crate) fn give_back(&self, index: usize, buffer: Vec<u8>) {
        self.places[index].returned.set(Some(buffer));
    }

    /// The engine's, once a turn, on the runtime: tasks whose buffers came back go on.
    pub(crate) fn resume(&self) {
        for place in &self.places {
            if let Some(buffer) = place.returned.take() {
                place.buffer.set(Some(buffer));
                if let Some(task) = place.task.take() {
                    task.wake();
                }
            }
        }
    }

    /// The engine's: ready when anything at all happened.
    pub(crate) fn poll_event(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_empty() || self.wakes.get() > 0 || !self.errors.borrow().is_empty() {
            return Poll::Ready(());
        }
        self.turn.set(Some(cx.waker().clone()));
        Poll::Pending
    }

    /// Whether no datagram waits to be handed over.
    pub(crate) fn is_empty(&self) -> bool {
        self.datagrams.borrow().is_empty()
    }

    pub(crate) fn take_datagram(&self) -> Option<(usize, SocketAddr, Vec<u8>)> {
        self.datagrams.borrow_mut().pop_front()
    }

    pub(crate) fn take_error(&self) -> Option<i32> {
        self.errors.borrow_mut().pop_front()
    }

    pub(crate) fn take_wakes(&self) -> u64 {
        self.wakes.take()
    }

    fn happened(&self) {
        if let Some(turn) = self.turn.take() {
            turn.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;

    use super::*;

    /// Were it to go on at once, a receive that fails for ever would keep the turn from ending.
    #[test]
    fn a_task_goes_on_with_the_next_turn_only() {
        let desk = Desk::new(1);
        let mut cx = Context::from_waker(Waker::noop());
        let mut task = pin!(desk.buffer(0));
        desk.put_error(0, libc::ENOMEM, vec![7]);
        assert!(desk.poll_event(&mut cx).is_ready());
        assert_eq!(desk.take_error(), Some(libc::ENOMEM));
        assert!(task.as_mut().poll(&mut cx).is_pending());
        assert!(desk.poll_event(&mut cx).is_pending());
        desk.resume();
        assert_eq!(task.poll(&mut cx), Poll::Ready(vec![7]));
    }
}
