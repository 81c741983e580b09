//! What comes over the wire to the virtual library: PDUs, and the logins that they are.

use capstan_vtl::iscsi::{ChapSecret, Digest, exercise_login, exercise_pdus};

use crate::input::Input;
use crate::mend;

/// PDUs of any bytes, behind a first byte that says which checksums they carry: as they are, and with the checksums
/// made right; then as a login, to a target that is open and to one that wants a proof.
pub fn iscsi(data: &[u8]) {
    let mut input = Input::new(data);
    let settings = input.byte();
    let digest = |bit: u8| if settings & bit == 0 { Digest::None } else { Digest::Crc32c };
    let (header, data) = (digest(1), digest(2));
    let pdus = input.rest();
    exercise_pdus(pdus, header, data);
    let mut mended = pdus.to_vec();
    mend::pdus(&mut mended, header == Digest::Crc32c, data == Digest::Crc32c);
    exercise_pdus(&mended, header, data);
    exercise_login(pdus, None);
    exercise_login(pdus, ChapSecret::new(vec![0x5a; 16].into()).ok());
}
