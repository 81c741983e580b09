//! The Key Management Interoperability Protocol (OASIS KMIP 1.0 to 1.4, 2.1).
