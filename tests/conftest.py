"""Settings for all tests."""

import os

import hypothesis

# A shared machine may stop for longer than hypothesis's deadline; what is slow is a matter for bench/, not for a test.
# In CI the examples are the same each time, so that a run says something about the change and not about luck.
hypothesis.settings.register_profile("cotenant", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("cotenant")
