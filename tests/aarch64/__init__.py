"""AArch64 plans, run by Debian's arm64 Python under qemu-aarch64: `make aarch64`."""
