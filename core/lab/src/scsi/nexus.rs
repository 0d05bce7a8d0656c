//! Initiator ports, and their I_T nexuses with the one target port.

use std::collections::BTreeMap;

/// An initiator port, by its iSCSI name and the ISID of the session (RFC 7143, section 4.4.2).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InitiatorPort {
    /// InitiatorName.
    pub initiator_name: String,
    /// Initiator session ID.
    pub isid: [u8; 6],
}

/// An I_T nexus. An initiator port keeps its number while it has a persistent registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nexus(pub(super) u32);

impl InitiatorPort {
    /// TransportID of an iSCSI initiator port: name, separator, ISID (SPC-4).
    pub(super) fn encode_transport_id(&self, out: &mut Vec<u8>) {
        let mut name = self.initiator_name.clone();
        name.push_str(",i,0x");
        for byte in self.isid {
            name.push_str(&format!("{byte:02x}"));
        }
        let mut name = name.into_bytes();
        // Ends with a null and fills a multiple of 4 bytes, 20 at least.
        name.push(0);
        name.resize(name.len().next_multiple_of(4).max(20), 0);
        // An iSCSI name has at most 223 bytes: the login refuses longer ones.
        let length = u16::try_from(name.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&[0x45, 0]);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&name);
    }
}

/// Established nexuses, and lost ones that are remembered.
#[derive(Debug, Default)]
pub(super) struct Nexuses {
    known: BTreeMap<Nexus, (InitiatorPort, bool)>,
    next: u32,
}

impl Nexuses {
    /// Establishes the nexus of a port.
    pub(super) fn establish(&mut self, port: InitiatorPort) -> Nexus {
        for (nexus, (known, is_established)) in &mut self.known {
            if *known == port {
                *is_established = true;
                return *nexus;
            }
        }
        let nexus = Nexus(self.next);
        self.next = self.next.wrapping_add(1);
        self.known.insert(nexus, (port, true));
        nexus
    }

    /// Loses a nexus; its port is remembered until `forget_unless`.
    pub(super) fn lose(&mut self, nexus: Nexus) {
        if let Some((_, is_established)) = self.known.get_mut(&nexus) {
            *is_established = false;
        }
    }

    /// Forgets lost nexuses for which the function returns false.
    pub(super) fn forget_unless(&mut self, is_remembered: impl Fn(Nexus) -> bool) {
        self.known.retain(|nexus, (_, is_established)| *is_established || is_remembered(*nexus));
    }

    /// The established nexuses.
    pub(super) fn established(&self) -> impl Iterator<Item = Nexus> + '_ {
        self.known.iter().filter(|(_, (_, is_established))| *is_established).map(|(nexus, _)| *nexus)
    }

    /// The initiator port of a nexus.
    pub(super) fn port(&self, nexus: Nexus) -> Option<&InitiatorPort> {
        self.known.get(&nexus).map(|(port, _)| port)
    }
}

#[cfg(test)]
mod tests {
    use super::{InitiatorPort, Nexuses};

    fn port(isid: u8) -> InitiatorPort {
        InitiatorPort { initiator_name: "iqn.2025-01.org.example:a".into(), isid: [0x40, 0, 0, 1, 0, isid] }
    }

    /// SPC-4.
    #[test]
    fn transport_id_is_that_of_spc() {
        let mut bytes = Vec::new();
        port(0x2b).encode_transport_id(&mut bytes);
        assert_eq!(&bytes[..4], [0x45, 0, 0, 44]);
        assert_eq!(&bytes[4..], b"iqn.2025-01.org.example:a,i,0x40000001002b\0\0");
    }

    #[test]
    fn a_port_keeps_its_number_while_it_is_registered() {
        let mut nexuses = Nexuses::default();
        let first = nexuses.establish(port(1));
        let second = nexuses.establish(port(2));
        assert_ne!(first, second);
        nexuses.lose(first);
        nexuses.lose(second);
        nexuses.forget_unless(|nexus| nexus == first);
        assert_eq!(nexuses.established().count(), 0);
        assert_eq!(nexuses.port(second), None);
        assert_eq!(nexuses.establish(port(1)), first);
        assert_ne!(nexuses.establish(port(2)), second);
    }
}
