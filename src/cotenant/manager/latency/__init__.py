"""Latency of online services in a cluster: pods scraped, Prometheus asked, told by service and by node."""
