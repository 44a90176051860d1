//! What an engine counts. Plain integers: the ring thread owns them and publishes copies where it likes.

/// The errors worth telling apart; the variant indexes [`ErrnoCounts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrnoClass {
    /// EAGAIN: the send buffer is full.
    WouldBlock,
    /// EPERM: a packet filter refused.
    NotPermitted,
    /// EACCES: broadcast or a prohibiting route.
    AccessDenied,
    /// ENETUNREACH: no route.
    NetUnreachable,
    /// EHOSTUNREACH: no neighbour, or an ICMP error.
    HostUnreachable,
    /// ECONNREFUSED: an ICMP error.
    ConnectionRefused,
    /// EMSGSIZE: longer than the path takes unfragmented.
    MessageTooLong,
    /// ENOBUFS: the interface's queue is full.
    NoBuffers,
    /// ENOMEM: the kernel is short of memory.
    NoMemory,
    /// EINVAL: such as port 0, or a source address that is not ours.
    Invalid,
    /// EAFNOSUPPORT: an IPv6 address on an IPv4 socket.
    FamilyUnsupported,
    /// EADDRNOTAVAIL: the source address is gone.
    AddressNotAvailable,
    /// Any other.
    Other,
}

impl ErrnoClass {
    /// Every class, in index order.
    pub const ALL: [Self; 13] = [
        Self::WouldBlock,
        Self::NotPermitted,
        Self::AccessDenied,
        Self::NetUnreachable,
        Self::HostUnreachable,
        Self::ConnectionRefused,
        Self::MessageTooLong,
        Self::NoBuffers,
        Self::NoMemory,
        Self::Invalid,
        Self::FamilyUnsupported,
        Self::AddressNotAvailable,
        Self::Other,
    ];

    /// The class of a positive errno.
    pub fn of(errno: i32) -> Self {
        match errno {
            libc::EAGAIN => Self::WouldBlock,
            libc::EPERM => Self::NotPermitted,
            libc::EACCES => Self::AccessDenied,
            libc::ENETUNREACH => Self::NetUnreachable,
            libc::EHOSTUNREACH => Self::HostUnreachable,
            libc::ECONNREFUSED => Self::ConnectionRefused,
            libc::EMSGSIZE => Self::MessageTooLong,
            libc::ENOBUFS => Self::NoBuffers,
            libc::ENOMEM => Self::NoMemory,
            libc::EINVAL => Self::Invalid,
            libc::EAFNOSUPPORT => Self::FamilyUnsupported,
            libc::EADDRNOTAVAIL => Self::AddressNotAvailable,
            _ => Self::Other,
        }
    }

    /// Stable name, for a metrics label: the errno's own, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WouldBlock => "eagain",
            Self::NotPermitted => "eperm",
            Self::AccessDenied => "eacces",
            Self::NetUnreachable => "enetunreach",
            Self::HostUnreachable => "ehostunreach",
            Self::ConnectionRefused => "econnrefused",
            Self::MessageTooLong => "emsgsize",
            Self::NoBuffers => "enobufs",
            Self::NoMemory => "enomem",
            Self::Invalid => "einval",
            Self::FamilyUnsupported => "eafnosupport",
            Self::AddressNotAvailable => "eaddrnotavail",
            Self::Other => "other",
        }
    }
}

/// One count for each [`ErrnoClass`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrnoCounts([u64; ErrnoClass::ALL.len()]);

impl ErrnoCounts {
    /// How often errors of `class` were seen.
    pub fn get(&self, class: ErrnoClass) -> u64 {
        self.0[class as usize]
    }

    /// All classes together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Each class with its count.
    pub fn iter(&self) -> impl Iterator<Item = (ErrnoClass, u64)> {
        ErrnoClass::ALL.into_iter().zip(self.0)
    }

    pub(crate) fn add(&mut self, errno: i32) {
        self.0[ErrnoClass::of(errno) as usize] += 1;
    }
}

/// Why a multishot receive ended and was armed again; the variant indexes [`EngineCounters::rearms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RearmReason {
    /// It ended on a success that lacks `F_MORE`: the completion queue overflowed.
    LostMore,
    /// ENOBUFS: every buffer was in use; the datagrams waited in the socket.
    NoBuffers,
    /// Any other error; it is in [`EngineCounters::receive_errors`] too.
    Error,
}

impl RearmReason {
    /// Every reason, in index order.
    pub const ALL: [Self; 3] = [Self::LostMore, Self::NoBuffers, Self::Error];

    /// Stable name, for a metrics label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LostMore => "lost_more",
            Self::NoBuffers => "no_buffers",
            Self::Error => "error",
        }
    }
}

/// Counts since the engine was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// Datagrams handed to the sink.
    pub received: u64,
    /// Of those, how many were truncated.
    pub received_truncated: u64,
    /// Datagrams the kernel took.
    pub sent: u64,
    /// Receives that failed; ENOBUFS of a buffer ring is a re-arm, not counted here.
    pub receive_errors: ErrnoCounts,
    /// Replies the kernel refused, each of them lost.
    pub send_errors: ErrnoCounts,
    /// Multishot receives armed again, by [`RearmReason`]. Always 0 for recvmmsg.
    pub rearms: [u64; RearmReason::ALL.len()],
    /// Datagrams the socket dropped because its receive buffer was full, as the last datagram received told
    /// (SO_RXQ_OVFL), so it lags; [`crate::BoundSocket::memory`] has it at once. Counts from the socket's birth.
    pub kernel_drops: u64,
    /// Replies refused because the [`crate::Outbox`] was full.
    pub outbox_full: u64,
    /// Times the eventfd woke the engine.
    pub wakes: u64,
    /// Enters that the kernel refused for want of resources (EAGAIN, ENOMEM, EBUSY); tried again by the next turn.
    pub enters_refused: u64,
}

impl EngineCounters {
    /// All re-arms together.
    pub fn rearms_total(&self) -> u64 {
        self.rearms.iter().sum()
    }

    /// Takes the 32-bit running count of SO_RXQ_OVFL, which may have wrapped since the last.
    pub(crate) fn note_drops(&mut self, count: u32) {
        self.kernel_drops += u64::from(count.wrapping_sub(self.kernel_drops as u32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_index_their_counts() {
        for (index, class) in ErrnoClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, index);
        }
        for (index, reason) in RearmReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
        let mut counts = ErrnoCounts::default();
        counts.add(libc::EPERM);
        counts.add(libc::EXDEV);
        assert_eq!(counts.get(ErrnoClass::NotPermitted), 1);
        assert_eq!(counts.get(ErrnoClass::Other), 1);
        assert_eq!(counts.total(), 2);
        assert_eq!(counts.iter().filter(|(_, count)| *count > 0).count(), 2);
    }

    #[test]
    fn drop_counts_wrap() {
        let mut counters = EngineCounters::default();
        counters.note_drops(u32::MAX);
        counters.note_drops(u32::MAX);
        counters.note_drops(4);
        assert_eq!(counters.kernel_drops, u64::from(u32::MAX) + 5);
    }
}
