"""The node agent on Kubernetes."""
