//! Capture filters on every link type.

use iscsitrace_wire::frame::LinkType;

use super::*;

/// Ethernet, IPv4, TCP from port 3260.
fn iscsi_frame() -> Vec<u8> {
    let mut frame = vec![0; 54];
    frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6]);
    frame[34..38].copy_from_slice(&[0x0c, 0xbc, 0x80, 0]);
    frame[46] = 0x50;
    frame
}

#[test]
fn filters_match_on_each_link_type() {
    let frame = iscsi_frame();
    let cooked = [&[0; 14][..], &[8, 0], &frame[14..]].concat();
    let mut filter = Filter::new("port 3260").unwrap();
    assert!(filter.matches(LinkType::ETHERNET, &frame));
    assert!(filter.matches(LinkType::RAW, &frame[14..]));
    assert!(filter.matches(LinkType::LINUX_SLL, &cooked));
    assert!(!filter.matches(LinkType::RAW, &frame));
    assert!(!filter.matches(LinkType::ETHERNET, &frame[..20]), "too short to tell is no match");
    assert!(!filter.matches(LinkType::ETHERNET, b""));
    let mut other = Filter::new("tcp port 860").unwrap();
    assert!(!other.matches(LinkType::ETHERNET, &frame));
}

#[test]
fn an_invalid_filter_reports_libpcaps_message() {
    for expression in ["port", "port 3260 and", "nonsense \0", "port 99999"] {
        let error = Filter::new(expression).err().unwrap().to_string();
        assert!(error.starts_with(&format!("capture filter '{expression}': ")), "{error}");
        assert!(!error.contains('\n'));
    }
}
