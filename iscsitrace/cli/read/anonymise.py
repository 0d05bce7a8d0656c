"""``iscsitrace anonymise``: a capture that can be handed on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from iscsitrace.cli import process
from iscsitrace.cli.options import as_json, files_of, reading_progress
from iscsitrace.cli.output import quiet
from iscsitrace.show import files as output_file
from iscsitrace.show.document import Section
from iscsitrace.show.terminal import show, show_json


@click.command(
    epilog="Example:  iscsitrace anonymise capture.pcapng -o shareable.pcapng",
)
@click.argument("captures", metavar="CAPTURE...", nargs=-1, required=True)
@click.option(
    "-o", "--output", "path", metavar="FILE", type=click.Path(path_type=Path), required=True, help="The pcapng file."
)
@click.option(
    "--key-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The key of the replacements, created if the file is missing. Captures with the same key have the same names. "
    "Keep this key secret: it can reverse the renaming. Default: a random key that is not stored.",
)
@click.option("--keep-models", "keeps_models", is_flag=True, help="Keep vendor, product and revision of logical units.")
@click.option(
    "--drop-others",
    "drops_others",
    is_flag=True,
    help="Leave out packets that belong to no iSCSI connection (default: keep their headers). This changes frame "
    "numbers.",
)
@as_json
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
@quiet()
def command(
    captures: tuple[str, ...],
    path: Path,
    key_file: Path | None,
    keeps_models: bool,
    drops_others: bool,
    is_json: bool,
    force: bool,
    is_quiet: bool,
) -> None:
    """Write captures as one pcapng file without names, addresses and data, but with the same tables.

    Addresses, names, serial numbers and designators are replaced, the same by the same and as long; data, CHAP values
    and comments are gone. Times, lengths, frame numbers, TCP fields, LUNs, block addresses and parameters stay.
    Captures are read twice, so they have to be files.
    """
    from iscsitrace.recording.capture import anonymise, key_of, new_key

    sources = [file for each in captures for file in files_of(each, has_experiments=False)]
    output_file.check(path, is_forced=force, inputs=sources)
    key = new_key() if key_file is None else key_of(key_file)
    process.confine([path.parent])
    progress = reading_progress(is_wanted=not is_quiet)
    try:
        with output_file.written_aside(path) as partial:
            counts = anonymise(
                sources,
                partial,
                key,
                keeps_models=keeps_models,
                drops_others=drops_others,
                progress=progress.draw if progress.is_wanted else None,
            )
    finally:
        progress.close()
    if is_json:
        from iscsitrace.tables.schema import SCHEMA_VERSION

        show_json({"schema": SCHEMA_VERSION, "output": str(path), **counts})
    else:
        show([Section("", tuple(_written(path, counts, drops_others=drops_others)))])


def _written(path: Path, counts: Mapping[str, int], *, drops_others: bool) -> Iterator[str]:
    """What was written, and what became of packets of no iSCSI connection."""
    yield f"{path}: packets {counts['packets']:,}, iSCSI connections {counts['connections']:,}"
    fate = "left out" if drops_others else "written without data"
    if counts["other_tcp_packets"]:
        yield f"packets of other TCP connections, {fate}: {counts['other_tcp_packets']:,}"
    fate = "left out except for ICMP errors" if drops_others else "emptied"
    if counts["packets_without_tcp"]:
        yield f"packets without TCP, {fate}: {counts['packets_without_tcp']:,}"
