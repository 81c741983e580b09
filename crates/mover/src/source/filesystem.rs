//! Which file systems hold nothing that anyone would back up.

use rustix::fs::StatFs;

/// `f_type` of file systems that the kernel makes up (`linux/magic.h` and the file systems' own sources).
const PSEUDO: [u64; 20] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x1cd1,      // devpts
    0x27_e0eb,   // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x6165_676c, // pstore
    0xcafe_4a11, // bpf
    0x6265_6570, // configfs
    0x1980_0202, // mqueue
    0x4249_4e4d, // binfmt_misc
    0xf97c_ff8c, // selinuxfs
    0xde5e_81e4, // efivarfs
    0x6573_5543, // fusectl
    0x6759_6969, // rpc_pipefs
    0x6e73_6673, // nsfs
    0x6e66_7364, // nfsd
    0x5a3c_69f0, // apparmorfs
];

/// Whether the kernel makes a file system's content up.
pub fn is_pseudo(stat: &StatFs) -> bool {
    PSEUDO.contains(&(stat.f_type as u64 & 0xffff_ffff))
}
