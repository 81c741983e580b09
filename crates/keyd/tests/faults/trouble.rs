//! What happens to the cluster: drawn from a seed, done, and undone.

use std::thread::sleep;
use std::time::Duration;

use super::cluster::Cluster;
use super::network::PLACES;
use super::process::Process;

/// Random numbers that a seed gives again.
pub(crate) struct Seeded(pub(crate) u64);

impl Seeded {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// Up to thirty years, ahead or back.
    fn years(&mut self) -> i64 {
        // Never before 1996: no certificate is made out for a time before its authority's.
        let years = i64::try_from(1 + self.below(30)).unwrap();
        if self.below(2) == 0 { years } else { -years }
    }

    fn place(&mut self) -> usize {
        usize::try_from(self.below(PLACES as u64)).unwrap()
    }
}

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    KillNode(usize),
    FreezeNode(usize),
    KillMember(usize),
    FreezeMember(usize),
    /// A machine loses power: node and member.
    KillPlace(usize),
    /// Two of three members: no majority is left.
    FreezeMajority {
        left: usize,
    },
    KillNodes,
    KillEverything,
    /// A place's member and node reach the other places no more, though agents reach them.
    CutOff(usize),
    /// What a place sends is lost, and what is sent to it arrives.
    Mute(usize),
    /// What is sent to a place is lost.
    Deaf(usize),
    FullDisk,
    /// A node's clock jumps by years, ahead or back.
    SetClock(usize, i64),
    /// Every node's clock jumps, each by years of its own.
    SetClocks([i64; PLACES]),
    /// A node starts with a clock that is wrong by years.
    StartWithClock(usize, i64),
}

/// How long a round's faults last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    /// Nobody takes itself to be cut off.
    Short,
    /// A node without the majority takes itself to be cut off, and goes on alone.
    Long,
}

/// What happens in a round, drawn from its number: up to two things at a time.
#[derive(Debug)]
pub(crate) struct Round {
    faults: Vec<Fault>,
    length: Length,
    /// In which order everything starts again: members by place, then nodes.
    order: Vec<usize>,
    seed: u64,
}

/// Every so many rounds nothing is left running, and everything starts in the next of all orders.
const ALL_DOWN_EVERY: u64 = 5;
/// In so many orders members start, and in so many nodes.
const ORDERS: u64 = 6;
/// Orders of members and of nodes that are all to be tried; how these two are shuffled into each other is drawn.
pub(crate) const ORDERS_ALL: usize = (ORDERS * ORDERS) as usize;
/// After so many rounds all of them were.
pub(crate) const ORDERS_TAKE: u64 = ALL_DOWN_EVERY * ORDERS * ORDERS;

impl Round {
    pub(crate) fn draw(seed: u64, number: u64, cluster: &Cluster) -> Self {
        let mut random = Seeded(seed);
        let mut faults = Vec::new();
        for _ in 0..=random.below(2) {
            let place = random.place();
            let fault = match random.below(20) {
                0..3 => Fault::KillNode(place),
                3..5 => Fault::FreezeNode(place),
                5..7 => Fault::KillMember(place),
                7 => Fault::FreezeMember(place),
                8 => Fault::KillPlace(place),
                9 => Fault::FreezeMajority { left: place },
                10 => Fault::KillNodes,
                11 => Fault::KillEverything,
                12 if cluster.network.can_cut() => Fault::CutOff(place),
                13 if cluster.network.can_cut() => Fault::Mute(place),
                14 if cluster.network.can_cut() => Fault::Deaf(place),
                15 if cluster.can_fill_disk() => Fault::FullDisk,
                16..18 if cluster.clocks.is_some() => Fault::SetClock(place, random.years()),
                18 if cluster.clocks.is_some() => Fault::SetClocks(std::array::from_fn(|_| random.years())),
                19 if cluster.clocks.is_some() => Fault::StartWithClock(place, random.years()),
                _ => Fault::FreezeMajority { left: place },
            };
            faults.push(fault);
        }
        let all_down = number.is_multiple_of(ALL_DOWN_EVERY).then_some(number / ALL_DOWN_EVERY);
        faults.extend(all_down.map(|_| Fault::KillEverything));
        let length = if random.below(8) == 0 { Length::Long } else { Length::Short };
        let (members, nodes) = match all_down {
            Some(next) => (next / ORDERS % ORDERS, next % ORDERS),
            None => (random.below(ORDERS), random.below(ORDERS)),
        };
        let order = shuffled(permutation(members), permutation(nodes).map(|place| PLACES + place), &mut random);
        Self { faults, length, order, seed: random.0 }
    }

    /// In which order members and nodes start, if nothing runs any more.
    pub(crate) fn order_of_all(&self) -> Option<(Vec<usize>, Vec<usize>)> {
        let all_down = self.faults.contains(&Fault::KillEverything);
        all_down.then(|| self.order.iter().partition(|at| **at < PLACES))
    }

    /// It happens, and is undone.
    pub(crate) fn play(&self, cluster: &mut Cluster) {
        let mut random = Seeded(self.seed);
        for fault in &self.faults {
            begin(*fault, cluster);
            sleep(Duration::from_millis(random.below(150)));
        }
        sleep(match self.length {
            Length::Short => Duration::from_millis(100 + random.below(300)),
            Length::Long => Duration::from_millis(3_300 + random.below(1_200)),
        });
        self.heal(cluster, &mut random);
    }

    fn heal(&self, cluster: &mut Cluster, random: &mut Seeded) {
        cluster.empty_disk();
        (0..PLACES).for_each(|place| cluster.set_clock(place, 0));
        for from in 0..PLACES {
            (0..PLACES).filter(|to| *to != from).for_each(|to| cluster.network.mend(from, to));
        }
        for process in cluster.members.iter_mut().chain(&mut cluster.nodes) {
            process.thaw();
        }
        for at in &self.order {
            let process = match at.checked_sub(PLACES) {
                None => &mut cluster.members[*at],
                Some(place) => &mut cluster.nodes[place],
            };
            if !process.is_there() {
                process.start();
                if self.order_of_all().is_some() {
                    // Else they would all start at once.
                    sleep(Duration::from_millis(random.below(120)));
                }
            }
        }
        // A node that runs takes its shares again and stays as it is.
        (0..PLACES).for_each(|place| cluster.unlock(place));
    }
}

/// The places in one of their orders.
fn permutation(number: u64) -> [usize; PLACES] {
    let all = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    all[usize::try_from(number % ORDERS).unwrap()]
}

/// Two orders as one.
fn shuffled(one: [usize; PLACES], other: [usize; PLACES], random: &mut Seeded) -> Vec<usize> {
    let (mut one, mut other) = (one.into_iter().peekable(), other.into_iter().peekable());
    let mut both = Vec::new();
    while one.peek().is_some() || other.peek().is_some() {
        both.extend(if random.below(2) == 0 { one.next() } else { other.next() });
    }
    both
}

fn begin(fault: Fault, cluster: &mut Cluster) {
    let others = |place: usize| (0..PLACES).filter(move |other| *other != place);
    match fault {
        Fault::KillNode(place) => cluster.nodes[place].kill(),
        Fault::FreezeNode(place) => cluster.nodes[place].freeze(),
        Fault::KillMember(place) => cluster.members[place].kill(),
        Fault::FreezeMember(place) => cluster.members[place].freeze(),
        Fault::KillPlace(place) => {
            cluster.members[place].kill();
            cluster.nodes[place].kill();
        }
        Fault::FreezeMajority { left } => others(left).for_each(|place| cluster.members[place].freeze()),
        Fault::KillNodes => cluster.nodes.iter_mut().for_each(Process::kill),
        Fault::KillEverything => cluster.nodes.iter_mut().chain(&mut cluster.members).for_each(Process::kill),
        Fault::CutOff(place) => others(place).for_each(|other| {
            cluster.network.cut(place, other);
            cluster.network.cut(other, place);
        }),
        Fault::Mute(place) => others(place).for_each(|other| cluster.network.cut(place, other)),
        Fault::Deaf(place) => others(place).for_each(|other| cluster.network.cut(other, place)),
        Fault::FullDisk => cluster.fill_disk(),
        Fault::SetClock(place, years) => cluster.set_clock(place, years),
        Fault::SetClocks(years) => (0..PLACES).for_each(|place| cluster.set_clock(place, years[place])),
        Fault::StartWithClock(place, years) => {
            cluster.nodes[place].kill();
            cluster.set_clock(place, years);
            cluster.nodes[place].start();
            cluster.unlock_soon(place);
        }
    }
}
