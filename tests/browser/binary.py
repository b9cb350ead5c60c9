"""The Chromium of this machine, if it has one."""

import shutil


def chromium() -> str | None:
    """Where it is; `apt-get install chromium` brings it."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)
