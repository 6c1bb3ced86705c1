"""Everything that touches /proc, /sys, cgroups, perf, resctrl and BPF. The only layer that writes to the kernel."""
