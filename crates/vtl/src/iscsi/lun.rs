//! Numbers of logical units in the 8 bytes that the wire has for them (SAM-5, 4.7).

/// Bits of a logical unit number that tell how it is written (SAM-5, 4.7).
const LUN_METHOD: u64 = 0xc000_0000_0000_0000;

/// A logical unit's number, from the 8 bytes of peripheral or flat addressing; all 8 bytes where it is neither.
pub(crate) fn lun_number(wire: u64) -> u64 {
    const PERIPHERAL: u64 = 0;
    const FLAT: u64 = 0x4000_0000_0000_0000;
    let (first, rest) = (wire >> 48, wire & 0x0000_ffff_ffff_ffff);
    match wire & LUN_METHOD {
        PERIPHERAL if rest == 0 && first <= 0xff => first,
        FLAT if rest == 0 => first & 0x3fff,
        _ => wire,
    }
}

/// The 8 bytes of a logical unit's number.
pub(crate) fn lun_on_wire(lun: u64) -> u64 {
    match lun {
        0..=0xff => lun << 48,
        0x100..=0x3fff => (0x4000 | lun) << 48,
        _ => lun,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logical_units_have_numbers() {
        for lun in [0, 1, 255, 256, 0x3fff] {
            assert_eq!(lun_number(lun_on_wire(lun)), lun);
        }
        assert_eq!(lun_on_wire(1), 0x0001_0000_0000_0000);
        assert_eq!(lun_number(0x4001_0000_0000_0000), 1);
        let well_known = 0xc101_0000_0000_0000;
        assert_eq!(lun_number(well_known), well_known);
    }
}
