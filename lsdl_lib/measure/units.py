"""Numbers with units, one policy: decimal for traffic and rates, binary for capacities.

Bytes on a wire are counted in MB and GB (10**6, 10**9) and links in Gbit/s, as networks are sold;
memory in MiB and GiB (2**20, 2**30), as it is built. A number always has the unit next to it.
"""

DECIMAL = ("B", "kB", "MB", "GB", "TB", "PB")
BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
RATES = ("bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s")
TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def format_bytes(n):
    """Return traffic of ``n`` bytes as text: ``"1.50 MB"``; whole bytes below 1,000."""
    return _scaled(n, 1000, DECIMAL)


def format_capacity(n):
    """Return a capacity of ``n`` bytes as text: ``"1.50 GiB"``; whole bytes below 1,024."""
    return _scaled(n, 1024, BINARY)


def format_rate(bits_per_second):
    """Return a link's rate as text: ``"10.0 Gbit/s"``. Give bits, 8 a byte."""
    return _scaled(bits_per_second, 1000, RATES)


def format_seconds(seconds):
    """Return a time as text with three digits: ``"1.23 ms"``; above a minute ``"2 min 05 s"``."""
    if abs(seconds) >= 59.95:
        minutes, rest = divmod(round(abs(seconds)), 60)
        return f"{'-' * (seconds < 0)}{minutes} min {rest:02d} s"
    for unit, name in TIMES:
        if abs(seconds) >= 0.9995 * unit:
            return f"{_three(seconds / unit)} {name}"
    return f"{_three(seconds / 1e-9)} ns" if seconds else "0 s"


def _scaled(number, step, units):
    for k, unit in enumerate(units):
        scaled = number / step**k
        # 999.6 would be shown as 1000: that is the next unit's business.
        if abs(scaled) < (step if k == 0 else step - 0.5) or unit == units[-1]:
            break
    if k == 0 and float(number).is_integer():
        return f"{int(number)} {unit}"
    return f"{_three(scaled)} {unit}"


def _three(number):
    """Return ``number`` with three significant digits and no exponent."""
    digits = 2 if abs(number) < 9.995 else 1 if abs(number) < 99.95 else 0
    return f"{number:.{digits}f}"
