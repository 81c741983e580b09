//! Samples of what volumes hold, and what is said of the rest.

use std::collections::BTreeSet;

use capstan_catalog::Extent;
use capstan_director::{Level, ScrubAmount, ScrubReport, ScrubRequest, Site};
use capstan_format::Volser;
use capstan_mover::RestoreWatch;

use crate::place::spoil::spoil_block;
use crate::place::{Bench, small};

/// 99 in 100, of single blocks.
fn places(places: u64) -> ScrubRequest {
    ScrubRequest {
        volumes: Vec::new(),
        pools: Vec::new(),
        place_blocks: 1,
        amount: ScrubAmount::Places(places),
        certainty: 0.99,
        seed: None,
    }
}

fn scrub(site: &Site, request: &ScrubRequest) -> ScrubReport {
    let plan = site.plan_scrub(request).unwrap();
    site.scrub(plan, &RestoreWatch::default()).unwrap()
}

/// Objects on several volumes, in small blocks.
fn many_blocks() -> Bench {
    let mut config = small();
    config.data.block_kib = 4;
    config.library.volume_mib = 2;
    let bench = Bench::new(config);
    bench.fill("a", 12, 400_000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    bench
}

fn blocks(bench: &Bench) -> Vec<(Extent, u64)> {
    let object = bench.objects().remove(0);
    let extents = bench.site().catalog().extents(object.id, None).unwrap();
    let each = |extent: Extent| {
        let first = extent.record.first_lbn;
        (first..first + u64::from(extent.record.blocks)).map(move |lbn| (extent.clone(), lbn))
    };
    extents.into_iter().flat_map(each).collect()
}

/// Seeded damage, many rounds: a bad block is found as often as it is drawn, and what is said of the rest is wrong no
/// more often than it says itself.
#[test]
fn damage_is_found_at_the_rate_that_is_claimed() {
    const ROUNDS: u64 = 300;
    const BAD: u64 = 24;
    const DRAWN: u64 = 60;
    let bench = many_blocks();
    let all = blocks(&bench);
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let bad: BTreeSet<usize> = std::iter::repeat_with(|| random.usize(..all.len())).take(BAD as usize).collect();
    for number in &bad {
        let (extent, lbn) = &all[*number];
        spoil_block(&bench, extent, *lbn);
    }
    let share = bad.len() as f64 / all.len() as f64;
    let site = bench.site();
    let (mut met, mut missed, mut wrong, mut expected, mut may_be_wrong) = (0, 0, 0, 0.0, 0.0);
    for _ in 0..ROUNDS {
        // What is known is not among what is drawn: each round begins with what nobody has looked at.
        bench.sql("DELETE FROM damage");
        // So many rounds would take long with a certainty that is hardly ever wrong.
        let request = ScrubRequest { seed: Some(random.u64(..)), certainty: 0.8, ..places(DRAWN) };
        let report = scrub(&site, &request);
        let (places, drawn, found) = report.places();
        assert_eq!((places, drawn), (all.len() as u64, DRAWN));
        assert_eq!(report.bad_blocks, found);
        met += found;
        missed += u64::from(found == 0);
        wrong += u64::from(report.bad_at_most() < share);
        expected += DRAWN as f64 * share;
        may_be_wrong += 0.2;
    }
    // Five standard deviations: once in millions of runs by chance.
    let near = |met: u64, expected: f64, variance: f64| {
        assert!((met as f64 - expected).abs() < 5.0 * variance.sqrt(), "{met}, and {expected} were expected");
    };
    near(met, expected, expected);
    let misses = ROUNDS as f64 * (1.0 - share).powi(DRAWN as i32);
    near(missed, misses, misses.max(1.0));
    assert!((wrong as f64) < may_be_wrong + 5.0 * (ROUNDS as f64 * 0.16).sqrt(), "{wrong} of {ROUNDS} are wrong");
}

#[test]
fn a_seed_repeats_a_draw_and_all_of_it_leaves_no_doubt() {
    let bench = many_blocks();
    let site = bench.site();
    let all = blocks(&bench).len() as u64;
    let drawn = |seed| {
        let plan = site.plan_scrub(&ScrubRequest { seed: Some(seed), ..places(50) }).unwrap();
        format!("{:?}", plan.volumes)
    };
    assert_eq!(drawn(7), drawn(7));
    assert_ne!(drawn(7), drawn(8));
    let report = scrub(&site, &places(1 << 40));
    assert_eq!(report.places(), (all, all, 0));
    assert_eq!(report.blocks, all);
    assert!(report.bad_at_most() == 0.0);
    // A share of them; places of several blocks.
    let request = ScrubRequest { amount: ScrubAmount::Share(0.25), place_blocks: 8, ..places(0) };
    let report = scrub(&site, &request);
    let (places_in_all, read, bad) = report.places();
    assert!(places_in_all.abs_diff(all / 8) <= report.volumes.len() as u64, "{places_in_all} of {all}");
    assert_eq!((read, bad), (places_in_all.div_ceil(4), 0));
    assert!(report.blocks > (read - report.volumes.len() as u64) * 8 && report.blocks <= read * 8);
}

#[test]
fn what_cannot_be_read_for_another_reason_is_left_out() {
    let bench = many_blocks();
    let site = bench.site();
    let volumes: Vec<Volser> = site.catalog().volumes().unwrap().into_iter().map(|volume| volume.volser).collect();
    let away = bench.cartridge(volumes[0].as_str());
    let aside = away.with_extension("away");
    std::fs::rename(&away, &aside).unwrap();
    let report = scrub(&site, &places(1 << 40));
    let [away_one] = &report.left_out[..] else { panic!("{:?}", report.left_out) };
    assert_eq!((&away_one.volser, away_one.reason.as_str()), (&volumes[0], "it is not in a library"));
    assert!(away_one.blocks > 100, "{away_one:?}");
    assert!(!away_one.was_wanted, "nobody asked for what is on a shelf");
    let named = ScrubRequest { volumes: vec![volumes[0].clone()], ..places(1) };
    assert!(scrub(&site, &named).left_out[0].was_wanted);
    assert!(report.volumes.iter().all(|volume| volume.volser != volumes[0]));
    let (places_in_all, read, bad) = report.places();
    assert_eq!((places_in_all, bad), (read, 0));
    std::fs::rename(&aside, &away).unwrap();
    // What is found is on record, and is not drawn again.
    let (extent, lbn) = blocks(&bench)[10].clone();
    spoil_block(&bench, &extent, lbn);
    let report = scrub(&site, &places(1 << 40));
    assert_eq!(report.places().2, 1);
    let damage = site.catalog().damage().unwrap();
    assert_eq!((&damage[0].volser, damage[0].blocks.first_lbn, &*damage[0].found_by), (&extent.volser, lbn, "scrub"));
    let report = scrub(&site, &places(1 << 40));
    let (all, read, bad) = report.places();
    assert_eq!((all, read, bad, report.known_bad()), (blocks(&bench).len() as u64 - 1, all, 0, 1));
}

/// The statement was about what is left, as if the worst volume were not there.
#[test]
fn a_volume_that_cannot_be_read_at_all_is_bad_altogether() {
    let bench = many_blocks();
    let site = bench.site();
    let first = site.catalog().volumes().unwrap()[0].volser.clone();
    let own = blocks(&bench).iter().filter(|(extent, _)| extent.volser == first).count() as u64;
    let path = bench.cartridge(first.as_str());
    let mut bytes = std::fs::read(&path).unwrap();
    // Its records come behind its header.
    let records = bytes.windows(4).position(|window| window == b"CPR1").unwrap();
    bytes[records..].fill(0x55);
    std::fs::write(&path, bytes).unwrap();
    let report = scrub(&site, &places(1 << 40));
    assert!(report.left_out.is_empty(), "{:?}", report.left_out);
    let (_, _, bad) = report.places();
    assert_eq!(bad, own, "{report:?}");
    assert!(report.bad_at_most() >= own as f64 / blocks(&bench).len() as f64);
}

/// A run that is stopped speaks of what it came to the end of.
#[test]
fn one_that_is_stopped_speaks_of_the_volumes_that_it_read() {
    let bench = many_blocks();
    let site = bench.site();
    let plan = site.plan_scrub(&places(1 << 40)).unwrap();
    assert!(plan.volumes.len() > 1);
    let watch = RestoreWatch::default();
    let stop = std::sync::Arc::clone(&watch.stop);
    let mut mounts = 0;
    bench.set_hook(Some(Box::new(move |event| {
        if matches!(event, capstan_director::Event::Mounted { .. }) {
            mounts += 1;
            stop.store(mounts > 1, std::sync::atomic::Ordering::Relaxed);
        }
    })));
    let report = bench.site().scrub(plan, &watch).unwrap();
    bench.set_hook(None);
    assert!(report.is_stopped);
    assert_eq!(report.volumes.len(), 1, "{:?}", report.volumes);
    let (all, read, bad) = report.places();
    assert_eq!((read, bad), (all, 0));
    assert!(report.left_out.iter().all(|volume| volume.reason.contains("stopped")), "{:?}", report.left_out);
}

/// The last place of each volume is short: a bad long one is a larger share of the blocks than of the places.
#[test]
fn a_claim_over_places_of_several_blocks_holds_for_blocks() {
    let bench = many_blocks();
    let request = ScrubRequest { place_blocks: 64, ..places(1 << 40) };
    let (extent, lbn) = blocks(&bench)[3].clone();
    spoil_block(&bench, &extent, lbn);
    let report = scrub(&bench.site(), &request);
    let (all, _, bad) = report.places();
    assert_eq!(bad, 1);
    assert!(report.bad_at_most() > 63.9 / blocks(&bench).len() as f64, "{} of {all}", report.bad_at_most());
}
