"""What msgspec raises for bytes that are not what they should be, all of it.

Beside its own error it lets through that of a string which is not UTF-8, and that of a value which nests too deeply:
whoever may write one annotation, one sample or one file could otherwise end what reads it.
"""

import msgspec

MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def yaml_problem(error: Exception) -> str:
    """Return what is wrong with a YAML text, on one line and with its line where PyYAML tells it."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return str(getattr(error, "reason", "") or " ".join(str(error).split()) or type(error).__name__)
    return f"line {mark.line + 1}: {getattr(error, 'problem', None) or getattr(error, 'context', None)}"
