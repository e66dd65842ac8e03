"""Writes files so that a reader sees the old content or the new, even after a power failure."""

import os
import secrets
from pathlib import Path

from ..errors import InputError


def write_atomically(path: Path, content: str | bytes, mode: int = 0o666) -> Path:
    """Write to a temporary file, sync it, and rename it to ``path``.

    Its name is random, so in a shared folder nobody can prepare a link in its place.
    """
    make_directory(path.parent)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, mode), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)
    return path


def write_output(output: str | Path, content: str | bytes) -> Path:
    """Write the file that a person named by --output, or raise InputError."""
    path = Path(output)
    if path.is_dir():
        raise InputError(f"--output {output}: this is a directory; valid: the name of a file")
    try:
        return write_atomically(path, content)
    except OSError as error:
        raise InputError(f"--output {output}: this file cannot be written: {error.strerror}") from None


def make_directory(directory: Path) -> None:
    """Make a directory and those above it, and sync their entries."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
