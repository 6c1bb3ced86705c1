"""Kubernetes client, informer, lease elector, server-side apply."""
