"""Values without I/O: CPU lists, quantities, limits, clocks, histograms, plan items."""
