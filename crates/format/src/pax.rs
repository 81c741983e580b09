//! Pax members: headers written and read.
