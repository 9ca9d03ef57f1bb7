//! What `libibverbs.so.1` takes and gives, as it lies in memory.
//!
//! Of each structure there is as much as this crate touches; the rest is room. All of it is of the
//! library's stable interface `IBVERBS_1.1`: `golden_offsets` holds it against the header of the
//! distribution wherever that can be had. No field comes after one whose size depends on the C
//! library, but for those of a context that are not touched; so x86-64 and aarch64 agree.
//!
//! Nothing here does anything.
#![allow(unsafe_code, reason = "types of C functions")]

use std::ffi::{c_char, c_int, c_void};

/// A device, of which only the library knows more.
#[repr(C)]
pub(super) struct Device {
    _private: [u8; 0],
}

/// A protection domain, likewise.
#[repr(C)]
pub(super) struct ProtectionDomain {
    _private: [u8; 0],
}

/// `struct ibv_context`: a device that was opened.
#[repr(C)]
pub(super) struct Context {
    device: *mut Device,
    pub(super) ops: Operations,
}

// SAFETY: a type alone: each call keeps the promises of `man ibv_poll_cq`.
type Poll = unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut WorkCompletion) -> c_int;
// SAFETY: a type alone: each call keeps the promises of `man ibv_req_notify_cq`.
type Notify = unsafe extern "C" fn(*mut CompletionQueue, c_int) -> c_int;
// SAFETY: a type alone: each call keeps the promises of `man ibv_post_send`.
type PostSend =
    unsafe extern "C" fn(*mut QueuePair, *mut SendWorkRequest, *mut *mut SendWorkRequest) -> c_int;
// SAFETY: a type alone: each call keeps the promises of `man ibv_post_recv`.
type PostReceive = unsafe extern "C" fn(
    *mut QueuePair,
    *mut ReceiveWorkRequest,
    *mut *mut ReceiveWorkRequest,
) -> c_int;

/// `struct ibv_context_ops`: what the header's inline functions call.
#[repr(C)]
pub(super) struct Operations {
    _before_poll: [*mut c_void; 11],
    pub(super) poll_cq: Poll,
    pub(super) req_notify_cq: Notify,
    _before_post: [*mut c_void; 12],
    pub(super) post_send: PostSend,
    pub(super) post_recv: PostReceive,
}

/// `struct ibv_comp_channel`: where events of queues arrive.
#[repr(C)]
pub(super) struct CompletionChannel {
    context: *mut Context,
    pub(super) fd: c_int,
}

/// `struct ibv_cq`: a queue of completions.
#[repr(C)]
pub(super) struct CompletionQueue {
    pub(super) context: *mut Context,
}

/// `struct ibv_qp`: one end of a connection.
#[repr(C)]
pub(super) struct QueuePair {
    pub(super) context: *mut Context,
    _handles: [*mut c_void; 5],
    handle: u32,
    pub(super) number: u32,
}

/// `struct ibv_mr`: memory that a device may reach.
#[repr(C)]
pub(super) struct MemoryRegion {
    context: *mut Context,
    domain: *mut ProtectionDomain,
    start: *mut c_void,
    length: usize,
    handle: u32,
    pub(super) local_key: u32,
    pub(super) remote_key: u32,
}

/// `struct ibv_sge`: a piece of memory of this side.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct ScatterGather {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) local_key: u32,
}

/// `struct ibv_send_wr`: something to send, or to read.
#[repr(C)]
pub(super) struct SendWorkRequest {
    pub(super) id: u64,
    pub(super) next: *mut SendWorkRequest,
    pub(super) scatter_gather: *mut ScatterGather,
    pub(super) scatter_gather_count: c_int,
    pub(super) opcode: u32,
    pub(super) flags: u32,
    immediate: u32,
    /// `wr.rdma.remote_addr`.
    pub(super) remote_address: u64,
    /// `wr.rdma.rkey`.
    pub(super) remote_key: u32,
    _rest: [u32; 19],
}

impl SendWorkRequest {
    /// A read of a piece of the peer's memory, which begins there and is reached by this key.
    /// The id is that of its completion, and the next request follows it.
    pub(super) fn read(
        (id, next): (u64, *mut Self),
        entry: *mut ScatterGather,
        (remote_address, remote_key): (u64, u32),
        flags: u32,
    ) -> Self {
        Self {
            id,
            next,
            scatter_gather: entry,
            scatter_gather_count: 1,
            opcode: opcode::READ,
            flags,
            immediate: 0,
            remote_address,
            remote_key,
            _rest: [0; 19],
        }
    }

    /// A message of what the entry names, or an empty one without an entry, with a completion.
    pub(super) fn send(entry: *mut ScatterGather, flags: u32) -> Self {
        Self {
            id: 0,
            next: std::ptr::null_mut(),
            scatter_gather: entry,
            scatter_gather_count: c_int::from(!entry.is_null()),
            opcode: opcode::SEND,
            flags: flags | flag::SIGNALED,
            immediate: 0,
            remote_address: 0,
            remote_key: 0,
            _rest: [0; 19],
        }
    }
}

/// `struct ibv_recv_wr`: room for what is received.
#[repr(C)]
pub(super) struct ReceiveWorkRequest {
    pub(super) id: u64,
    pub(super) next: *mut ReceiveWorkRequest,
    pub(super) scatter_gather: *mut ScatterGather,
    pub(super) scatter_gather_count: c_int,
}

/// `struct ibv_wc`: what became of a request.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorkCompletion {
    pub(super) id: u64,
    pub(super) status: u32,
    pub(super) opcode: u32,
    vendor_error: u32,
    pub(super) byte_len: u32,
    immediate: u32,
    pub(super) pair: u32,
    source_pair: u32,
    flags: u32,
    _rest: [u32; 2],
}

/// `struct ibv_qp_cap`: how much a pair holds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueuePairLimits {
    pub(super) sends: u32,
    pub(super) receives: u32,
    pub(super) send_entries: u32,
    pub(super) receive_entries: u32,
    pub(super) inline_bytes: u32,
}

/// `struct ibv_qp_init_attr`: what a new pair is.
#[repr(C)]
pub(super) struct QueuePairInit {
    pub(super) user: *mut c_void,
    pub(super) send_queue: *mut CompletionQueue,
    pub(super) receive_queue: *mut CompletionQueue,
    pub(super) shared_receives: *mut c_void,
    pub(super) limits: QueuePairLimits,
    pub(super) kind: u32,
    pub(super) signals_all: c_int,
}

/// `union ibv_gid`: a port, as other machines name it.
pub(super) type Gid = [u8; 16];

/// `struct ibv_ah_attr`, with the `struct ibv_global_route` that it begins with: the way to a port.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AddressVector {
    /// Aligned as the union is in C.
    pub(super) gid: [u64; 2],
    pub(super) flow_label: u32,
    pub(super) gid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) lid: u16,
    pub(super) service_level: u8,
    pub(super) path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port: u8,
}

/// `struct ibv_qp_attr`: what a pair becomes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueuePairAttributes {
    pub(super) state: u32,
    pub(super) current: u32,
    pub(super) path_mtu: u32,
    pub(super) migration: u32,
    pub(super) key: u32,
    pub(super) receive_sequence: u32,
    pub(super) send_sequence: u32,
    pub(super) peer: u32,
    pub(super) access: u32,
    pub(super) capacities: QueuePairLimits,
    pub(super) address: AddressVector,
    pub(super) alternative: AddressVector,
    pub(super) key_index: u16,
    pub(super) alternative_key_index: u16,
    pub(super) notifies: u8,
    pub(super) is_draining: u8,
    pub(super) reads_out: u8,
    pub(super) reads_in: u8,
    pub(super) receiver_timer: u8,
    pub(super) port: u8,
    pub(super) timeout: u8,
    pub(super) retries: u8,
    pub(super) receiver_retries: u8,
    pub(super) alternative_port: u8,
    pub(super) alternative_timeout: u8,
    pub(super) rate_limit: u32,
}

/// `struct ibv_port_attr`: what a port is. The exported function fills a prefix of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PortAttributes {
    pub(super) state: u32,
    max_mtu: u32,
    pub(super) active_mtu: u32,
    pub(super) gids: c_int,
    capabilities: u32,
    pub(super) message_bytes_max: u32,
    bad_keys: u32,
    key_violations: u32,
    keys: u16,
    pub(super) lid: u16,
    manager_lid: u16,
    _numbers: [u8; 8],
    pub(super) link_layer: u8,
    flags: u8,
    capabilities2: u16,
    /// Room for what later versions have added.
    _later: [u32; 8],
}

/// `struct ibv_device_attr`: what a device can do.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceAttributes {
    firmware: [c_char; 64],
    _identities: [u64; 4],
    _vendor: [u32; 3],
    pub(super) pairs: c_int,
    pub(super) requests: c_int,
    capabilities: u32,
    _pieces: [c_int; 3],
    pub(super) completions: c_int,
    _memories: [c_int; 2],
    /// Reads under way at once that a pair answers.
    pub(super) reads_in: c_int,
    _contexts: [c_int; 2],
    /// Reads under way at once that a pair begins.
    pub(super) reads_out: c_int,
    _rest: [u32; 18],
}

impl Default for DeviceAttributes {
    fn default() -> Self {
        Self {
            firmware: [0; 64],
            _identities: [0; 4],
            _vendor: [0; 3],
            pairs: 0,
            requests: 0,
            capabilities: 0,
            _pieces: [0; 3],
            completions: 0,
            _memories: [0; 2],
            reads_in: 0,
            _contexts: [0; 2],
            reads_out: 0,
            _rest: [0; 18],
        }
    }
}

/// `IBV_QPT_RC`: connected, and nothing lost.
pub(super) const RELIABLE_CONNECTED: u32 = 2;

/// `enum ibv_qp_state`.
pub(super) mod state {
    pub(in super::super) const INIT: u32 = 1;
    pub(in super::super) const READY_TO_RECEIVE: u32 = 2;
    pub(in super::super) const READY_TO_SEND: u32 = 3;
    pub(in super::super) const ERROR: u32 = 6;
}

/// `enum ibv_qp_attr_mask`: which fields of a [`QueuePairAttributes`] count.
pub(super) mod mask {
    pub(in super::super) const STATE: c_int = 1;
    pub(in super::super) const ACCESS: c_int = 1 << 3;
    pub(in super::super) const KEY_INDEX: c_int = 1 << 4;
    pub(in super::super) const PORT: c_int = 1 << 5;
    pub(in super::super) const ADDRESS: c_int = 1 << 7;
    pub(in super::super) const PATH_MTU: c_int = 1 << 8;
    pub(in super::super) const TIMEOUT: c_int = 1 << 9;
    pub(in super::super) const RETRIES: c_int = 1 << 10;
    pub(in super::super) const RECEIVER_RETRIES: c_int = 1 << 11;
    pub(in super::super) const RECEIVE_SEQUENCE: c_int = 1 << 12;
    pub(in super::super) const READS_OUT: c_int = 1 << 13;
    pub(in super::super) const RECEIVER_TIMER: c_int = 1 << 15;
    pub(in super::super) const SEND_SEQUENCE: c_int = 1 << 16;
    pub(in super::super) const READS_IN: c_int = 1 << 17;
    pub(in super::super) const PEER: c_int = 1 << 20;

    use std::ffi::c_int;
}

/// `enum ibv_access_flags`.
pub(super) mod access {
    use std::ffi::c_int;

    pub(in super::super) const LOCAL_WRITE: c_int = 1;
    pub(in super::super) const REMOTE_READ: c_int = 1 << 2;
}

/// `enum ibv_wr_opcode`.
pub(super) mod opcode {
    pub(in super::super) const SEND: u32 = 2;
    pub(in super::super) const READ: u32 = 4;
}

/// `enum ibv_send_flags`.
pub(super) mod flag {
    /// Has a completion.
    pub(in super::super) const SIGNALED: u32 = 1 << 1;
    /// Is sent as it is when the request is posted.
    pub(in super::super) const INLINE: u32 = 1 << 3;
}

/// `IBV_WC_WR_FLUSH_ERR`: the status of a request that ended because its pair did.
pub(super) const FLUSHED: u32 = 5;
/// `IBV_PORT_ACTIVE`.
pub(super) const PORT_ACTIVE: u32 = 4;
/// `IBV_LINK_LAYER_ETHERNET`.
pub(super) const ETHERNET: u8 = 2;

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, fs, mem::offset_of};

    use super::*;

    /// What rdma-core 44 says of the structures on x86-64, by the names of its header. The program
    /// of `cargo xtask rdma` prints the same lines out of the header of the distribution.
    const GOLDEN: &str = include_str!("offsets.txt");

    macro_rules! offsets {
        ($($name:literal: $structure:ty { $($field:literal: $path:ident),* $(,)? })*) => {
            vec![$(
                ($name, size_of::<$structure>()),
                $((concat!($name, ".", $field), offset_of!($structure, $path)),)*
            )*]
        };
    }

    /// What requests and completions are made of.
    fn requests() -> Vec<(&'static str, usize)> {
        offsets! {
            "ibv_sge": ScatterGather {
                "addr": address,
                "length": length,
                "lkey": local_key,
            }
            "ibv_send_wr": SendWorkRequest {
                "wr_id": id,
                "next": next,
                "sg_list": scatter_gather,
                "num_sge": scatter_gather_count,
                "opcode": opcode,
                "send_flags": flags,
                "wr.rdma.remote_addr": remote_address,
                "wr.rdma.rkey": remote_key,
            }
            "ibv_recv_wr": ReceiveWorkRequest {
                "wr_id": id,
                "next": next,
                "sg_list": scatter_gather,
                "num_sge": scatter_gather_count,
            }
            "ibv_wc": WorkCompletion {
                "wr_id": id,
                "status": status,
                "opcode": opcode,
                "byte_len": byte_len,
                "qp_num": pair,
            }
        }
    }

    /// What connections are made of.
    fn connections() -> Vec<(&'static str, usize)> {
        offsets! {
            "ibv_qp_cap": QueuePairLimits {
                "max_send_wr": sends,
                "max_recv_wr": receives,
                "max_send_sge": send_entries,
                "max_recv_sge": receive_entries,
                "max_inline_data": inline_bytes,
            }
            "ibv_qp_init_attr": QueuePairInit {
                "qp_context": user,
                "send_cq": send_queue,
                "recv_cq": receive_queue,
                "srq": shared_receives,
                "cap": limits,
                "qp_type": kind,
                "sq_sig_all": signals_all,
            }
            "ibv_ah_attr": AddressVector {
                "grh.dgid": gid,
                "grh.flow_label": flow_label,
                "grh.sgid_index": gid_index,
                "grh.hop_limit": hop_limit,
                "grh.traffic_class": traffic_class,
                "dlid": lid,
                "sl": service_level,
                "src_path_bits": path_bits,
                "static_rate": static_rate,
                "is_global": is_global,
                "port_num": port,
            }
            "ibv_qp_attr": QueuePairAttributes {
                "qp_state": state,
                "path_mtu": path_mtu,
                "rq_psn": receive_sequence,
                "sq_psn": send_sequence,
                "dest_qp_num": peer,
                "qp_access_flags": access,
                "ah_attr": address,
                "pkey_index": key_index,
                "max_rd_atomic": reads_out,
                "max_dest_rd_atomic": reads_in,
                "min_rnr_timer": receiver_timer,
                "port_num": port,
                "timeout": timeout,
                "retry_cnt": retries,
                "rnr_retry": receiver_retries,
            }
            "ibv_device_attr": DeviceAttributes {
                "max_qp": pairs,
                "max_qp_wr": requests,
                "max_cqe": completions,
                "max_qp_rd_atom": reads_in,
                "max_qp_init_rd_atom": reads_out,
            }
        }
    }

    /// Offsets in structures that are larger in C than what is touched of them.
    fn prefixes() -> Vec<(&'static str, usize)> {
        vec![
            ("ibv_context.ops", offset_of!(Context, ops)),
            ("ibv_context.ops.poll_cq", offset_of!(Context, ops.poll_cq)),
            ("ibv_context.ops.req_notify_cq", offset_of!(Context, ops.req_notify_cq)),
            ("ibv_context.ops.post_send", offset_of!(Context, ops.post_send)),
            ("ibv_context.ops.post_recv", offset_of!(Context, ops.post_recv)),
            ("ibv_comp_channel.fd", offset_of!(CompletionChannel, fd)),
            ("ibv_cq.context", offset_of!(CompletionQueue, context)),
            ("ibv_qp.context", offset_of!(QueuePair, context)),
            ("ibv_qp.qp_num", offset_of!(QueuePair, number)),
            ("ibv_mr.lkey", offset_of!(MemoryRegion, local_key)),
            ("ibv_mr.rkey", offset_of!(MemoryRegion, remote_key)),
            ("ibv_port_attr.state", offset_of!(PortAttributes, state)),
            ("ibv_port_attr.active_mtu", offset_of!(PortAttributes, active_mtu)),
            ("ibv_port_attr.gid_tbl_len", offset_of!(PortAttributes, gids)),
            ("ibv_port_attr.max_msg_sz", offset_of!(PortAttributes, message_bytes_max)),
            ("ibv_port_attr.lid", offset_of!(PortAttributes, lid)),
            ("ibv_port_attr.link_layer", offset_of!(PortAttributes, link_layer)),
        ]
    }

    fn check(text: &str) {
        let said: HashMap<&str, usize> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, number)| (name, number.parse().unwrap()))
            .collect();
        let ours: HashMap<&str, usize> =
            requests().into_iter().chain(connections()).chain(prefixes()).collect();
        assert_eq!(ours.len(), said.len(), "other structures than are named");
        for (name, offset) in ours {
            assert_eq!(said.get(name), Some(&offset), "{name}");
        }
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn golden_offsets() {
        check(GOLDEN);
        // What a program printed out of the header that is here.
        if let Some(path) = std::env::var_os("RHUMB_VERBS_OFFSETS") {
            check(&fs::read_to_string(path).unwrap());
        }
        // Fuller than the header's, so that a later library has room for what it adds.
        assert!(size_of::<PortAttributes>() > 52);
    }
}
