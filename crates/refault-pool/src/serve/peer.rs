//! Who is at the other end of a connection, as far as places are shared out.
//!
//! For another program of this machine that is its user, by the kernel's word for the socket at the other end: all
//! users connect from the same address, and each may choose among 2²⁴ of them. For others it is the address, of version
//! 6 the network of 64 bits that one client has to itself. This says who has to share with whom, never who may do what.
//!
//! Cost: three system calls for each connection, however many sockets there are.
//!
//! ```
//! use std::net::{TcpListener, TcpStream};
//!
//! use refault_pool::serve::peer::Peer;
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let _client = TcpStream::connect(listener.local_addr()?)?;
//! let (stream, _) = listener.accept()?;
//! assert_eq!(Peer::of(&stream), Peer::User(rustix::process::geteuid().as_raw()));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};

use rustix::net::netlink::SOCK_DIAG;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// linux/sock_diag.h: ask for sockets of a family.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// linux/inet_diag.h: whatever the socket's cookie is.
const INET_DIAG_NOCOOKIE: [u8; 8] = [0xff; 8];
/// include/net/tcp_states.h. In other states the socket may have lost its user, and is said to be root's.
const TCP_ESTABLISHED: u8 = 1;
/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Bytes of a request: the header and `struct inet_diag_req_v2`.
const ASKED: usize = HEADER + 56;
/// Where `struct inet_diag_msg` has the state, the port at its other end and the user.
const STATE_AT: usize = HEADER + 1;
const PORT_AT: usize = HEADER + 6;
const USER_AT: usize = HEADER + 64;

/// A client, see the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// Programs of this user of this machine.
    User(u32),
    /// Programs at this address.
    Address(Ipv4Addr),
    /// Programs in this network, its first 64 bits.
    Network(u64),
}

impl Peer {
    /// Who is at the other end of a connection.
    pub fn of(stream: &TcpStream) -> Peer {
        let (Ok(ours), Ok(theirs)) = (stream.local_addr(), stream.peer_addr()) else {
            // It is gone already.
            return Peer::Address(Ipv4Addr::UNSPECIFIED);
        };
        let (ours, theirs) = (canonical(ours), canonical(theirs));
        match (user(theirs, ours), theirs.ip()) {
            (Ok(Some(user)), _) => Peer::User(user),
            (_, IpAddr::V4(address)) if address.is_loopback() => Peer::Address(Ipv4Addr::LOCALHOST),
            (_, IpAddr::V4(address)) => Peer::Address(address),
            (_, IpAddr::V6(address)) => Peer::Network((address.to_bits() >> 64) as u64),
        }
    }
}

/// Version 4 where it came through a socket of version 6.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The user of the socket of this machine that is bound to `of` and connected to `to`, if there is one.
fn user(of: SocketAddr, to: SocketAddr) -> io::Result<Option<u32>> {
    let kernel = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
    send(&kernel, &question(of, to), SendFlags::empty())?;
    let mut answer = [0u8; 512];
    // The kernel answers before it returns from the question.
    let (length, _) = recv(&kernel, &mut answer[..], RecvFlags::DONTWAIT)?;
    Ok(read(&answer[..length], to.port()))
}

/// The answer's user; none if it is an error (there is no such socket) or speaks of another socket.
fn read(answer: &[u8], to_port: u16) -> Option<u32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let state = *answer.get(STATE_AT)?;
    let port = u16::from_be_bytes(answer.get(PORT_AT..PORT_AT + 2)?.try_into().ok()?);
    let user = u32::from_ne_bytes(answer.get(USER_AT..USER_AT + 4)?.try_into().ok()?);
    (kind == SOCK_DIAG_BY_FAMILY && state == TCP_ESTABLISHED && port == to_port).then_some(user)
}

fn question(of: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let family = if of.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let address = |address: IpAddr| match address {
        IpAddr::V4(address) => [&address.octets()[..], &[0; 12]].concat(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let header = [
        &(ASKED as u32).to_ne_bytes()[..],
        &SOCK_DIAG_BY_FAMILY.to_ne_bytes(),
        &(libc::NLM_F_REQUEST as u16).to_ne_bytes(),
        &[0; 8], // number of the message, and who asks: the kernel knows
    ];
    let socket = [
        &[family.as_raw() as u8, libc::IPPROTO_TCP as u8, 0, 0][..], // no extensions
        &u32::MAX.to_ne_bytes(),                                     // in any state
        &of.port().to_be_bytes(),
        &to.port().to_be_bytes(),
        &address(of.ip()),
        &address(to.ip()),
        &[0; 4], // by any interface
        &INET_DIAG_NOCOOKIE,
    ];
    [header.concat(), socket.concat()].concat()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn met(listen: &str, connect: &str) -> Option<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind(listen).ok()?;
        let port = listener.local_addr().expect("it listens").port();
        let client = TcpStream::connect((connect, port)).expect("it listens");
        Some((client, listener.accept().expect("it came").0))
    }

    #[test]
    fn programs_of_this_machine_are_told_by_their_user_at_every_address() {
        let me = Peer::User(rustix::process::geteuid().as_raw());
        for (listen, connect) in
            [("127.0.0.1:0", "127.0.0.1"), ("0.0.0.0:0", "127.9.8.7"), ("[::]:0", "127.0.0.1"), ("[::1]:0", "::1")]
        {
            // A machine may be without version 6.
            let Some((_client, stream)) = met(listen, connect) else { continue };
            assert_eq!(Peer::of(&stream), me, "{listen} {connect}");
        }
    }

    #[test]
    fn a_socket_that_was_left_has_no_user_and_is_not_roots() {
        let (client, stream) = met("127.0.0.1:0", "127.0.0.1").expect("version 4");
        drop(client);
        assert_eq!(Peer::of(&stream), Peer::Address(Ipv4Addr::LOCALHOST));
    }

    #[test]
    fn answers_that_are_cut_or_of_another_socket_name_no_user() {
        let mut answer = vec![0; HEADER + 72];
        answer[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        answer[STATE_AT] = TCP_ESTABLISHED;
        answer[PORT_AT..PORT_AT + 2].copy_from_slice(&80u16.to_be_bytes());
        answer[USER_AT..USER_AT + 4].copy_from_slice(&7u32.to_ne_bytes());
        assert_eq!((read(&answer, 80), read(&answer, 81)), (Some(7), None));
        for length in 0..USER_AT + 4 {
            assert_eq!(read(&answer[..length], 80), None, "{length}");
        }
        answer[STATE_AT] = 2;
        assert_eq!(read(&answer, 80), None);
        answer[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        assert_eq!(read(&answer, 80), None);
    }
}
