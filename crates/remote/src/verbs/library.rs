//! `libibverbs.so.1`, opened the first time that somebody wants it.
//!
//! It is never closed: drivers of devices stay loaded with it, and have threads of their own.
#![allow(unsafe_code, reason = "opens a library and takes its functions by their names")]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    sync::OnceLock,
};

use libloading::Library as Opened;

use super::abi::{
    CompletionChannel, CompletionQueue, Context, Device, DeviceAttributes, Gid, MemoryRegion,
    PortAttributes, ProtectionDomain, QueuePair, QueuePairAttributes, QueuePairInit,
};
use crate::error::{Error, Result};

/// The name of the library of this interface, which distributions have kept since 2006.
const FILE: &str = "libibverbs.so.1";

/// Functions of the library, by the names of its manual.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// The library's functions.
        pub(super) struct Library {
            $(
                // SAFETY: a type alone: each call keeps the promises of the function's manual.
                pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,
            )*
        }

        impl Library {
            fn open() -> Result<Self, String> {
                // SAFETY: what runs when the library is loaded are its own constructors, and it is
                // the system's library of that name.
                let opened = unsafe { Opened::new(FILE) }
                    .map_err(|error| format!("{FILE} cannot be opened: {error}"))?;
                let library = Self {
                    $($name: {
                        // SAFETY: a type alone.
                        type Function = unsafe extern "C" fn($($argument),*) -> $result;
                        let name = concat!("ibv_", stringify!($name));
                        // SAFETY: the function of that name in the interface `IBVERBS_1.1` takes
                        // and returns what its manual says, which stands below.
                        let symbol = unsafe { opened.get::<Function>(name) };
                        *symbol.map_err(|error| format!("{FILE} has no {name}: {error}"))?
                    },)*
                };
                // The functions are there for as long as the process is.
                std::mem::forget(opened);
                Ok(library)
            }
        }
    };
}

functions! {
    get_device_list: fn(*mut c_int) -> *mut *mut Device;
    free_device_list: fn(*mut *mut Device) -> ();
    get_device_name: fn(*mut Device) -> *const c_char;
    open_device: fn(*mut Device) -> *mut Context;
    close_device: fn(*mut Context) -> c_int;
    query_device: fn(*mut Context, *mut DeviceAttributes) -> c_int;
    query_port: fn(*mut Context, u8, *mut PortAttributes) -> c_int;
    query_gid: fn(*mut Context, u8, c_int, *mut Gid) -> c_int;
    alloc_pd: fn(*mut Context) -> *mut ProtectionDomain;
    dealloc_pd: fn(*mut ProtectionDomain) -> c_int;
    reg_mr: fn(*mut ProtectionDomain, *mut c_void, usize, c_int) -> *mut MemoryRegion;
    dereg_mr: fn(*mut MemoryRegion) -> c_int;
    create_comp_channel: fn(*mut Context) -> *mut CompletionChannel;
    destroy_comp_channel: fn(*mut CompletionChannel) -> c_int;
    create_cq:
        fn(*mut Context, c_int, *mut c_void, *mut CompletionChannel, c_int) -> *mut CompletionQueue;
    destroy_cq: fn(*mut CompletionQueue) -> c_int;
    get_cq_event:
        fn(*mut CompletionChannel, *mut *mut CompletionQueue, *mut *mut c_void) -> c_int;
    ack_cq_events: fn(*mut CompletionQueue, u32) -> ();
    create_qp: fn(*mut ProtectionDomain, *mut QueuePairInit) -> *mut QueuePair;
    modify_qp: fn(*mut QueuePair, *mut QueuePairAttributes, c_int) -> c_int;
    destroy_qp: fn(*mut QueuePair) -> c_int;
    wc_status_str: fn(u32) -> *const c_char;
}

impl Library {
    /// The library.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] that names it if it is not installed, or lacks a function.
    pub(super) fn get() -> Result<&'static Self> {
        static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
        LIBRARY.get_or_init(Self::open).as_ref().map_err(|what| {
            let hint = "RDMA needs rdma-core (Debian: libibverbs1 and ibverbs-providers)";
            Error::Unsupported(format!("{what}; {hint}").into())
        })
    }

    /// What a status of a completion is called.
    pub(super) fn status_text(&self, status: u32) -> String {
        // SAFETY: the function takes any number, and returns a text that is never freed.
        let text = unsafe { CStr::from_ptr((self.wc_status_str)(status)) };
        text.to_string_lossy().into_owned()
    }
}
