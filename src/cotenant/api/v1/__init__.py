"""The stream's messages: generated from proto/cotenant/v1 (make generate)."""
