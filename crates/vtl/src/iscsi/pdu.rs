//! What stands in the 48 bytes that begin every PDU (RFC 7143, section 11).
//!
//! Each kind is a struct that is read from a header and written into one by the same table, so that the two cannot
//! differ. Nothing here can fail: 48 bytes of any content are a header; what makes no sense in it is refused by who
//! acts on it.
//! ```text
//!   0        opcode; 40h: immediate           16..20  initiator task tag
//!   1        flags of the kind, 80h: final    20..24  target task tag, length or CID, by kind
//!   2..4     by kind                          24..28  CmdSN, from the target StatSN
//!   4        length of AHS in words           28..32  ExpStatSN, from the target ExpCmdSN
//!   5..8     length of the data segment       32..36  from the target MaxCmdSN
//!   8..16    LUN, or ISID and TSIH            36..48  by kind
//! ```

/// Bytes of a basic header segment.
pub(crate) const HEADER_LEN: usize = 48;

/// A task tag that names no task.
pub(crate) const NO_TAG: u32 = 0xffff_ffff;

/// The last PDU of a sequence.
pub(crate) const FINAL: u8 = 0x80;
/// More text follows in the next PDU (Login and Text).
pub(crate) const CONTINUE: u8 = 0x40;
/// The initiator expects data (SCSI Command).
pub(crate) const READ: u8 = 0x40;
/// The initiator has data (SCSI Command).
pub(crate) const WRITE: u8 = 0x20;
/// More data than were expected (SCSI Response, Data-In).
pub(crate) const OVERFLOW: u8 = 0x04;
/// Fewer data than were expected (SCSI Response, Data-In).
pub(crate) const UNDERFLOW: u8 = 0x02;
/// The Data-In PDU brings the status.
pub(crate) const STATUS: u8 = 0x01;

/// A basic header segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header(pub(crate) [u8; HEADER_LEN]);

impl Header {
    fn new(opcode: u8) -> Self {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = opcode;
        Self(bytes)
    }

    pub(crate) fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    /// Not counted in the command numbering.
    pub(crate) fn is_immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    pub(crate) fn immediate(mut self) -> Self {
        self.0[0] |= 0x40;
        self
    }

    pub(crate) fn flags(&self) -> u8 {
        self.0[1]
    }

    /// Bytes of additional header segments.
    pub(crate) fn ahs_len(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// Bytes of the data segment, without padding.
    pub(crate) fn data_len(&self) -> usize {
        usize::from(self.0[5]) << 16 | usize::from(self.0[6]) << 8 | usize::from(self.0[7])
    }

    pub(crate) fn set_data_len(&mut self, len: usize) {
        self.0[5..8].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
    }

    pub(crate) fn set_ahs_len(&mut self, len: usize) {
        self.0[4] = (len / 4) as u8;
    }

    pub(crate) fn task_tag(&self) -> u32 {
        u32::get(&self.0, 16)
    }

    /// CmdSN of a request.
    pub(crate) fn command_number(&self) -> u32 {
        u32::get(&self.0, 24)
    }

    /// Sets StatSN, ExpCmdSN and MaxCmdSN, which stand at the same place in all that a target sends.
    pub(crate) fn stamp(&mut self, numbers: Numbers) {
        numbers.status.put(&mut self.0, 24);
        numbers.expected_command.put(&mut self.0, 28);
        numbers.command_max.put(&mut self.0, 32);
    }

    /// What [`Header::stamp`] set.
    pub(crate) fn numbers(&self) -> Numbers {
        Numbers {
            status: u32::get(&self.0, 24),
            expected_command: u32::get(&self.0, 28),
            command_max: u32::get(&self.0, 32),
        }
    }
}

/// The numbers that every PDU of a target carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) status: u32,
    pub(crate) expected_command: u32,
    pub(crate) command_max: u32,
}

/// Serial number arithmetic (RFC 1982): whether `a` comes before `b`.
pub(crate) fn comes_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

trait Field: Sized {
    fn get(bytes: &[u8; HEADER_LEN], at: usize) -> Self;
    fn put(self, bytes: &mut [u8; HEADER_LEN], at: usize);
}

macro_rules! integer_fields {
    ($($kind:ty)*) => {$(
        impl Field for $kind {
            fn get(bytes: &[u8; HEADER_LEN], at: usize) -> Self {
                Self::from_be_bytes(Field::get(bytes, at))
            }

            fn put(self, bytes: &mut [u8; HEADER_LEN], at: usize) {
                Field::put(self.to_be_bytes(), bytes, at);
            }
        }
    )*};
}

integer_fields!(u8 u16 u32 u64);

impl<const LEN: usize> Field for [u8; LEN] {
    fn get(bytes: &[u8; HEADER_LEN], at: usize) -> Self {
        let mut field = [0; LEN];
        field.copy_from_slice(&bytes[at..at + LEN]);
        field
    }

    fn put(self, bytes: &mut [u8; HEADER_LEN], at: usize) {
        bytes[at..at + LEN].copy_from_slice(&self);
    }
}

macro_rules! headers {
    ($($(#[$doc:meta])* $name:ident = $opcode:literal { $($field:ident: $kind:ty = $at:literal),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
            pub(crate) struct $name {
                pub(crate) flags: u8,
                $(pub(crate) $field: $kind),*
            }

            impl $name {
                #[allow(dead_code, reason = "an initiator never looks for its own requests")]
                pub(crate) const OPCODE: u8 = $opcode;

                pub(crate) fn decode(header: &Header) -> Self {
                    Self { flags: header.flags(), $($field: Field::get(&header.0, $at)),* }
                }

                pub(crate) fn encode(self) -> Header {
                    let mut header = Header::new($opcode);
                    header.0[1] = self.flags;
                    $(self.$field.put(&mut header.0, $at);)*
                    header
                }
            }
        )*

        /// Reads a header as what its opcode says and writes it again; `None` where the opcode is not known.
        pub(crate) fn written_again(header: &Header) -> Option<Header> {
            match header.opcode() {
                $($opcode => Some($name::decode(header).encode()),)*
                _ => None,
            }
        }

        #[cfg(test)]
        const FIELDS: &[(&str, &[(&str, usize, usize)])] =
            &[$((stringify!($name), &[$((stringify!($field), $at, size_of::<$kind>())),*])),*];
    };
}

headers! {
    NopOut = 0x00 { lun: u64 = 8, task_tag: u32 = 16, target_tag: u32 = 20, command_number: u32 = 24, expected_status: u32 = 28 }

    /// A command and as much of its data as may come with it.
    Command = 0x01 {
        lun: u64 = 8, task_tag: u32 = 16, expected_len: u32 = 20, command_number: u32 = 24, expected_status: u32 = 28,
        cdb: [u8; 16] = 32,
    }

    /// Task management; the function is in the flags.
    TaskManagement = 0x02 {
        lun: u64 = 8, task_tag: u32 = 16, referenced_tag: u32 = 20, command_number: u32 = 24, expected_status: u32 = 28,
        referenced_command: u32 = 32, expected_data: u32 = 36,
    }

    LoginRequest = 0x03 {
        version_max: u8 = 2, version_min: u8 = 3, isid: [u8; 6] = 8, tsih: u16 = 14, task_tag: u32 = 16, cid: u16 = 20,
        command_number: u32 = 24, expected_status: u32 = 28,
    }

    TextRequest = 0x04 {
        lun: u64 = 8, task_tag: u32 = 16, target_tag: u32 = 20, command_number: u32 = 24, expected_status: u32 = 28,
    }

    DataOut = 0x05 {
        lun: u64 = 8, task_tag: u32 = 16, target_tag: u32 = 20, expected_status: u32 = 28, data_number: u32 = 36,
        offset: u32 = 40,
    }

    /// The reason is in the flags.
    LogoutRequest = 0x06 { task_tag: u32 = 16, cid: u16 = 20, command_number: u32 = 24, expected_status: u32 = 28 }

    Snack = 0x10 {
        lun: u64 = 8, task_tag: u32 = 16, target_tag: u32 = 20, expected_status: u32 = 28, begin: u32 = 40, run: u32 = 44,
    }

    NopIn = 0x20 {
        lun: u64 = 8, task_tag: u32 = 16, target_tag: u32 = 20, status_number: u32 = 24, expected_command: u32 = 28,
        command_max: u32 = 32,
    }

    /// The end of a command that did not come with the last of its data.
    Response = 0x21 {
        response: u8 = 2, status: u8 = 3, task_tag: u32 = 16, snack_tag: u32 = 20, status_number: u32 = 24,
        expected_command: u32 = 28, command_max: u32 = 32, expected_data: u32 = 36, read_residual: u32 = 40,
        residual: u32 = 44,
    }

    TaskManagementResponse = 0x22 {
        response: u8 = 2, task_tag: u32 = 16, status_number: u32 = 24, expected_command: u32 = 28, command_max: u32 = 32,
    }

    LoginResponse = 0x23 {
        version_max: u8 = 2, version_active: u8 = 3, isid: [u8; 6] = 8, tsih: u16 = 14, task_tag: u32 = 16,
        status_number: u32 = 24, expected_command: u32 = 28, command_max: u32 = 32, status: u16 = 36,
    }

    TextResponse = 0x24 {
        lun: u64 = 8, task_tag: u32 = 16, target_tag: u32 = 20, status_number: u32 = 24, expected_command: u32 = 28,
        command_max: u32 = 32,
    }

    DataIn = 0x25 {
        status: u8 = 3, lun: u64 = 8, task_tag: u32 = 16, target_tag: u32 = 20, status_number: u32 = 24,
        expected_command: u32 = 28, command_max: u32 = 32, data_number: u32 = 36, offset: u32 = 40, residual: u32 = 44,
    }

    LogoutResponse = 0x26 {
        response: u8 = 2, task_tag: u32 = 16, status_number: u32 = 24, expected_command: u32 = 28, command_max: u32 = 32,
        time_to_wait: u16 = 40, time_to_retain: u16 = 42,
    }

    /// Ready to transfer: asks for data of a command.
    ReadyToTransfer = 0x31 {
        lun: u64 = 8, task_tag: u32 = 16, target_tag: u32 = 20, status_number: u32 = 24, expected_command: u32 = 28,
        command_max: u32 = 32, request_number: u32 = 36, offset: u32 = 40, len: u32 = 44,
    }

    /// Something that the initiator did not ask about.
    Async = 0x32 {
        lun: u64 = 8, task_tag: u32 = 16, status_number: u32 = 24, expected_command: u32 = 28, command_max: u32 = 32,
        event: u8 = 36, vendor: u8 = 37, parameter_1: u16 = 38, parameter_2: u16 = 40, parameter_3: u16 = 42,
    }

    /// A PDU that is not obeyed; its header is the data.
    Reject = 0x3f {
        reason: u8 = 2, task_tag: u32 = 16, status_number: u32 = 24, expected_command: u32 = 28, command_max: u32 = 32,
        data_number: u32 = 36,
    }
}

/// Why a PDU is rejected (RFC 7143, 11.17.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RejectReason {
    DataDigest = 0x02,
    Snack = 0x03,
    Protocol = 0x04,
    NotSupported = 0x05,
    TooManyImmediate = 0x06,
    TaskInProgress = 0x07,
    InvalidField = 0x09,
}

/// Why a login is refused: class and detail (RFC 7143, 11.13.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoginStatus {
    Success = 0x0000,
    InitiatorError = 0x0200,
    AuthenticationFailure = 0x0201,
    AuthorizationFailure = 0x0202,
    NotFound = 0x0203,
    UnsupportedVersion = 0x0205,
    TooManyConnections = 0x0206,
    MissingParameter = 0x0207,
    CannotInclude = 0x0208,
    SessionType = 0x0209,
    NoSuchSession = 0x020a,
    TargetError = 0x0300,
    ServiceUnavailable = 0x0301,
    OutOfResources = 0x0302,
}

impl LoginStatus {
    /// For who runs the target: why a login was refused, and what to do if it should not be.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Success => "it was not",
            Self::InitiatorError => "it does not keep to the protocol of logins",
            Self::AuthenticationFailure => {
                "its CHAP name or secret is wrong, or it offered none: compare them with target.chap_user and the secret's file"
            }
            Self::AuthorizationFailure => "it is not among target.initiators in vtl.toml",
            Self::NotFound => "it asks for another target than this: let it discover, or give it the name in vtl.toml",
            Self::UnsupportedVersion => "it speaks another version of iSCSI",
            Self::TooManyConnections => "it wants more than one connection in its session: set it to one",
            Self::MissingParameter => "it left out its name, the target's, or a part of its proof",
            Self::CannotInclude => "it wants to take a connection over, which was not agreed upon: let it log in anew",
            Self::SessionType => "it wants a kind of session that there is not",
            Self::NoSuchSession => "it wants to go on with a session that is gone: let it log in anew",
            Self::TargetError => "this host has no random numbers for a challenge",
            Self::ServiceUnavailable => "its former session is still busy with a command: it will come again",
            Self::OutOfResources => "as many initiators are logged in as may be: log one out",
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    /// Two fields on one byte would lose one of them.
    #[test]
    fn fields_of_a_header_do_not_overlap() {
        for (name, fields) in FIELDS {
            let mut taken = [false; HEADER_LEN];
            taken[0] = true;
            taken[1] = true;
            taken[4..8].fill(true);
            for (field, at, len) in *fields {
                for byte in &mut taken[*at..at + len] {
                    assert!(!*byte, "{name}.{field}");
                    *byte = true;
                }
            }
        }
    }

    /// A SCSI Command as Linux sends it: READ(6) of 512 bytes from LUN 1.
    #[test]
    fn command_is_read_from_its_bytes() {
        let mut bytes = [0; HEADER_LEN];
        bytes[..16].copy_from_slice(&[0x01, 0xc1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        bytes[16..32].copy_from_slice(&[0, 0, 0, 7, 0, 0, 2, 0, 0, 0, 0, 9, 0, 0, 0, 3]);
        bytes[32..38].copy_from_slice(&[8, 0, 0, 2, 0, 0]);
        let header = Header(bytes);
        let command = Command::decode(&header);
        assert_eq!((header.opcode(), command.flags), (Command::OPCODE, FINAL | READ | 1));
        assert_eq!((command.lun, command.task_tag, command.expected_len), (1 << 48, 7, 512));
        assert_eq!((command.command_number, command.expected_status), (9, 3));
        assert_eq!(command.encode(), header);
    }

    #[test]
    fn lengths_have_three_bytes_and_words() {
        let mut header = NopOut::default().encode();
        header.set_data_len(0x01_02_03);
        header.set_ahs_len(8);
        assert_eq!((header.data_len(), header.ahs_len()), (0x01_02_03, 8));
        assert_eq!(header.0[4..8], [2, 1, 2, 3]);
    }

    #[test]
    fn numbers_wrap() {
        assert!(comes_before(0xffff_ffff, 0) && !comes_before(0, 0xffff_ffff) && !comes_before(5, 5));
    }
}
