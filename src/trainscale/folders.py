"""The user's folders for data and for what may be deleted at any time, by the XDG specification.

The folders are the same on every system. A variable that is empty or holds a relative path counts as unset.
worker/inspection/host.py repeats that rule, because a worker has no platformdirs.
"""

from pathlib import Path

_APPLICATION = "trainscale"


def find_data_folder() -> Path:
    """Return the data folder: ``$XDG_DATA_HOME/trainscale`` or ``~/.local/share/trainscale``."""
    from platformdirs.unix import Unix  # imported late, for a quick --help

    return Unix(_APPLICATION).user_data_path


def find_cache_folder() -> Path:
    """Return the cache folder: ``$XDG_CACHE_HOME/trainscale`` or ``~/.cache/trainscale``."""
    from platformdirs.unix import Unix

    return Unix(_APPLICATION).user_cache_path
