//! The server's own question whether a socket of its still hears and speaks, and the answer to it.
//!
//! It goes the whole way of a datagram: socket, engine, handler, engine, socket. A token that is random for each
//! start tells it from anybody else's; its source does not matter then.

use subtle::ConstantTimeEq;

/// Which answers it gives to which question.
#[derive(Clone, Debug)]
pub struct SelfProbe {
    token: [u8; 32],
    ring: u8,
}

impl SelfProbe {
    /// Bytes of the question: the token and an ordinal.
    pub const QUESTION_LEN: usize = 40;
    /// Bytes of the answer: the ordinal and which ring it was.
    pub const ANSWER_LEN: usize = 9;

    /// For the ring of that number.
    #[must_use]
    pub const fn new(token: [u8; 32], ring: u8) -> Self {
        Self { token, ring }
    }

    /// The question of that ordinal.
    #[must_use]
    pub fn question(token: &[u8; 32], ordinal: u64) -> [u8; Self::QUESTION_LEN] {
        let mut question = [0; Self::QUESTION_LEN];
        question[..32].copy_from_slice(token);
        question[32..].copy_from_slice(&ordinal.to_be_bytes());
        question
    }

    /// The ordinal and the ring of an answer.
    #[must_use]
    pub fn read_answer(bytes: &[u8]) -> Option<(u64, u8)> {
        let (ordinal, rest) = bytes.split_first_chunk()?;
        let [ring] = *rest else { return None };
        Some((u64::from_be_bytes(*ordinal), ring))
    }

    /// The answer, if `bytes` is the question.
    pub(super) fn answer(&self, bytes: &[u8]) -> Option<[u8; Self::ANSWER_LEN]> {
        let question: &[u8; Self::QUESTION_LEN] = bytes.try_into().ok()?;
        let (token, ordinal) = question.split_at(32);
        if !bool::from(token.ct_eq(&self.token)) {
            return None;
        }
        let mut answer = [self.ring; Self::ANSWER_LEN];
        answer[..8].copy_from_slice(ordinal);
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_is_answered() {
        let (token, probe) = ([7; 32], SelfProbe::new([7; 32], 3));
        let question = SelfProbe::question(&token, 0x0102_0304_0506_0708);
        let answer = probe.answer(&question).unwrap();
        assert_eq!(SelfProbe::read_answer(&answer), Some((0x0102_0304_0506_0708, 3)));
        for at in 0..32 {
            let mut other = question;
            other[at] ^= 1;
            assert_eq!(probe.answer(&other), None, "{at}");
        }
        assert_eq!(probe.answer(&question[..39]), None);
        assert_eq!(SelfProbe::read_answer(&answer[..8]), None);
    }
}
