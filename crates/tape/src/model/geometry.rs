//! The tape's way: where a byte stands, and how long the tape takes to come there.

use serde::Deserialize;

use super::figure::Figure;

/// A tape that is written in wraps, one way and back (serpentine).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Geometry {
    /// Metres that are written on.
    pub length_m: Figure<f64>,
    /// Times that the tape runs from one end to the other to be full.
    pub wraps: Figure<u32>,
    /// Metres a second when nothing is read.
    pub locate_m_per_s: Figure<f64>,
    /// Seconds to stop, step across and start.
    pub turn_s: Figure<f64>,
    /// Whether the tape loads at its middle, as cartridges of two reels do.
    #[serde(default)]
    pub loads_at_middle: bool,
}

/// A place on the tape.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TapePosition {
    /// The wrap, from 0.
    pub wrap: u32,
    /// Metres from the beginning of tape.
    pub along_m: f64,
}

impl Geometry {
    /// Where the tape stands when it is loaded.
    pub fn load_point(&self) -> TapePosition {
        TapePosition { wrap: 0, along_m: if self.loads_at_middle { self.length_m.value / 2.0 } else { 0.0 } }
    }

    /// The place of what stands at this share of the capacity.
    pub fn place(&self, share: f64) -> TapePosition {
        let wraps = f64::from(self.wraps.value);
        let at = share.clamp(0.0, 1.0) * wraps;
        let wrap = at.floor().min(wraps - 1.0);
        let into = (at - wrap) * self.length_m.value;
        // Even wraps lead away from the beginning, odd ones back.
        let along_m = if (wrap as u32).is_multiple_of(2) { into } else { self.length_m.value - into };
        TapePosition { wrap: wrap as u32, along_m }
    }

    /// Seconds to go from one place to another.
    pub fn locate_s(&self, from: TapePosition, to: TapePosition) -> f64 {
        let along_m = (from.along_m - to.along_m).abs();
        if from == to { 0.0 } else { self.turn_s.value + along_m / self.locate_m_per_s.value }
    }

    /// Seconds to go back to where the tape is loaded.
    pub fn rewind_s(&self, from: TapePosition) -> f64 {
        self.locate_s(from, self.load_point())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::super::built_in;

    #[test]
    fn what_stands_on_neighbouring_wraps_is_near() {
        let geometry = built_in("LTO-6").unwrap().geometry;
        let wraps = f64::from(geometry.wraps.value);
        let (end_of_first, begin_of_second) = (geometry.place(0.999 / wraps), geometry.place(1.001 / wraps));
        assert_eq!((end_of_first.wrap, begin_of_second.wrap), (0, 1));
        // A wrap's end is where the next begins; in bytes they are neighbours, and so they are in metres.
        assert!(geometry.locate_s(end_of_first, begin_of_second) < geometry.turn_s.value + 1.0);
        assert_eq!(geometry.place(0.0), geometry.load_point());
        assert_eq!(geometry.place(1.0).wrap, geometry.wraps.value - 1);
        assert!(geometry.rewind_s(geometry.place(0.5 / wraps)) > 30.0);
    }

    #[test]
    fn a_mean_locate_takes_as_long_as_the_data_sheet_says() {
        for (name, mean_s) in [("LTO-5", 60.0), ("LTO-9", 45.0), ("T10000C", 57.0), ("SDLT-220", 70.0), ("T9840D", 8.0)]
        {
            let geometry = built_in(name).unwrap().geometry;
            let places = (0..1000).map(|at| geometry.place((f64::from(at) + 0.5) / 1000.0));
            let sum: f64 = places.map(|place| geometry.locate_s(geometry.load_point(), place)).sum();
            let found = sum / 1000.0;
            assert!((found / mean_s - 1.0).abs() < 0.02, "{name}: {found} s, and {mean_s} s");
        }
    }
}
