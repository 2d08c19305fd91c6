"""Find the Chromium for the page tests, or explain how to install one."""

import shutil
import subprocess
import sys

# Chromium as root, without its own requests to the network.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_browser() -> str | None:
    """Return the path of the system's Chromium, or of the one playwright installed, or None."""
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - slow import

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if path and shutil.which(path) else None


def ensure_browser() -> str:
    """Return the path of a Chromium, having playwright install one if necessary.

    Raises:
        SystemExit: there is none, and installing one failed.
    """
    if found := find_browser():
        return found
    print("No Chromium found; asking playwright to install one ...")
    command = [sys.executable, "-m", "playwright", "install", "chromium"]
    subprocess.run(command, check=False)
    if found := find_browser():
        return found
    raise SystemExit(
        "The page tests need Chromium, and none could be installed. Install it with your "
        "system's packages (Debian and Ubuntu: apt-get install chromium; Fedora: dnf install "
        "chromium; macOS: brew install --cask chromium), then run make test again."
    )


if __name__ == "__main__":
    print(f"Page tests use {ensure_browser()}")
