//! Acts: everything a person can ask of a node, and the table of who may.

use capstan_service::role_table;

use super::Role;

// x: does it at once. q: asks for it, and m quorum members who are somebody else approve. -: may not. Gone, and their
// numbers with them: 2 unlock-kma, since a node that is locked knows neither users nor roles, and the shares are its
// quorum; 14 begin-epoch and 73 restore-backup, since there is no node to ask then: custodians and holders are the
// quorum of `keyd restore`; 42 change-agent and 61 change-data-unit: an agent says its site itself, and what a
// cartridge is called and became is in the catalog. SO security officer, CO compliance officer, OP operator, BO backup
// operator, AU auditor, QM quorum member.
role_table! {
    /// Everything a person can ask of a node. The numbers stand in records of requests and are never used for another
    /// act.
    pub enum Act of Role {
        // code act             name                       SO CO OP BO AU QM
         1 ReadStatus           "read-status"             [x  x  x  x  x  x] "read a node's status";
         3 LockKma              "lock-kma"                [x  -  -  -  -  -] "lock a node";
         4 SetAutonomousUnlock  "set-autonomous-unlock"   [q  -  -  -  -  -] "let a node unlock itself after a start";
         6 EndAutonomousUnlock  "end-autonomous-unlock"   [x  -  -  -  -  -] "take back at once that a node unlocks itself";
         5 ChangeCredentials    "change-credentials"      [q  -  -  -  -  -] "change the split credentials of the root key";

        10 ListKmas             "list-kmas"               [x  x  x  x  x  x] "list the nodes";
        11 AddKma               "add-kma"                 [q  -  -  -  -  -] "add a node";
        12 ChangeKma            "change-kma"              [q  -  -  -  -  -] "change a node's addresses or site";
        13 RemoveKma            "remove-kma"              [q  -  -  -  -  -] "remove a node";
        17 NoteKmaDestroyed     "note-kma-destroyed"      [x  -  -  -  -  -] "note that the disks of a removed node were destroyed";
        18 CallOffKma           "call-off-kma"            [x  -  -  -  -  -] "call off a node that was approved and has not joined";
        15 ListSites            "list-sites"              [x  x  x  x  x  x] "list the sites";
        16 ChangeSites          "change-sites"            [x  -  -  -  -  -] "add, describe or remove a site";

        20 ListUsers            "list-users"              [x  -  -  -  x  x] "list the users and their roles";
        21 ChangeUsers          "change-users"            [q  -  -  -  -  -] "add a user, or change a user's roles or certificates";
        22 DisableUser          "disable-user"            [x  -  -  -  -  -] "disable a user";
        23 ChangeQuorum         "change-quorum"           [q  -  -  -  -  -] "change how many approvals are needed, or how long a request waits";

        30 ListPolicies         "list-policies"           [-  x  x  -  x  -] "list the key policies";
        31 AddPolicy            "add-policy"              [-  x  -  -  -  -] "add a key policy";
        32 ListGroups           "list-groups"             [-  x  x  -  x  -] "list the key groups";
        33 AddGroup             "add-group"               [-  x  -  -  -  -] "add a key group";
        34 AssignGroups         "assign-groups"           [-  x  -  -  -  -] "change which key groups an agent or a KMIP client may use";

        40 ListAgents           "list-agents"             [x  x  x  -  x  -] "list the agents";
        41 AddAgent             "add-agent"               [-  -  x  -  -  -] "enrol an agent";
        43 RevokeAgent          "revoke-agent"            [x  -  x  -  -  -] "revoke an agent";
        44 ListKmipClients      "list-kmip-clients"       [x  x  x  -  x  -] "list the KMIP clients";
        45 AddKmipClient        "add-kmip-client"         [-  -  x  -  -  -] "enrol a KMIP client";
        46 RevokeKmipClient     "revoke-kmip-client"      [x  -  x  -  -  -] "revoke a KMIP client";

        50 ListKeys             "list-keys"               [-  x  x  -  x  -] "list keys, without what is secret of them";
        51 CompromiseKeys       "compromise-keys"         [-  x  -  -  -  -] "say that keys are known to others";
        52 DestroyExpiredKeys   "destroy-expired-keys"    [-  -  x  -  -  -] "destroy keys that are past their cryptoperiod";
        53 DestroyKeys          "destroy-keys"            [-  q  -  -  -  -] "destroy keys that still read";
        54 ExtendKeys           "extend-keys"             [-  x  -  -  -  -] "let a data unit be read past its keys' cryptoperiod";
        55 ExportKeys           "export-keys"             [-  q  -  -  -  -] "export keys";
        56 ImportKeys           "import-keys"             [-  q  -  -  -  -] "import keys";
        57 ConfirmKeys          "confirm-keys"            [-  x  -  -  -  -] "say of which volume and group a key of a lost node is";

        60 ListDataUnits        "list-data-units"         [-  x  x  -  x  -] "list data units and their keys";
        62 ReadExposure         "read-exposure"           [x  x  -  -  x  -] "ask which data units a compromise exposes";
        63 PlanRekey            "plan-rekey"              [-  x  x  -  -  -] "plan how exposed data units get other keys";
        64 ProveRetrieval       "prove-retrieval"         [-  x  x  x  x  -] "prove that every data unit's keys can be had back";

        70 ListBackups          "list-backups"            [x  x  x  x  x  -] "list the backups";
        71 CreateBackup         "create-backup"           [-  -  -  x  -  -] "create a backup of the database";
        72 NoteBackupDestroyed  "note-backup-destroyed"   [-  -  -  x  -  -] "note that a backup was destroyed";
        74 BackUpCoreSecurity   "back-up-core-security"   [q  -  -  -  -  -] "create a core security backup, split among its holders";
        75 CertifyDestruction   "certify-destruction"     [-  x  -  -  -  -] "certify that a key is destroyed everywhere";
        76 ListCertificates     "list-certificates"       [-  x  x  x  x  -] "list the destruction certificates";

        80 ReadAudit            "read-audit"              [x  x  -  -  x  -] "read the audit log";
        81 VerifyAudit          "verify-audit"            [x  x  -  -  x  -] "verify the audit log";

        90 ListPending          "list-pending"            [x  x  -  -  x  x] "list what waits for a quorum";
        91 ApprovePending       "approve-pending"         [-  -  -  -  -  x] "approve what somebody else asks for";
        92 RejectPending        "reject-pending"          [-  -  -  -  -  x] "reject what somebody asks for";
        93 WithdrawPending      "withdraw-pending"        [x  x  -  -  -  -] "withdraw one's own request";
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::collections::BTreeSet;

    use super::*;
    use crate::authority::{Denied, User, UserStatus, may};
    use capstan_service::roles::{ActPermission, TableAct};

    /// The table as people read it; changed by hand, together with the one above.
    const GOLDEN: &str = include_str!("../../testdata/roles.txt");

    fn golden() -> Vec<(&'static str, Vec<&'static str>)> {
        let lines = GOLDEN.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .map(|words| (words[0], words[1..].to_vec()))
            .collect()
    }

    fn user(roles: &[Role]) -> User {
        User::new("anna".parse().unwrap(), roles.iter().copied().collect())
    }

    #[test]
    fn every_cell_is_as_the_golden_table_says() {
        let rows = golden();
        let columns: Vec<_> = rows[0].1.iter().map(|name| Role::named(name).unwrap()).collect();
        assert_eq!(columns, Role::ALL);
        assert_eq!(rows.len() - 1, Act::ALL.len(), "each act has its row");
        for ((name, cells), &act) in rows[1..].iter().zip(Act::ALL) {
            assert_eq!(*name, act.name());
            assert_eq!(cells.len(), Role::ALL.len(), "{act}");
            for (cell, role) in cells.iter().zip(Role::ALL) {
                let expected = match *cell {
                    "yes" => Ok(ActPermission::AtOnce),
                    "quorum" => Ok(ActPermission::ByQuorum),
                    "no" => Err(Denied::Role { user: "anna".parse().unwrap(), has: [role].into_iter().collect(), act }),
                    other => panic!("{other}"),
                };
                assert_eq!(may(&user(&[role]), act), expected, "{role} {act}");
            }
        }
    }

    #[test]
    fn roles_add_up_and_take_nothing_away() {
        for &act in Act::ALL {
            for (one, other) in Role::ALL.into_iter().flat_map(|one| Role::ALL.map(|other| (one, other))) {
                let either = may(&user(&[one]), act).or(may(&user(&[other]), act)).ok();
                assert_eq!(may(&user(&[one, other]), act).ok(), either, "{act}: {one} and {other}");
            }
            assert!(may(&user(&[]), act).is_err());
        }
    }

    #[test]
    fn a_disabled_user_may_nothing() {
        for &act in Act::ALL {
            let gone = User { standing: UserStatus::Disabled, ..user(&Role::ALL) };
            assert_eq!(may(&gone, act), Err(Denied::Disabled { user: gone.name.clone() }));
        }
    }

    #[test]
    fn names_and_codes_are_told_apart_and_every_act_is_somebodys() {
        let names: BTreeSet<_> = Act::ALL.iter().map(|act| act.name()).collect();
        let codes: BTreeSet<_> = Act::ALL.iter().map(|act| act.code()).collect();
        assert_eq!((names.len(), codes.len()), (Act::ALL.len(), Act::ALL.len()));
        for &act in Act::ALL {
            assert_eq!((Act::named(act.name()), Act::from_code(act.code())), (Some(act), Some(act)));
            assert!(act.roles().iter().next().is_some(), "{act}");
            let cells = act.row().cells;
            let has = |permission| cells.contains(&Some(permission));
            assert!(!(has(ActPermission::AtOnce) && has(ActPermission::ByQuorum)), "{act} has two kinds of yes");
        }
        assert_eq!((Act::from_code(0), Act::named("")), (None, None));
    }

    #[test]
    fn a_denial_says_which_role_may() {
        let denied = may(&user(&[Role::Operator]), Act::AddPolicy).unwrap_err().to_string();
        assert_eq!(
            denied,
            "user anna (operator) may not add a key policy: that is for a user with one of these roles: compliance-officer"
        );
    }

    /// Auditors look: nothing they may do changes anything.
    #[test]
    fn an_auditor_changes_nothing() {
        for &act in Act::ALL.iter().filter(|act| may(&user(&[Role::Auditor]), **act).is_ok()) {
            let looks = ["read-", "list-", "verify-", "prove-"].iter().any(|verb| act.name().starts_with(verb));
            assert!(looks, "{act}");
        }
    }

    /// Who decides on people and nodes has no way to keys alone, and the other way round.
    #[test]
    fn officers_do_not_overlap_in_what_they_change() {
        for &act in Act::ALL {
            let looks = ["read-", "list-", "verify-", "withdraw-"].iter().any(|verb| act.name().starts_with(verb));
            let both = act.roles().contains(Role::SecurityOfficer) && act.roles().contains(Role::ComplianceOfficer);
            assert!(!both || looks, "{act}");
        }
    }
}
