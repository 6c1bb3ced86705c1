"""Programs in the kernel: the shipped objects (``objects/*.bpf.o``, built from ``bpf/``) and what loads and reads them.

Nothing is pinned: programs, links and maps live as long as the descriptors of the process that loaded them, so that
nothing is left behind however it ends, and two processes do not meet.
"""
