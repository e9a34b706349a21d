"""Numbers, times and sizes as text. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

NOTHING = "–"


def clock(at: float | None) -> str:
    """A time as text, in UTC; – if it is out of range."""
    if at is None:
        return NOTHING
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return NOTHING


def duration(seconds: float | None) -> str:
    """A duration: 0.4 s, 12 s, 3 min 20 s, 5 h 12 min, 2 d 3 h."""
    if seconds is None:
        return NOTHING
    if seconds < 0:
        return f"−{duration(-seconds)}"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, smaller, name in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {name}"
    return f"{whole} s"


def size(count: int | None) -> str:
    """A number of bytes, with a suitable unit."""
    if count is None:
        return NOTHING
    amount = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if abs(amount) < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def share(value: float | None, digits: int = 4) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f} %"


def number(count: int | None) -> str:
    """A whole number in groups of three digits; from 10^15 on, only its magnitude."""
    if count is None:
        return NOTHING
    if abs(count) < 10**15:
        return f"{count:,}".replace(",", " ").replace("-", "−")
    bits = abs(count).bit_length()
    digits = len(str(abs(count))) if bits < 10_000 else int(bits * 0.30103)  # Python does not print longer ones
    return f"about 10^{digits - 1}"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """1 task, 3 tasks."""
    return f"{number(count)} {noun if count == 1 else plural or noun + 's'}"


def named(items: tuple[str, ...] | list[str], most: int = 12) -> str:
    """Names as a text, shortened to `most` of them; – if there are none."""
    if not items:
        return NOTHING
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
