//! Which addresses belong to the public internet. All others lead to this machine, to its network, or to nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns `true` if an address is one of the public internet, whatever its spelling.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

#[expect(clippy::match_same_arms, reason = "each arm has a reason of its own")]
fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, d] = address.octets();
    let is_special = match (a, b, c) {
        // This machine, and the network that it is on (RFC 1122, RFC 1918, RFC 3927).
        (0 | 10 | 127, ..) | (169, 254, _) | (172, 16..=31, _) | (192, 168, _) => true,
        // Behind the NAT of a provider, where clouds have services of their own, too (RFC 6598).
        (100, 64..=127, _) => true,
        // Protocols, documentation, benchmarks, the old relay of 6to4 (RFC 6890).
        (192, 0, 0 | 2) | (192, 88, 99) | (198, 18..=19, _) | (198, 51, 100) | (203, 0, 113) => {
            true
        }
        // Multicast, reserved, broadcast.
        _ => a >= 224,
    };
    // The metadata service of Azure.
    !is_special && [a, b, c, d] != [168, 63, 129, 16]
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, ..] = address.segments();
    match (a, b) {
        // 6to4 and NAT64 hold an address of IPv4.
        (0x2002, _) => is_public_v4(v4_of(b, c)),
        (0x64, 0xff9b) => {
            let [_, _, zeros @ .., high, low] = address.segments();
            zeros == [0; 4] && is_public_v4(v4_of(high, low))
        }
        // Teredo and the other protocols of 2001::/23, and documentation.
        (0x2001, 0..=0x1ff | 0xdb8) | (0x3fff, 0..=0xfff) => false,
        // 2000::/3 is all that is given out.
        _ => a & 0xe000 == 0x2000,
    }
}

fn v4_of(high: u16, low: u16) -> Ipv4Addr {
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    Ipv4Addr::new(a, b, c, d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_to_this_machine_or_its_network_is_not_public() {
        for text in [
            "127.0.0.1",
            "127.255.0.3",
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "192.0.2.1",
            "198.18.0.1",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:10.0.0.1",
            "::127.0.0.1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::8.8.8.8",
            "64:ff9b::1:0:8.8.8.8",
            "64:ff9b::1:8.8.8.8",
            "2001::1",
            "2001:db8::1",
            "100::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn the_rest_is() {
        for text in [
            "8.8.8.8",
            "1.1.1.1",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "192.169.0.1",
            "223.255.255.254",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2606:4700::1111",
            "2a00:1450::200e",
            "2002:808:808::1",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }
}
