"""What the page of a rule says beside the core's declaration: what a violation leads to, when the rule is judged, an
example and its legal neighbour.

Nothing is judged here: the core's guards are put into words.
"""

from __future__ import annotations

from typing import Final, NamedTuple

GUARDS: Final = {
    "a": "Nothing may be missing from the capture between the PDUs that are compared.",
    "b": "The login must be in the capture: the agreed values decide.",
    "c": "A side is held only to what it had acknowledged by TCP, so the place of the tap does not matter.",
    "d": "Numbers are compared as RFC 1982 says. The first one in the capture is where counting begins.",
    "e": "Bytes that TCP sent again count once.",
    "f": "Not judged while a side recovers from errors: ErrorRecoveryLevel above 0, a wrong digest, a SNACK, a retry.",
    "g": "Not judged shortly before the capture ends: the answer may still come.",
    "m": "Not judged in sessions of several connections.",
    "w": "The connection must be in the capture from its login on.",
}
"""When a rule is judged, by the letters of ``RuleNote.guards``. Every rule needs the PDUs' boundaries to be certain."""


class RuleNote(NamedTuple):
    """What is to know of a rule."""

    guards: str
    """Letters of GUARDS."""
    leads_to: str
    example: str
    legal: str
    """What looks like the example and is allowed."""


NOTES: Final = {
    "S1": RuleNote(
        "a d f",
        "The target waits for the number that was skipped, and runs no later command.",
        "Commands with CmdSN 10, 11 and 13; ExpCmdSN stays at 12.",
        "An immediate NOP-Out between two commands has the CmdSN of the next one.",
    ),
    "S2": RuleNote(
        "a e f m",
        "The target ignores the second command, which times out.",
        "READ and WRITE with different tags, both with CmdSN 12.",
        "A retry has the same CmdSN and the same tag.",
    ),
    "S3": RuleNote(
        "c d m w",
        "The target ignores the command, which times out.",
        "A command with CmdSN 40 while MaxCmdSN is 39.",
        "A command with CmdSN 39; or an immediate command while the window is closed.",
    ),
    "S4": RuleNote(
        "a d f",
        "The target waits for the number that the immediate PDU used, and runs no later command.",
        "An immediate NOP-Out with CmdSN 12, then a command with CmdSN 13; ExpCmdSN stays at 12.",
        "An immediate NOP-Out with CmdSN 12, then a command with CmdSN 12.",
    ),
    "S5": RuleNote(
        "a c",
        "The initiator may take commands for received that never arrived.",
        "ExpCmdSN 14 after the command with CmdSN 12.",
        "ExpCmdSN 13 before the command was run: it acknowledges that it arrived.",
    ),
    "S6": RuleNote(
        "d e",
        "An initiator ignores the numbers; one that does not may stop.",
        "ExpCmdSN 20, then 0 in each R2T.",
        "ExpCmdSN 4294967295, then 0: serial numbers wrap.",
    ),
    "S7": RuleNote(
        "d",
        "An initiator ignores both numbers, so that its window shrinks with each command.",
        "ExpCmdSN 4112 with MaxCmdSN 4095.",
        "ExpCmdSN 4112 with MaxCmdSN 4111: the window is closed.",
    ),
    "S8": RuleNote(
        "c g",
        "The session stops: the initiator has to wait, and pings are answered.",
        "MaxCmdSN stays 17 below ExpCmdSN; after 32 commands the initiator sends no more. Or 0 in each R2T: past "
        "MaxCmdSN 2147483648, 0 is later, and closes the window.",
        "MaxCmdSN = ExpCmdSN - 1 for 50 ms, until a NOP-In opens the window.",
    ),
    "S9": RuleNote(
        "a d",
        "The initiator may wait for statuses that were never sent, ask for them by SNACK, or drop the connection.",
        "Statuses with StatSN 7, 8 and 12, and no byte is missing.",
        "A NOP-In that answers a NOP-Out uses a StatSN.",
    ),
    "S10": RuleNote(
        "e f",
        "The initiator takes the second status for a copy and drops it, or drops the connection.",
        "Two SCSI Responses with StatSN 16401.",
        "An R2T shows the next StatSN without using it.",
    ),
    "S11": RuleNote(
        "a",
        "The initiator waits for statuses that were never sent.",
        "Three R2Ts with StatSN 7, 8 and 9.",
        "Three R2Ts with StatSN 7, and the SCSI Response with StatSN 7.",
    ),
    "S12": RuleNote(
        "c d",
        "The target may forget statuses that the initiator does not have, or keep them for ever.",
        "ExpStatSN 9, then 7.",
        "ExpStatSN 9 in several commands, while no status comes.",
    ),
    "S13": RuleNote(
        "c",
        "The target keeps statuses that it need not keep.",
        "ExpStatSN 100 after statuses up to 5000 were acknowledged by TCP.",
        "Commands that were sent before the statuses arrived.",
    ),
    "S14": RuleNote(
        "a f",
        "The initiator drops the connection, or takes data for lost.",
        "Data-In with DataSN 0, 1 and 3.",
        "DataSN begins at 0 in each command.",
    ),
    "S15": RuleNote(
        "a f",
        "The target may reject the data, and close the connection.",
        "The Data-Out of one R2T with DataSN 0, 2.",
        "DataSN begins at 0 for each R2T.",
    ),
    "S16": RuleNote(
        "a f",
        "The initiator may drop the connection.",
        "R2Ts of one command with R2TSN 0 and 2.",
        "R2TSN begins at 0 in each command.",
    ),
    "S17": RuleNote(
        "a",
        "Nothing, unless the initiator checks that all Data-In arrived.",
        "ExpDataSN 5 after 4 Data-In.",
        "ExpDataSN 0, which many targets send.",
    ),
    "T1": RuleNote(
        "a",
        "Statuses can be taken for those of the other command: data may be wrong.",
        "A READ with a tag whose WRITE has no status yet.",
        "A tag is used again after its status.",
    ),
    "T2": RuleNote(
        "a m w",
        "The command that was meant never gets its status, and times out.",
        "A SCSI Response with the command's tag in the wrong byte order.",
        "Commands answered in another order than they were sent.",
    ),
    "T3": RuleNote(
        "a f",
        "The initiator drops the second status, or the connection.",
        "A status in the last Data-In, and a SCSI Response for the same tag.",
        "A tag that was used again has a status for each use.",
    ),
    "T4": RuleNote(
        "a",
        "The initiator cannot answer the R2T, and drops the connection.",
        "An R2T with the Target Transfer Tag ffffffff.",
        "Target Transfer Tag 0.",
    ),
    "T5": RuleNote(
        "a",
        "The target rejects the data, and the command fails or waits.",
        "A Data-Out with the Target Transfer Tag of an R2T of another command.",
        "A Data-Out with ffffffff: unsolicited.",
    ),
    "T6": RuleNote(
        "a",
        "A target that checks the LUN rejects the PDU.",
        "A NOP-Out that answers a NOP-In of LUN 1 with LUN 0.",
        "An unsolicited Data-Out, in which the LUN is reserved.",
    ),
    "T7": RuleNote(
        "a",
        "Nothing, unless the initiator checks it.",
        "An R2T with LUN 0 for a command to LUN 1.",
        "The same logical unit in another addressing method is another LUN field.",
    ),
    "T8": RuleNote(
        "a b",
        "The peer cannot match the PDU, and drops the connection.",
        "A Data-In on the second connection for a READ on the first one.",
        "Commands of one session on both of its connections.",
    ),
    "D1": RuleNote(
        "b",
        "A target that checks it rejects the command; another one may ask for the data again.",
        "A WRITE with 4096 bytes of immediate data after ImmediateData=No.",
        "Unsolicited Data-Out after ImmediateData=No and InitialR2T=No.",
    ),
    "D2": RuleNote(
        "b",
        "A target that checks it rejects the data.",
        "An unsolicited Data-Out after InitialR2T=Yes.",
        "Immediate data after InitialR2T=Yes and ImmediateData=Yes.",
    ),
    "D3": RuleNote(
        "b",
        "The target may reject the command.",
        "Immediate data and unsolicited Data-Out of 128 KiB with FirstBurstLength=65536.",
        "64 KiB of them with FirstBurstLength=65536.",
    ),
    "D4": RuleNote(
        "a g",
        "The target waits for more data, and the command times out.",
        "The last Data-Out of an R2T without the F bit, and nothing after it.",
        "F in the last Data-Out alone.",
    ),
    "D5": RuleNote(
        "b",
        "An initiator that checks it drops the connection.",
        "An R2T for 28672 bytes with MaxBurstLength=16384.",
        "Two R2Ts of at most 16384 bytes.",
    ),
    "D6": RuleNote(
        "a",
        "The initiator cannot answer it: it drops the connection or the command.",
        "An R2T for 8192 bytes at offset 4096 of a WRITE of 8192 bytes.",
        "An R2T that ends with the command's last byte.",
    ),
    "D7": RuleNote(
        "a b f",
        "The data are sent twice.",
        "An R2T from offset 0 on for a WRITE whose first burst comes unsolicited.",
        "An R2T for what follows the first burst.",
    ),
    "D8": RuleNote(
        "b c",
        "An initiator that checks it drops the connection.",
        "Two open R2Ts of one command with MaxOutstandingR2T=1.",
        "One R2T for each of two commands.",
    ),
    "D9": RuleNote(
        "a f",
        "The target rejects the data, and closes the connection.",
        "A Data-Out up to byte 16384 for an R2T that ends at 12288.",
        "Data-Out that fill the range exactly.",
    ),
    "D10": RuleNote(
        "b e f",
        "The receiver may drop the command: it need not keep data that come too early.",
        "Data-In at offsets 0, 16384, 8192 of one sequence.",
        "The same with DataPDUInOrder=No.",
    ),
    "D11": RuleNote(
        "b f",
        "The receiver may drop the command.",
        "A sequence of Data-In at offset 262144 before the one at 0.",
        "The same with DataSequenceInOrder=No.",
    ),
    "D12": RuleNote(
        "f",
        "Data may be wrong: the later bytes replace the earlier ones.",
        "Data-In at offsets 0 and 4096, each of 8192 bytes.",
        "Data-In that were asked for again by SNACK.",
    ),
    "D13": RuleNote(
        "a",
        "The initiator drops the connection, or memory behind the buffer is at risk.",
        "12288 bytes of Data-In for a READ of 8192 bytes.",
        "Fewer bytes, with the U bit and a Residual Count.",
    ),
    "D14": RuleNote(
        "a b",
        "An initiator that checks it drops the connection.",
        "300 KiB of Data-In without the F bit, with MaxBurstLength=262144.",
        "F after each 256 KiB.",
    ),
    "D15": RuleNote(
        "a",
        "The sense data are missing: the initiator cannot know why the command failed.",
        "CHECK CONDITION in a Data-In with the S bit.",
        "GOOD in a Data-In with the S bit, the U bit and a Residual Count.",
    ),
    "D16": RuleNote(
        "b",
        "The receiver drops the connection.",
        "A Data-In of 256 KiB for an initiator with MaxRecvDataSegmentLength=65536.",
        "A Data-In of 64 KiB. The limit of the other direction does not matter.",
    ),
    "D17": RuleNote(
        "a",
        "The application reads bytes that never arrived: data may be wrong.",
        "4096 bytes for a READ of 8192, GOOD, with Residual Count 0.",
        "4096 bytes for a READ of 8192, GOOD, with the U bit and Residual Count 4096.",
    ),
    "D18": RuleNote(
        "a",
        "Data loss: the initiator takes for written what the target never had.",
        "GOOD for a WRITE of 8192 bytes without an R2T and without a byte sent.",
        "GOOD for a WRITE of no blocks; or with the U bit and a Residual Count for what was not sent.",
    ),
    "D19": RuleNote(
        "a",
        "Nothing, where the command ended; an initiator may return too many bytes.",
        "Residual Count 2048 for a READ of 4096 bytes less than the Expected Data Transfer Length.",
        "INQUIRY that returns fewer bytes than asked for, with the right residual.",
    ),
    "D20": RuleNote(
        "a",
        "The initiator cannot know how many bytes are valid.",
        "The U bit with Residual Count 0.",
        "The U bit with Residual Count 4096.",
    ),
    "D21": RuleNote(
        "e",
        "The peer drops every connection with digests. The network is not at fault.",
        "Each data digest of the target is wrong, each header digest right.",
        "One wrong digest among thousands: the bytes changed on their way.",
    ),
    "M1": RuleNote(
        "a g",
        "The target takes the connection for dead, and closes it.",
        "A NOP-In with a Target Transfer Tag, and no NOP-Out that returns it.",
        "A NOP-In with ffffffff needs no answer.",
    ),
    "M2": RuleNote(
        "a g",
        "The initiator takes the connection for dead, and logs in again.",
        "A NOP-Out without a NOP-In, while commands are answered.",
        "A NOP-Out with the tag ffffffff needs no answer.",
    ),
    "M3": RuleNote(
        "a",
        "A tag may be in use again when the old answer comes: data may be wrong.",
        "Data-In of a READ after the response to the LOGICAL UNIT RESET that ended it.",
        "The READs end before the response to the reset.",
    ),
    "M4": RuleNote(
        "a g",
        "The initiator keeps asking, and resets more and more.",
        "'Task does not exist' for a READ that arrived and was never answered.",
        "'Task does not exist' where the status crossed the ABORT TASK.",
    ),
    "M5": RuleNote(
        "a g",
        "The initiator waits for its time-out before it closes the connection.",
        "A Logout Request without a response for 15 s.",
        "A target that closes the connection after the Logout Response.",
    ),
    "M6": RuleNote(
        "g",
        "The target drops the connection, with the commands in flight.",
        "An Asynchronous Message that asks for a logout within 3 s, and none for 10 s.",
        "A logout within that time.",
    ),
    "M7": RuleNote(
        "a",
        "The command that was rejected fails, though nothing was wrong with it.",
        "A Reject for a SCSI Command that breaks no rule.",
        "A Reject for a Data-Out beyond its R2T: the initiator broke D9.",
    ),
    "M8": RuleNote(
        "b",
        "The target rejects it, or drops the connection.",
        "A SNACK at ErrorRecoveryLevel 0.",
        "A SNACK at ErrorRecoveryLevel 1 for a Data-In with a wrong digest.",
    ),
    "M9": RuleNote(
        "a",
        "The target answers none of them, or rejects them.",
        "A READ behind a Logout Request for the session.",
        "Data-Out of a command that was sent before the Logout Request.",
    ),
    "M10": RuleNote(
        "a g",
        "The initiator waits for its time-out, and resets more and more.",
        "An ABORT TASK without a response, 5 s after a LOGICAL UNIT RESET that came later was answered.",
        "An ABORT TASK without a response while its task waits for a slow disk.",
    ),
    "L1": RuleNote(
        "a",
        "The login fails.",
        "A Login Request with NSG below CSG.",
        "A login that goes from the operational stage to full feature at once.",
    ),
    "L2": RuleNote(
        "a",
        "The initiator ends the login, or the two sides use different values.",
        "HeaderDigest=CRC32C as the answer to HeaderDigest=None.",
        "HeaderDigest=None as the answer to CRC32C,None.",
    ),
    "L3": RuleNote(
        "a",
        "The login fails, or the two sides use different values.",
        "MaxBurstLength=100: the least is 512.",
        "The smaller one of two values of MaxBurstLength.",
    ),
    "L4": RuleNote(
        "a",
        "The default of the key holds, which one side may not expect.",
        "A key that was offered and not answered before the login ended.",
        "NotUnderstood as the answer to a vendor's key.",
    ),
    "L5": RuleNote(
        "b",
        "Each login ends the other one's session.",
        "Two logins from one host with the same InitiatorName and ISID, both in use.",
        "A new login with the ISID of a session whose connection was lost.",
    ),
    "L6": RuleNote(
        "a",
        "The negotiation ends, or goes on for ever.",
        "A Text Request with another tag in the middle of a negotiation.",
        "Text in several PDUs with the C bit.",
    ),
    "L7": RuleNote(
        "a",
        "The peer refuses the login, or does not expect as many unsolicited bytes of a command.",
        "FirstBurstLength=262144 and MaxBurstLength=65536 in one Login Request.",
        "Equal values of both.",
    ),
}
"""By rule."""
