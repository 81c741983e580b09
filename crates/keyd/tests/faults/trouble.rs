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
    /// In which order everything starts again.
    order: Vec<usize>,
    seed: u64,
}

impl Round {
    pub(crate) fn draw(seed: u64, cluster: &Cluster) -> Self {
        let mut random = Seeded(seed);
        let mut faults = Vec::new();
        for _ in 0..=random.below(2) {
            let place = random.place();
            let fault = match random.below(16) {
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
                _ => Fault::FreezeMajority { left: place },
            };
            faults.push(fault);
        }
        let length = if random.below(8) == 0 { Length::Long } else { Length::Short };
        let mut order: Vec<_> = (0..2 * PLACES).collect();
        for at in 1..order.len() {
            order.swap(at, usize::try_from(random.below(at as u64 + 1)).unwrap());
        }
        Self { faults, length, order, seed: random.0 }
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
            Length::Long => Duration::from_millis(3_500 + random.below(1_500)),
        });
        self.heal(cluster);
    }

    fn heal(&self, cluster: &mut Cluster) {
        cluster.empty_disk();
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
            }
        }
        // A node that runs takes its shares again and stays as it is.
        (0..PLACES).for_each(|place| cluster.unlock(place));
    }
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
    }
}
