"""Settings for all tests."""

import gc
import os
import signal

import hypothesis

# A shared machine may stop for longer than hypothesis's deadline; what is slow is a matter for bench/, not for a test.
# In CI the examples are the same each time, so that a run says something about the change and not about luck.
hypothesis.settings.register_profile("cotenant", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("cotenant")


def pytest_collection_finish() -> None:
    """Leave what is there once all tests are known, some hundred thousand objects, out of every later collection."""
    gc.collect()
    gc.freeze()


# What started the tests may ignore these (a job in the background, nohup), and their processes would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
