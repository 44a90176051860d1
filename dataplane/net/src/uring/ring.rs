//! The ring itself: set up restricted to the operations this engine uses, owned together with its three parts.

use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;

use io_uring::register::Restriction;
use io_uring::{Builder, CompletionQueue, IoUring, SubmissionQueue, Submitter, opcode, squeue};

use super::buffers::{Buffers, GROUP};
use crate::engine::{EngineKind, EngineOptions, OpenError};

// Operations of io_uring_register(2) that are needed once the ring is enabled; the crate does not export them.
const UNREGISTER_FILES: u8 = 3;
const UNREGISTER_RING_FDS: u8 = 21;
const UNREGISTER_PBUF_RING: u8 = 23;
const REGISTER_SYNC_CANCEL: u8 = 24;

/// A ring in its parts. They are kept rather than made anew for each call because the registered descriptor is
/// remembered by the submitter.
pub(super) struct Ring {
    // Dropped in this order: the parts borrow from what `owner` frees.
    pub(super) submitter: Submitter<'static>,
    pub(super) sq: SubmissionQueue<'static>,
    pub(super) cq: CompletionQueue<'static>,
    /// Whether the thread had a place for the ring's descriptor.
    pub(super) registered: bool,
    #[expect(dead_code, reason = "frees the ring after its parts")]
    owner: Owner,
}

/// The ring on the heap, at an address that stays while the parts borrow from it.
struct Owner(NonNull<IoUring>);

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a leaked box in `Ring::new`; the parts that borrowed were fields of the same
        // `Ring` declared before this one, so they are gone.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Ring {
    /// Sets the ring up on this thread, with its files and buffers, and allows nothing else from then on. `buffers`
    /// must outlive the operations of the ring; its owner sees to that.
    pub(super) fn new(
        options: &EngineOptions,
        files: &[RawFd],
        buffers: &Buffers,
    ) -> Result<Self, OpenError> {
        let at = |step| move |source: io::Error| OpenError::at(EngineKind::Uring, step)(source);
        let mut builder: Builder = IoUring::builder();
        builder
            .dontfork()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_no_sqarray()
            .setup_r_disabled()
            .setup_cqsize(options.completion_entries.max(options.submission_entries));
        let ring = builder.build(options.submission_entries.max(2)).map_err(at("io_uring_setup"))?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_skip_cqe_on_success() {
            return Err(at("io_uring features")(io::Error::from_raw_os_error(libc::EINVAL)));
        }

        let pointer = NonNull::from(Box::leak(Box::new(ring)));
        let owner = Owner(pointer);
        // SAFETY: the box is leaked and `owner` frees it only after the parts are gone; nobody else has the pointer.
        let ring: &'static mut IoUring = unsafe { &mut *pointer.as_ptr() };
        let (submitter, sq, cq) = ring.split();
        let mut ring = Self { submitter, sq, cq, registered: false, owner };

        ring.submitter.register_files(files).map_err(at("registering files"))?;
        // SAFETY: the region of `buffers` holds `count` entries at that address and is unmapped only by the owner of
        // both, after the ring is quiet.
        let registered = unsafe {
            ring.submitter.register_buf_ring_with_flags(buffers.ring_address(), buffers.count(), GROUP, 0)
        };
        registered.map_err(at("registering the buffer ring"))?;
        ring.submitter.register_restrictions(&mut restrictions()).map_err(at("restricting the ring"))?;
        // Saves a look-up for each enter. A thread has 16 places; without one the ring works all the same.
        ring.registered = ring.submitter.register_ring_fd().is_ok();
        ring.submitter.register_enable_rings().map_err(at("enabling the ring"))?;
        Ok(ring)
    }

    /// Gives back the thread's place for the ring descriptor, without which the ring would outlive its drop, the
    /// buffers, and the files: the kernel takes a ring apart some time after it was closed, and until then the port
    /// would be in use.
    pub(super) fn unregister(&mut self) {
        let _ = self.submitter.unregister_files();
        let _ = self.submitter.unregister_buf_ring(GROUP);
        if self.registered {
            let _ = self.submitter.unregister_ring_fd();
        }
    }
}

/// All that the ring may do once enabled: an attacker who gets to write into the submission queue can receive, send
/// and read on the two registered files, and nothing else.
fn restrictions() -> [Restriction; 10] {
    let optional = squeue::Flags::BUFFER_SELECT | squeue::Flags::SKIP_SUCCESS;
    [
        Restriction::sqe_op(opcode::RecvMsgMulti::CODE),
        Restriction::sqe_op(opcode::SendMsg::CODE),
        Restriction::sqe_op(opcode::Send::CODE),
        Restriction::sqe_op(opcode::Read::CODE),
        Restriction::sqe_flags_allowed(optional.bits()),
        Restriction::sqe_flags_required(squeue::Flags::FIXED_FILE.bits()),
        Restriction::register_op(UNREGISTER_FILES),
        Restriction::register_op(UNREGISTER_RING_FDS),
        Restriction::register_op(UNREGISTER_PBUF_RING),
        Restriction::register_op(REGISTER_SYNC_CANCEL),
    ]
}
