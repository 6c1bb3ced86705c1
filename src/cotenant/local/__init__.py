"""One host without Kubernetes: loops, configuration, history."""
