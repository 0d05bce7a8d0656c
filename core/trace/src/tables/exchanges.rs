//! Requests and responses that are no SCSI commands, and single PDUs.

use super::declaration::table;

table! {
    /// one Login Request and its Login Response
    Logins Login "logins" {
        /// the connection
        connection: u32;
        /// completion of the request
        request_ns: i64 [ns] = null;
        /// completion of the response
        response_ns: i64 [ns] = null;
        /// frame of the request
        request_frame: u64 = null;
        /// frame of the response
        response_frame: u64 = null;
        /// CSG of the request
        current_stage: u8 = null, "RFC 7143 section 11.12.3";
        /// NSG of the request (valid with T)
        next_stage: u8 = null, "RFC 7143 section 11.12.3";
        /// T bit of the response
        is_transit: bool;
        /// Status-Class
        status_class: u8 = null, "RFC 7143 section 11.13.5";
        /// Status-Detail
        status_detail: u8 = null, "RFC 7143 section 11.13.5";
        /// meaning of class and detail
        status_text: String = null;
    }
}

table! {
    /// one Task Management Function Request and its response
    TaskManagements TaskManagement "task_management" {
        /// the connection
        connection: u32;
        /// completion of the request
        request_ns: i64 [ns] = null;
        /// completion of the response
        response_ns: i64 [ns] = null;
        /// frame of the request
        request_frame: u64 = null;
        /// frame of the response
        response_frame: u64 = null;
        /// function
        function: u8, "RFC 7143 section 11.5.1";
        /// name of the function
        function_text: String;
        /// Initiator Task Tag of the request
        initiator_task_tag: u32;
        /// Referenced Task Tag: the task that it refers to
        referenced_task_tag: u32;
        /// row of that task's command in cycles
        referenced_cycle: u32(cycle) = null;
        /// logical unit
        lun: u64 = null;
        /// response (255, function rejected, also stands for null)
        response: u8 = null, "RFC 7143 section 11.6.1";
        /// meaning of the response
        response_text: String = null;
    }
}

table! {
    /// one NOP-Out or NOP-In and its answer, or a NOP that needs no answer
    Nops Nop "nops" {
        /// the connection
        connection: u32;
        /// completion of the request
        request_ns: i64 [ns] = null;
        /// completion of the response
        response_ns: i64 [ns] = null;
        /// frame of the request
        request_frame: u64 = null;
        /// frame of the response
        response_frame: u64 = null;
        /// whether the initiator sent it first (NOP-Out)
        is_from_initiator: bool;
        /// whether it requests an answer
        is_ping: bool;
        /// tag of a NOP-Out that requests an answer
        initiator_task_tag: u32 = null;
        /// tag of a NOP-In that requests an answer
        target_transfer_tag: u32 = null;
    }
}

table! {
    /// one Text Request and its Text Response
    Texts TextRow "texts" {
        /// the connection
        connection: u32;
        /// completion of the request
        request_ns: i64 [ns] = null;
        /// completion of the response
        response_ns: i64 [ns] = null;
        /// frame of the request
        request_frame: u64 = null;
        /// frame of the response
        response_frame: u64 = null;
        /// Initiator Task Tag
        initiator_task_tag: u32;
        /// keys of the request, NUL shown as a space
        request_text: String;
        /// keys of the response, NUL shown as a space
        response_text: String;
    }
}

table! {
    /// one Logout Request and its Logout Response
    Logouts Logout "logouts" {
        /// the connection
        connection: u32;
        /// completion of the request
        request_ns: i64 [ns] = null;
        /// completion of the response
        response_ns: i64 [ns] = null;
        /// frame of the request
        request_frame: u64 = null;
        /// frame of the response
        response_frame: u64 = null;
        /// reason code
        reason: u8, "RFC 7143 section 11.14.1";
        /// connection to log out
        cid: u16 = null;
        /// response
        response: u8 = null, "RFC 7143 section 11.15.1";
    }
}

table! {
    /// one Reject
    Rejects Reject "rejects" {
        /// the connection
        connection: u32;
        /// its completion
        time_ns: i64 [ns] = null;
        /// its frame
        frame: u64 = null;
        /// reason
        reason: u8, "RFC 7143 section 11.17.1";
        /// meaning of the reason
        reason_text: String;
        /// opcode of the rejected header
        rejected_opcode: u8 = null;
        /// Initiator Task Tag of the rejected header
        rejected_initiator_task_tag: u32 = null;
    }
}

table! {
    /// one Asynchronous Message
    Asyncs Async "asyncs" {
        /// the connection
        connection: u32;
        /// its completion
        time_ns: i64 [ns] = null;
        /// its frame
        frame: u64 = null;
        /// AsyncEvent
        event: u8, "RFC 7143 section 11.9.1";
        /// meaning of the event
        event_text: String;
        /// AsyncVCode
        vendor_code: u8;
        /// Parameter1
        parameter1: u16;
        /// Parameter2
        parameter2: u16;
        /// Parameter3
        parameter3: u16;
        /// logical unit
        lun: u64 = null;
    }
}

table! {
    /// one SNACK Request
    Snacks Snack "snacks" {
        /// the connection
        connection: u32;
        /// its completion
        time_ns: i64 [ns] = null;
        /// its frame
        frame: u64 = null;
        /// type
        snack_type: u8, "RFC 7143 section 11.16.1";
        /// Initiator Task Tag
        initiator_task_tag: u32;
        /// Target Transfer Tag or SNACK Tag
        target_transfer_tag: u32;
        /// BegRun
        begin_run: u32;
        /// RunLength
        run_length: u32;
    }
}
