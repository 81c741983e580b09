//! Opening a library: who it is, and where its elements are.

use super::ScsiChanger;
use crate::ChangerError;
use crate::hardware::OnWait;
use crate::hardware::line::Line;
use crate::hardware::timeouts::Timeouts;
use crate::scsi::command::{Form, PageControl};
use crate::scsi::element::Assignments;
use crate::scsi::inquiry::{self, DeviceType, Inquiry, page};
use crate::scsi::{Command, DataPhase, Transport};

impl<T: Transport> ScsiChanger<T> {
    /// Asks the device who it is and how many elements it has. `name` is how messages call it.
    ///
    /// # Errors
    /// [`ChangerError::Unusable`] if it is no library, or tells no elements; else it does not answer.
    pub fn open(transport: T, name: impl Into<String>) -> Result<Self, ChangerError> {
        Self::open_waiting(transport, name, Box::new(|_| {}))
    }

    /// The same; `on_wait` is told while the library is waited for, from the first command on.
    ///
    /// # Errors
    /// As [`ScsiChanger::open`].
    pub fn open_waiting(transport: T, name: impl Into<String>, on_wait: OnWait) -> Result<Self, ChangerError> {
        let mut line = Line::new(transport, name.into(), Timeouts::of_changer());
        line.set_on_wait(on_wait);
        let mut changer = Self {
            line,
            serial: None,
            assignments: Assignments {
                transport: (0, 0),
                storage: (0, 0),
                import_export: (0, 0),
                data_transfer: (0, 0),
            },
            elements: Vec::new(),
            findings: Vec::new(),
        };
        changer.identify()?;
        changer.assignments = changer.ask_assignments()?;
        Ok(changer)
    }

    pub(super) fn unusable(&self, reason: impl Into<String>) -> ChangerError {
        ChangerError::Unusable { library: self.line.name.clone(), reason: reason.into() }
    }

    fn identify(&mut self) -> Result<(), ChangerError> {
        let mut bytes = [0; 96];
        let command = Command::Inquiry { vital_product_data: None, allocation: bytes.len() as u16 };
        let moved = self.command("INQUIRY", &command, DataPhase::In(&mut bytes))?.moved.min(bytes.len());
        match Inquiry::of_bytes(&bytes[..moved]) {
            None => return Err(self.unusable("nothing answers there: look at its power and cable")),
            Some(inquiry) if inquiry.device_type != DeviceType::Changer as u8 => {
                let reason = format!(
                    "it is no library but a device of type {:02x}h: give the library's path",
                    inquiry.device_type
                );
                return Err(self.unusable(reason));
            }
            Some(_) => {}
        }
        let mut bytes = [0; 252];
        let command = Command::Inquiry { vital_product_data: Some(page::SERIAL), allocation: bytes.len() as u16 };
        // A library without a serial number is known by its path.
        if let Ok(done) = self.line.run(&command, DataPhase::In(&mut bytes)) {
            self.serial = inquiry::serial_of(&bytes[..done.moved.min(bytes.len())], page::SERIAL);
        }
        Ok(())
    }

    fn ask_assignments(&mut self) -> Result<Assignments, ChangerError> {
        let mut bytes = [0; 136];
        let command = Command::ModeSense {
            form: Form::Six,
            no_block_descriptor: true,
            control: PageControl::Current,
            page: Assignments::PAGE,
            subpage: 0,
            allocation: bytes.len() as u16,
        };
        let moved = self.command("MODE SENSE", &command, DataPhase::In(&mut bytes))?.moved.min(bytes.len());
        let descriptors_len = usize::from(bytes[3]);
        let page = bytes[..moved].get(4 + descriptors_len..).unwrap_or_default();
        let assignments = Assignments::of_bytes(page)
            .ok_or_else(|| self.unusable("it does not say where its elements are: update its firmware"))?;
        for (first, count) in [assignments.storage, assignments.import_export, assignments.data_transfer] {
            if first.checked_add(count).is_none() {
                return Err(self.unusable("the addresses of its elements overflow: update its firmware"));
            }
        }
        Ok(assignments)
    }
}
