//! A fuzzer's bytes taken apart: settings first, then material.

/// What is left of the input. Where it runs out, zeros and empty slices follow, so that every input means something.
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// A length of two bytes, then as many bytes, or as there are.
    pub(crate) fn counted(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()) | usize::from(self.byte()) << 8;
        self.take(len)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }
}
