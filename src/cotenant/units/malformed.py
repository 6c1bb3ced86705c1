"""What msgspec raises for bytes that are not what they should be, all of it.

Beside its own error it lets through that of a string which is not UTF-8, and that of a value which nests too deeply:
whoever may write one annotation, one sample or one file could otherwise end what reads it.
"""

import msgspec

MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
