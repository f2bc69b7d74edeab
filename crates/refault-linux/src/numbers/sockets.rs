//! Sockets: kinds, options, flags of messages, and the structures of a message.

crate::numbers::constants! {
    usize;
    SOL_SOCKET = 1, "Options of every socket.";
    SO_TYPE = 3, "Whether it is a stream, messages, or something else.";
    SO_RCVTIMEO = 20, "How long receiving waits at most.";
    SO_SNDTIMEO = 21, "How long sending waits at most.";
    SO_GET_FILTER = 26, "The filter of its messages.";
    SO_PROTOCOL = 38, "Its protocol.";
    SOCK_STREAM = 1, "Bytes in order, without bounds.";
    IPPROTO_IP = 0, "No protocol of its own.";
    IPPROTO_TCP = 6, "TCP.";
    IPPROTO_MPTCP = 262, "TCP by several ways.";
    SCM_RIGHTS = 1, "Descriptors come along with a message.";
    MSG_DONTWAIT = 0x40, "Fails with EAGAIN where it would wait.";
    MSG_EOR = 0x80, "A record ends here.";
    MSG_WAITALL = 0x100, "Waits until all is there.";
    MSG_NOSIGNAL = 0x4000, "No signal of a broken connection.";
    MSG_MORE = 0x8000, "More will be sent.";
    MSG_ZEROCOPY = 0x400_0000, "The kernel sends from the pages themselves, later.";
    MSG_CMSG_CLOEXEC = 0x4000_0000, "Descriptors that come along are closed where a program is executed.";
    SYS_SEND = 9, "Of socketcall: sends.";
    SYS_RECV = 10, "Of socketcall: receives.";
    SYS_SENDTO = 11, "Of socketcall: sends to an address.";
    SYS_RECVFROM = 12, "Of socketcall: receives, and says from whom.";
    SYS_SENDMSG = 16, "Of socketcall: sends a message.";
    SYS_RECVMSG = 17, "Of socketcall: receives a message.";
    SIOCGIFCONF = 0x8912, "Of ioctl: the addresses of this machine.";
    UIO_MAXIOV = 1024, "Vectors of a call, and messages of one, at most.";
}

crate::numbers::places! {
    "struct msghdr": {
        MSGHDR_NAME_BYTES = 8 "msg_namelen";
        MSGHDR_VECTORS = 16 "msg_iov";
        MSGHDR_CONTROL = 32 "msg_control";
        MSGHDR_CONTROL_BYTES = 40 "msg_controllen";
        MSGHDR_FLAGS = 48 "msg_flags";
    }
    "struct cmsghdr": {
        CMSGHDR_KIND = 8 "cmsg_level";
    }
    "struct ifconf": {
        IFCONF_BUFFER = 8 "ifc_ifcu";
    }
}

/// Bytes of `struct msghdr`.
pub const MSGHDR: usize = 56;
/// Bytes of `struct mmsghdr`: a header, the bytes that went, and four of nothing.
pub const MMSGHDR: usize = 64;
/// Bytes of `struct cmsghdr`, behind which the data lie.
pub const CMSGHDR: usize = 16;
/// Bytes of an address at most (`struct sockaddr_storage`).
pub const ADDRESS: usize = 128;
