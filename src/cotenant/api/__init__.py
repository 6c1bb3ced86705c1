"""Encodings of the outside: our kinds, Koordinator's kinds, extender JSON, protobuf."""
