"""Latency of online services, measured: access logs, scraped histograms, Prometheus queries."""
