//! Threads that tell the main thread how they ended.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam::channel::{Receiver, Sender};
use rendezvous_control::boundary::{Readiness, ReadyState};
use tracing::error;

use crate::exit::ServeError;

/// What a thread tells the main thread.
pub(crate) enum Event {
    /// It serves: its engine is open, or signals are awaited.
    Ready,
    /// It ended: well, or with a cause.
    Ended(&'static str, Result<(), String>),
}

/// Makes readiness false in the moment in which one of the `threads` panics, by their name. What comes next takes longer than
/// readiness may lag: with `RUST_BACKTRACE` set, some hundred milliseconds go by before anything is unwound.
pub(crate) fn note_panics_of(threads: fn(&str) -> bool, readiness: Arc<Readiness>) {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name().is_some_and(threads) {
            readiness.set(ReadyState::Unavailable);
        }
        print(panic);
    }));
}

/// Runs `work` on a thread of that name; its end, a panic included, becomes an event.
pub(crate) fn spawn(
    name: &'static str,
    events: &Sender<Event>,
    work: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Result<JoinHandle<()>, ServeError> {
    let events = events.clone();
    let body = move || {
        let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err("it panicked".into()));
        // The main thread is gone only when the process is.
        let _ = events.send(Event::Ended(name, result));
    };
    std::thread::Builder::new().name(name.into()).spawn(body).map_err(ServeError::system("start a thread"))
}

/// Waits until the thread started last serves; any that ends instead is the error.
pub(crate) fn wait_until_ready(ended: &Receiver<Event>) -> Result<(), ServeError> {
    match ended.recv() {
        Ok(Event::Ready) => Ok(()),
        Ok(Event::Ended(thread, result)) => {
            Err(ServeError::Thread { thread, cause: result.err().unwrap_or_else(|| "at once".into()) })
        }
        Err(_) => Err(ServeError::Thread { thread: "main", cause: "nobody is left to wait for".into() }),
    }
}

/// Waits for the first thread to end. Only the control thread may end well.
pub(crate) fn watch(ended: &Receiver<Event>, readiness: &Readiness) -> Result<(), ServeError> {
    loop {
        let (thread, result) = match ended.recv() {
            // The listener may end before the others; it serves nobody.
            Ok(Event::Ready | Event::Ended("hearing", Ok(()))) => continue,
            Ok(Event::Ended(thread, result)) => (thread, result),
            Err(_) => ("main", Err("nobody is left to wait for".into())),
        };
        if thread == "control" && result.is_ok() {
            return Ok(());
        }
        readiness.set(ReadyState::Unavailable);
        let cause = result.err().unwrap_or_else(|| "nobody told it to".into());
        error!(thread, cause, "a thread that serves ended; the process stops");
        return Err(ServeError::Thread { thread, cause });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam::channel::bounded;

    #[test]
    fn a_panic_is_the_end_of_the_process_and_readiness_says_so() {
        let (events, ended) = bounded(4);
        let readiness = Readiness::new();
        readiness.set(ReadyState::Ready);
        let store = spawn("store", &events, || panic!("planted")).unwrap();
        let error = watch(&ended, &readiness).unwrap_err();
        assert_eq!(error.exit_code() as u8, 70);
        assert_eq!(error.to_string(), "the store thread ended: it panicked");
        assert_eq!(readiness.get(), ReadyState::Unavailable);
        store.join().unwrap();
    }

    #[test]
    fn only_the_control_thread_may_end_well() {
        for (thread, well) in [("control", true), ("ring-0", false), ("store", false)] {
            let (events, ended) = bounded(4);
            events.send(Event::Ready).unwrap();
            events.send(Event::Ended(thread, Ok(()))).unwrap();
            assert_eq!(watch(&ended, &Readiness::new()).is_ok(), well, "{thread}");
        }
    }
}
