"""The value of ``--period``: a duration."""

from cotenant.units import quantity


def seconds(text: str) -> float:
    """Return the period in seconds.

    :raises BadQuantity: naming the option, if it is not a duration.
    """
    try:
        return quantity.seconds(text)
    except quantity.BadQuantity as error:
        raise quantity.BadQuantity(f"--period: {error}") from None
