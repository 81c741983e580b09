//! Plans of restores: their laws, and what they gain.

use capstan_tape::model::{
    Afterwards, DriveModel, Reach, Restore, RestoreSchedule, StartPosition, TapeExtent, built_in, built_in_names,
    front_to_back, in_order, plan_restore,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRunner};

/// Runs a property with a seed that is told, and that `CAPSTAN_SEED` replays.
fn holds<S: Strategy>(strategy: &S, property: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = std::env::var("CAPSTAN_SEED").map_or(now, |text| text.parse().unwrap());
    println!("seed {seed}");
    let config = Config {
        cases: 200,
        rng_seed: RngSeed::Fixed(seed),
        rng_algorithm: RngAlgorithm::ChaCha,
        failure_persistence: None,
        ..Config::default()
    };
    if let Err(error) = TestRunner::new(config).run(strategy, property) {
        panic!("{error}\nreplay with CAPSTAN_SEED={seed}");
    }
}

/// What is wanted of a tape of 1000 parts: extents of up to so many bytes, anywhere.
fn extents(count: std::ops::Range<usize>, len_max: u64) -> impl Strategy<Value = Vec<(f64, u64)>> {
    prop::collection::vec((0.0..1.0f64, 0..len_max), count)
}

fn on_tape(model: &DriveModel, parts: &[(f64, u64)]) -> Vec<TapeExtent> {
    let capacity = model.capacity_gb.value * 1e9;
    parts.iter().map(|&(share, len)| TapeExtent { begin: (share * capacity) as u64, len }).collect()
}

fn any_model() -> impl Strategy<Value = DriveModel> {
    let names: Vec<_> = built_in_names().collect();
    prop::sample::select(names).prop_map(|name| built_in(name).unwrap())
}

fn from_its_slot(extents: &[TapeExtent]) -> Restore<'_> {
    let (standing, afterwards) = (StartPosition::Unloaded, Afterwards::Unload);
    Restore { extents, ratio: 1.0, target_mb_per_s: None, standing, afterwards }
}

fn order(plan: &RestoreSchedule) -> Vec<usize> {
    plan.steps.iter().map(|step| step.extent).collect()
}

#[test]
fn every_extent_is_read_once_and_never_slower_than_front_to_back() {
    let standing = prop_oneof![Just(None), (0.0..1.0f64).prop_map(Some)];
    let inputs = (any_model(), extents(0..60, 5_000_000_000), standing, any::<bool>(), 1.0..4.0f64);
    holds(&inputs, |(model, parts, standing, unload, ratio)| {
        let extents = on_tape(&model, &parts);
        let byte = |share: f64| (share * model.capacity_gb.value * 1e9) as u64;
        let restore = Restore {
            ratio,
            standing: standing.map_or(StartPosition::Unloaded, |share| StartPosition::At(byte(share))),
            afterwards: if unload { Afterwards::Unload } else { Afterwards::Stay },
            ..from_its_slot(&extents)
        };
        let (plan, baseline) = (plan_restore(&model, &restore), front_to_back(&model, &restore));
        let mut read = order(&plan);
        read.sort_unstable();
        prop_assert_eq!(read, (0..extents.len()).collect::<Vec<_>>());
        prop_assert!(plan.total_s() <= baseline.total_s() + 1e-6, "{} of {}", plan.total_s(), baseline.total_s());
        prop_assert!(baseline.steps.is_sorted_by_key(|step| extents[step.extent].begin));
        Ok(())
    });
}

/// Seconds of an order, worked out from the geometry alone: what a plan's own sum is held against.
fn walk_s(model: &DriveModel, extents: &[TapeExtent], order: &[usize]) -> f64 {
    let geometry = &model.geometry;
    let place = |byte: u64| geometry.place(byte as f64 / (model.capacity_gb.value * 1e9));
    let native = model.native_mb_per_s.value * 1e6;
    let mut seconds = model.load_s.value + model.unload_s.value;
    let (mut at, mut byte) = (geometry.load_point(), (!geometry.loads_at_middle).then_some(0));
    for &next in order {
        let TapeExtent { begin, len } = extents[next];
        let locate_s = geometry.locate_s(at, place(begin)).max(geometry.turn_s.value);
        let read_on_s = match byte {
            Some(byte) if byte <= begin => (begin - byte) as f64 / native,
            _ => f64::INFINITY,
        };
        seconds += locate_s.min(read_on_s) + len as f64 / native;
        (at, byte) = (place(begin + len), Some(begin + len));
    }
    seconds + geometry.rewind_s(at)
}

/// The least that any order of so few takes.
fn least_s(model: &DriveModel, extents: &[TapeExtent], order: &mut Vec<usize>) -> f64 {
    if order.len() == extents.len() {
        return walk_s(model, extents, order);
    }
    let mut least = f64::INFINITY;
    for next in 0..extents.len() {
        if !order.contains(&next) {
            order.push(next);
            least = least.min(least_s(model, extents, order));
            order.pop();
        }
    }
    least
}

#[test]
fn a_plan_of_few_extents_is_the_best_and_takes_what_a_walk_along_it_takes() {
    holds(&(any_model(), extents(1..7, 5_000_000_000)), |(model, parts)| {
        let extents = on_tape(&model, &parts);
        let plan = plan_restore(&model, &from_its_slot(&extents));
        let (found, walked) = (plan.total_s(), walk_s(&model, &extents, &order(&plan)));
        prop_assert!((found - walked).abs() < 1e-6, "{found} s by the plan, {walked} s by a walk");
        let least = least_s(&model, &extents, &mut Vec::new());
        prop_assert!(found <= least + 1e-6, "{found} s, and {least} s are enough");
        Ok(())
    });
}

/// Orders were only improved by moving neighbours, also those of few extents; of one in a thousand the plan was up to 6
/// % behind the best, as seeds 64, 105, 245 and 248 of the test above showed. Of seven to ten, each plan is held
/// against every single exchange of two and every move of one: what is best cannot be made better by either.
#[test]
fn no_plan_of_few_extents_gains_by_an_exchange_or_a_move() {
    holds(&(any_model(), extents(7..11, 5_000_000_000)), |(model, parts)| {
        let extents = on_tape(&model, &parts);
        let plan = plan_restore(&model, &from_its_slot(&extents));
        let found = order(&plan);
        for one in 0..found.len() {
            for other in 0..found.len() {
                let (mut exchanged, mut moved) = (found.clone(), found.clone());
                exchanged.swap(one, other);
                let taken = moved.remove(one);
                moved.insert(other, taken);
                for changed in [exchanged, moved] {
                    let seconds = in_order(&model, &from_its_slot(&extents), &changed).total_s();
                    prop_assert!(plan.total_s() <= seconds + 1e-6, "{} s, and {seconds} s are enough", plan.total_s());
                }
            }
        }
        Ok(())
    });
}

#[test]
fn time_grows_with_what_is_read_and_with_what_the_target_lacks() {
    let inputs = (any_model(), extents(1..40, 1_000_000_000), 0..1_000_000_000u64, 1.0..100.0f64);
    holds(&inputs, |(model, parts, more, target)| {
        let extents = on_tape(&model, &parts);
        let restore = from_its_slot(&extents);
        let plan = plan_restore(&model, &restore);
        let bytes: u64 = extents.iter().map(|extent| extent.len).sum();
        let read_s: f64 = plan.steps.iter().map(|step| step.read_s).sum();
        prop_assert!((read_s - bytes as f64 / model.native_mb_per_s.value / 1e6).abs() < 1e-6);
        let held_back = plan_restore(&model, &Restore { target_mb_per_s: Some(target), ..restore });
        prop_assert!(held_back.total_s() >= plan.total_s() - 1e-6);
        let alone = extents[0];
        let longer = TapeExtent { len: alone.len + more, ..alone };
        let read = |extent: TapeExtent| plan_restore(&model, &from_its_slot(&[extent])).there_s();
        prop_assert!(read(longer) >= read(alone));
        prop_assert!(plan.there_s() >= model.load_s.value + read_s);
        Ok(())
    });
}

#[test]
fn one_extent_far_away_takes_a_locate_and_its_reading() {
    let model = built_in("LTO-9").unwrap();
    // In the middle of the tape, on a wrap that leads away: half of its length from where it is loaded.
    let extents = [TapeExtent { begin: (140.5 / 280.0 * 18e12) as u64, len: 400_000_000 }];
    let plan = plan_restore(&model, &from_its_slot(&extents));
    let [step] = plan.steps[..] else { panic!("{plan:?}") };
    let half_s = 2.0 + 1035.0 / 2.0 / 12.03;
    assert_eq!((step.reach, plan.load_s, plan.unload_s), (Reach::Locate, 17.0, 30.0));
    assert!((step.reach_s - half_s).abs() < 0.01 && (step.read_s - 1.0).abs() < 1e-9, "{step:?}");
    assert!((plan.total_s() - (17.0 + 2.0 * half_s + 1.0 + 30.0)).abs() < 1.0, "{} s", plan.total_s());
}

#[test]
fn what_lies_between_is_read_over_where_that_is_quicker() {
    let model = built_in("LTO-9").unwrap();
    let extents = [0, 1_000_000_000, 9_000_000_000_000].map(|begin| TapeExtent { begin, len: 100_000_000 });
    let restore = Restore { standing: StartPosition::At(0), afterwards: Afterwards::Stay, ..from_its_slot(&extents) };
    let plan = plan_restore(&model, &restore);
    // 900 MB at 400 MB/s are 2.25 s, and a locate takes a turn of 2 s and a few metres; 8.9 TB would take six hours.
    let reaches: Vec<Reach> = plan.steps.iter().map(|step| step.reach).collect();
    assert_eq!(reaches[0], Reach::Here);
    assert_eq!(reaches[2], Reach::Locate);
    let near = [0, 700_000_000].map(|begin| TapeExtent { begin, len: 100_000_000 });
    let plan = plan_restore(&model, &Restore { extents: &near, ..restore });
    assert_eq!(plan.steps[1].reach, Reach::ReadOn);
    assert!((plan.steps[1].reach_s - 1.5).abs() < 1e-9 && plan.rewind_s == 0.0 && plan.load_s == 0.0);
}

#[test]
fn a_hundred_files_of_a_full_tape_come_several_times_sooner_than_front_to_back() {
    let model = built_in("LTO-9").unwrap();
    // A fixed walk over the tape, so that the figures stay the same.
    let shares: Vec<(f64, u64)> =
        (0..100u32).map(|at| (f64::from(at * 61 % 100) / 100.0 + 0.0037, 8_000_000)).collect();
    let extents = on_tape(&model, &shares);
    let (plan, baseline) =
        (plan_restore(&model, &from_its_slot(&extents)), front_to_back(&model, &from_its_slot(&extents)));
    let times = baseline.total_s() / plan.total_s();
    assert!(times > 3.0, "{times}: {} s and {} s", baseline.total_s(), plan.total_s());
}

#[test]
fn plans_of_very_many_extents_take_little_time_and_what_cannot_be_stops_none() {
    let model = built_in("LTO-9").unwrap();
    let began = std::time::Instant::now();
    let scattered = |count: u64| -> Vec<TapeExtent> {
        let begin = |at: u64| at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        (0..count).map(|at| TapeExtent { begin: begin(at), len: 1 << 20 }).collect()
    };
    for (count, gains) in [(8_000, true), (200_000, false)] {
        let extents = scattered(count);
        let plan = plan_restore(&model, &from_its_slot(&extents)).total_s();
        let baseline = front_to_back(&model, &from_its_slot(&extents)).total_s();
        // Of 200,000, the next is always nearer by reading on.
        assert_eq!(plan < 0.8 * baseline, gains, "{count}: {plan} s and {baseline} s");
    }
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());

    let odd = [
        TapeExtent { begin: u64::MAX, len: u64::MAX },
        TapeExtent { begin: 0, len: 0 },
        TapeExtent { begin: 0, len: 0 },
    ];
    let plan = plan_restore(&model, &Restore { ratio: f64::NAN, ..from_its_slot(&odd) });
    assert_eq!(plan.steps.len(), 3);
    assert!(plan_restore(&model, &from_its_slot(&[])).steps.is_empty());
}
