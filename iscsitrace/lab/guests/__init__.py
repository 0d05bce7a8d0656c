"""The world of guests: real kernels' initiators and targets, each in a virtual machine, with the links between them.

Linux only. The host needs QEMU; the guests run Debian's kernel, open-iscsi, LIO and tgt.
"""
