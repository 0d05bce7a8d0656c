//! Codes of task management and of logouts (RFC 7143 sections 11.5.1, 11.6.1 and 11.14.1) that decide what ends.

/// Function: ABORT TASK.
pub const ABORT_TASK: u8 = 1;
/// Function: TASK REASSIGN, which moves a task to another connection.
pub const TASK_REASSIGN: u8 = 8;
/// Response: function complete.
pub const FUNCTION_COMPLETE: u8 = 0;
/// Response: task does not exist.
pub const TASK_DOES_NOT_EXIST: u8 = 1;
/// Reason of a logout: close the session.
pub const CLOSE_SESSION: u8 = 0;
/// Reason of a logout: close the connection.
pub const CLOSE_CONNECTION: u8 = 1;
