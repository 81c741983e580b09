//! Volume keys: lifecycle, envelopes, the sealed local store.
