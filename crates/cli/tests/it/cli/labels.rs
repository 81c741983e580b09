//! `label` of several volumes, and of cartridges that somebody else has written.

use super::*;

/// The first that failed ended it: nobody was told which were done, and the others were not tried.
#[test]
fn labelling_goes_on_behind_one_that_fails_and_says_which_were_done() {
    let bench = Bench::new(&[]);
    let said = bench.said(&["label", "A00001", "CLN001L9", "A00003", "--pool", "default"], 3);
    assert!(said.contains("CLN001L9: CLN001L9 is a cleaning cartridge, which no job loads"), "{said}");
    assert!(said.contains("2 of 3 volumes labelled: A00001, A00003; not labelled: CLN001L9"), "{said}");
    let volumes = bench.rows(&["volumes"]);
    assert_eq!(volumes.len(), 2, "{volumes:?}");
    let one = bench.said(&["label", "CLN001L9"], 1);
    assert!(!one.contains("not labelled"), "{one}");
}

/// It was told as one that "holds 0 objects of which it may be the last copy".
#[test]
fn a_cartridge_with_data_of_another_site_is_told_as_that() {
    let (other, bench) = (Bench::new(&["--encrypt", "none"]), Bench::new(&[]));
    other.done(&["backup", "home"], 0);
    let slots = |bench: &Bench| bench.dir.path().join("state/library/slots");
    fs::create_dir_all(slots(&bench)).unwrap();
    fs::copy(slots(&other).join("A00001.tape"), slots(&bench).join("A00001.tape")).unwrap();
    let said = bench.said(&["label", "A00001"], 1);
    assert!(said.contains("volume A00001 holds data that this catalog does not know"), "{said}");
    bench.done(&["label", "A00001", "--force"], 0);
}
