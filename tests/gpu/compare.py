"""Logits of one engine beside those of another.

    python3 compare.py REFERENCE OTHER POSITIONS LIMIT

Both files are of millrace logits --raw: f32, [position][vocabulary]. Exit status 0:
they are as long, and the RMS error of OTHER is at most LIMIT of the RMS of REFERENCE;
else, and with a NaN in either, 1.
"""
import math
import os
import struct
import sys


def rows(path, width):
    with open(path, "rb") as file:
        while data := file.read(4 * width):
            yield struct.unpack(f"<{width}f", data)


def main(reference, other, positions, limit):
    sizes = [os.path.getsize(path) for path in (reference, other)]
    width, rest = divmod(sizes[0], 4 * positions)
    if sizes[0] != sizes[1] or width == 0 or rest != 0:
        sys.exit(f"files of {sizes[0]} and {sizes[1]} bytes do not hold the same "
                 f"vocabulary at {positions} positions")
    errors, norms, equal = [], [], 0
    for a, b in zip(rows(reference, width), rows(other, width)):
        errors.append(math.dist(a, b))
        norms.append(math.hypot(*a))
        equal += a.index(max(a)) == b.index(max(b))
    norm = math.hypot(*norms)
    error = math.hypot(*errors) / norm if norm > 0 else math.nan
    print(f"RMS error {error:.2e} of RMS, limit {limit:.0e}; "
          f"greatest equal {equal / positions:.3f}")
    return 0 if error <= limit else 1


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:3], int(sys.argv[3]), float(sys.argv[4])))
