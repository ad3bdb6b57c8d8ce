#!/usr/bin/env python3
"""Makes odd_images.npz: more pictures as they are found, and what PIL makes of
them. Arrays as those of make_images.py, whose helpers make the files.

    pip install pillow numpy
    tests/data/image/make_odd_images.py
"""
import io
import struct

import numpy as np
from make_images import (ARRAYS, HERE, adam7, bad, chunk, exif, packed_rows,
                         picture, png, put, saved)
from PIL import Image

ORIENTATION = 0x0112
XMP = b"http://ns.adobe.com/xap/1.0/\0<x:xmpmeta xmlns:x='adobe:ns:meta/'/>"


def segment(marker, data):
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(data) + 2) + data


def behind_start(jpeg, *segments):
    return jpeg[:2] + b"".join(segments) + jpeg[2:]


def directory(entries, begin, next_at, endian):
    """An image file directory of (tag, type, number) at `begin`."""
    out = struct.pack(endian + "H", len(entries))
    for tag, kind, value in entries:
        size = {1: "B3x", 3: "H2x", 4: "I", 8: "h2x", 9: "i"}[kind]
        out += struct.pack(endian + "HHI" + size, tag, kind, 1, value)
    return out + struct.pack(endian + "I", next_at)


def exif_of(first, second=None, endian="<", thumbnail=b""):
    """Of a picture and, in a directory of its own, of its thumbnail."""
    head = {"<": b"II", ">": b"MM"}[endian] + struct.pack(endian + "HI", 42, 8)
    end = 8 + 2 + 12 * len(first) + 4
    if second is None:
        return b"Exif\0\0" + head + directory(first, 8, 0, endian)
    behind = end + 2 + 12 * (len(second) + 2) + 4
    second = second + [(0x0201, 4, behind), (0x0202, 4, len(thumbnail))]
    return (b"Exif\0\0" + head + directory(first, 8, end, endian) +
            directory(second, end, 0, endian) + thumbnail)


def jpegs():
    image = picture(37, 29)
    cmyk = image.convert("CMYK")
    for name, options in {
            "rows": dict(restart_marker_rows=1),
            "blocks": dict(restart_marker_blocks=2),
            "420": dict(restart_marker_blocks=1, subsampling=2)}.items():
        put(f"jpeg/progressive_restarts_{name}",
            saved(image, "JPEG", progressive=True, **options))
    put("jpeg/progressive_restarts_grey", saved(
        image.convert("L"), "JPEG", progressive=True, restart_marker_rows=1))
    put("jpeg/progressive_cmyk", saved(cmyk, "JPEG", progressive=True))
    put("jpeg/rgb", saved(image, "JPEG", keep_rgb=True))
    # The last byte of Adobe's marker says how colours are transformed.
    inks = saved(cmyk, "JPEG")
    at = inks.index(b"Adobe") + 11
    assert inks[at] == 0
    put("jpeg/ycck", inks[:at] + b"\2" + inks[at + 1:])
    # PIL takes inks for inverted without the marker, too.
    begin = inks.index(b"\xff\xee")
    put("jpeg/cmyk_unmarked", inks[:begin] + inks[begin + 16:])

    turned = picture(19, 14)
    plain = saved(turned, "JPEG")
    thumbnail = saved(picture(8, 6), "JPEG")
    for endian in "<>":
        order = "little" if endian == "<" else "big"
        put(f"jpeg/thumbnail_turned_{order}", behind_start(plain, segment(
            0xe1, exif_of([(ORIENTATION, 3, 6)], [(ORIENTATION, 3, 3)], endian,
                          thumbnail))))
    put("jpeg/thumbnail_alone_turned", behind_start(plain, segment(
        0xe1, exif_of([(0x0100, 4, 19)], [(ORIENTATION, 3, 3)], "<",
                      thumbnail))))
    for kind, name in ((1, "byte"), (4, "long"), (8, "signed_short"),
                       (9, "signed_long")):
        put(f"jpeg/orientation_{name}", behind_start(
            plain, segment(0xe1, exif_of([(ORIENTATION, kind, 6)]))))
    put("jpeg/orientation_twice", behind_start(plain, segment(0xe1, exif_of(
        [(ORIENTATION, 3, 6), (ORIENTATION, 3, 3)]))))
    put("jpeg/xmp_before_exif", behind_start(
        plain, segment(0xe1, XMP), segment(0xe1, exif(6))))
    put("jpeg/fill_bytes", plain[:2] + b"\xff\xff\xff" + plain[2:])
    put("jpeg/two_pictures", saved(turned, "MPO", save_all=True,
                                   append_images=[turned.rotate(180)]))
    bad("jpeg_restarts_cut", saved(image, "JPEG", progressive=True,
                                   restart_marker_rows=1)[:-200])


def pngs():
    image = picture(23, 17)
    rgb = np.asarray(image).astype(int)
    grey = np.asarray(image.convert("L")).astype(int)
    alpha = np.arange(23 * 17).reshape(17, 23) % 256
    for depth in (1, 2, 4, 8, 16):
        small = grey * 257 if depth == 16 else grey >> (8 - depth)
        key = chunk(b"tRNS", struct.pack(">H", int(small[3, 5])))
        put(f"png/grey{depth}_key",
            png(23, 17, depth, 0, packed_rows(small, depth), key))
        put(f"png/grey{depth}_key_interlaced",
            png(23, 17, depth, 0, adam7(small, depth), key, interlace=1))
        if depth == 16:
            continue
        palette = chunk(b"PLTE", bytes((i * 53 + c * 71) % 256 for i in
                                       range(2**depth) for c in range(3)))
        put(f"png/palette{depth}_interlaced",
            png(23, 17, depth, 3, adam7(small, depth),
                palette + chunk(b"tRNS", b"\x10\xf0"), interlace=1))
    put("png/rgba8_interlaced", png(23, 17, 8, 6, adam7(
        np.dstack([rgb, alpha]), 8), interlace=1))
    put("png/rgb16_interlaced", png(23, 17, 16, 2, adam7(rgb * 257, 16),
                                    interlace=1))
    put("png/rgb16_key", png(
        23, 17, 16, 2, packed_rows(rgb * 257, 16),
        chunk(b"tRNS", struct.pack(">HHH", *(rgb[2, 2] * 257)))))
    # Sides below 8: passes without pixels.
    for width, height in ((1, 1), (3, 2), (5, 9)):
        part = rgb[:height, :width]
        put(f"png/interlaced_{width}x{height}",
            png(width, height, 8, 2, adam7(part, 8), interlace=1))
    whole = saved(image, "PNG")
    put("png/garbage_behind", whole + b"\0" * 50)
    at = whole.index(b"IDAT") - 4
    size, = struct.unpack(">I", whole[at:at + 4])
    data = whole[at + 8:at + 8 + size]
    put("png/many_parts", whole[:at] + b"".join(
        chunk(b"IDAT", data[i:i + 7]) for i in range(0, size, 7)) +
        chunk(b"IDAT", b"") + whole[at + 12 + size:])
    put("png/turned_behind", whole[:-12] + chunk(b"eXIf", exif(6)[6:]) +
        whole[-12:])
    put("png/background", png(23, 17, 8, 6, packed_rows(
        np.dstack([rgb, alpha]), 8), chunk(
            b"bKGD", struct.pack(">HHH", 9, 200, 77))))
    put("png/animated_alpha", saved(
        image.convert("RGBA"), "PNG", save_all=True,
        append_images=[image.rotate(90).convert("RGBA")]))


def webps():
    image = picture(33, 21)
    alpha = image.copy()
    alpha.putalpha(Image.linear_gradient("L").resize(image.size))
    for name, options in {"lossy": {}, "lossless": dict(
            lossless=True, exact=True)}.items():
        put(f"webp/{name}_alpha_turned",
            saved(alpha, "WEBP", exif=exif(6, ">"), **options))
        put(f"webp/{name}_animated_alpha", saved(
            alpha, "WEBP", save_all=True, append_images=[alpha.rotate(180)],
            **options))
    put("webp/lossless_animated_turned", saved(
        image, "WEBP", lossless=True, save_all=True, exif=exif(8),
        append_images=[image.rotate(180)]))
    bare = saved(image, "WEBP", lossless=True, exif=exif(6)[6:])
    put("webp/lossless_exif_bare", bare)
    put("webp/lossless_icc", saved(image, "WEBP", lossless=True,
                                   icc_profile=b"x" * 301))
    put("webp/lossless_garbage_behind",
        saved(image, "WEBP", lossless=True) + b"\0" * 50)


def others():
    for name, first in {
            "heix": b"\0\0\0\x18ftypheix", "avis": b"\0\0\0\x18ftypavis",
            "jp2": b"\0\0\0\x0cjP  \r\n\x87\n", "jxl": b"\xff\x0a\xfa\x1f",
            "jxl_box": b"\0\0\0\x0cJXL \r\n\x87\n",
            "big_tiff": b"MM\0+\0\x08\0\0", "ico": b"\0\0\1\0\1\0\x10\x10",
    }.items():
        bad(name, first + b"\0" * 20)


def main():
    for make in (jpegs, pngs, webps, others):
        make()
    path = HERE / "odd_images.npz"
    np.savez_compressed(path, **ARRAYS)
    files = [name for name in ARRAYS if name.startswith("file/")]
    print(len(files), "files,", path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
