//! Capture filters in libpcap's syntax (`port 3260 and host 10.0.0.1`), compiled and run by libpcap.
//!
//! A filter sees only the captured bytes of a frame: `len`, `greater` and `less` count those, because the `pcap` crate
//! passes no other length.

use ::pcap::{BpfProgram, Capture, Linktype};
use iscsitrace_wire::frame::LinkType;
use rustc_hash::FxHashMap;

use super::error::CaptureError;

/// One expression, compiled for each link type.
pub struct Filter {
    expression: String,
    /// None for a link type for which the expression is invalid: none of its packets match.
    programs: FxHashMap<LinkType, Option<BpfProgram>>,
}

impl Filter {
    /// Checks the expression by compiling it for Ethernet.
    ///
    /// # Errors
    /// libpcap's message about the expression.
    pub fn new(expression: &str) -> Result<Self, CaptureError> {
        let program = compile(expression, LinkType::ETHERNET)
            .map_err(|message| CaptureError::Filter { expression: expression.to_owned(), message })?;
        let programs = FxHashMap::from_iter([(LinkType::ETHERNET, Some(program))]);
        Ok(Self { expression: expression.to_owned(), programs })
    }

    /// Whether a frame matches.
    #[inline]
    pub fn matches(&mut self, link_type: LinkType, data: &[u8]) -> bool {
        let program = self.programs.entry(link_type).or_insert_with(|| compile(&self.expression, link_type).ok());
        program.as_ref().is_some_and(|program| program.filter(data))
    }
}

fn compile(expression: &str, link_type: LinkType) -> Result<BpfProgram, String> {
    // libpcap compiles for DLT_ values, which equal the LINKTYPE_ values of files except for raw IP.
    let data_link_type = match link_type {
        LinkType::RAW | LinkType(14) => Linktype(12),
        LinkType(value) => Linktype(value.into()),
    };
    Capture::dead(data_link_type).and_then(|capture| capture.compile(expression, true)).map_err(|error| match error {
        ::pcap::Error::PcapError(message) => message,
        error => error.to_string(),
    })
}
