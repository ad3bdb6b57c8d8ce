#!/usr/bin/env python3
"""Makes images.npz: odd picture files, and what PIL makes of them.

    pip install pillow numpy
    tests/data/image/make_images.py

Arrays of the archive, for each NAME:
  file/NAME           the file's bytes
  rgb/NAME            [height, width, 3], as PIL reads it, turned and in RGB
  resized/NAME/M/WxH  that picture resized by PIL with method M
  input/NAME/CASE     [3, side, side] float32, the classifier's usual input
Files below bad/ have bytes alone: they must be refused.
"""
import io
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps, PngImagePlugin

HERE = pathlib.Path(__file__).parent
ARRAYS = {}
RNG = np.random.default_rng(7)


def picture(width, height, smooth=True):
    """Colours that differ everywhere, with edges."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = [128 + 110 * np.sin(x / 5 + y / 9), 255 * x / max(width - 1, 1),
              128 + 100 * np.cos(y / 4 - x / 11)]
    rgb = np.stack(planes, axis=-1)
    rgb[height // 3:height // 2, width // 4:width // 2] = (250, 20, 90)
    if not smooth:
        rgb += RNG.normal(0, 40, rgb.shape)
    return Image.fromarray(np.clip(rgb, 0, 255).astype(np.uint8))


def as_read(data):
    image = Image.open(io.BytesIO(data))
    image.seek(0)
    image.load()
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16-bit grey: the high byte
        high = (np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8)
        image = Image.fromarray(high)
    return np.asarray(image.convert("RGB"))


def put(name, data, rgb=None):
    ARRAYS["file/" + name] = np.frombuffer(data, np.uint8)
    ARRAYS["rgb/" + name] = as_read(data) if rgb is None else rgb
    return data


def bad(name, data):
    ARRAYS["file/bad/" + name] = np.frombuffer(data, np.uint8)


def saved(image, form, **options):
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def exif(orientation, endian="<"):
    mark = b"II*\0" if endian == "<" else b"MM\0*"
    return (b"Exif\0\0" + mark + struct.pack(endian + "IH", 8, 2) +
            struct.pack(endian + "HHII", 0x0100, 4, 1, 7) +
            struct.pack(endian + "HHIHH", 0x0112, 3, 1, orientation, 0) +
            struct.pack(endian + "I", 0))


def chunk(name, data):
    body = name + data
    return struct.pack(">I", len(data)) + body + struct.pack(
        ">I", zlib.crc32(body))


def png(width, height, depth, color, rows, extra=b"", interlace=0):
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def packed_rows(values, depth):
    """Rows of samples, each behind its filter byte."""
    rows = b""
    for row in values:
        flat = row.reshape(-1)
        if depth == 16:
            body = flat.astype(">u2").tobytes()
        elif depth == 8:
            body = flat.astype(np.uint8).tobytes()
        else:
            bits = "".join(f"{int(v):0{depth}b}" for v in flat)
            bits += "0" * (-len(bits) % 8)
            body = int(bits, 2).to_bytes(len(bits) // 8, "big")
        rows += b"\0" + body
    return rows


def adam7(values, depth):
    rows = b""
    for y, x, dy, dx in [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4),
                         (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]:
        part = values[y::dy, x::dx]
        if part.size:
            rows += packed_rows(part, depth)
    return rows


def jpegs():
    image = picture(37, 29)
    for name, options in {
            "444": dict(subsampling=0), "422": dict(subsampling=1),
            "420": dict(subsampling=2),
            "progressive": dict(progressive=True),
            "quality1": dict(quality=1), "quality100": dict(quality=100),
            "restarts": dict(restart_marker_rows=1),
            "comment": dict(comment=b"a comment"),
            "icc": dict(icc_profile=b"x" * 300)}.items():
        put("jpeg/" + name, saved(image, "JPEG", **options))
    put("jpeg/grey", saved(image.convert("L"), "JPEG"))
    put("jpeg/cmyk", saved(image.convert("CMYK"), "JPEG"))
    put("jpeg/1x1", saved(picture(1, 1), "JPEG"))
    put("jpeg/wide", saved(picture(300, 2), "JPEG"))
    for value in range(1, 9):
        put(f"jpeg/turned{value}",
            saved(picture(19, 14), "JPEG", exif=exif(value)))
    put("jpeg/turned6_big_endian",
        saved(picture(19, 14), "JPEG", exif=exif(6, ">")))
    plain = saved(picture(19, 14), "JPEG")
    put("jpeg/turned9", saved(picture(19, 14), "JPEG", exif=exif(9)),
        as_read(plain))
    put("jpeg/exif_cut", saved(picture(19, 14), "JPEG", exif=exif(6)[:22]),
        as_read(plain))
    put("jpeg/exif_loops", saved(
        picture(19, 14), "JPEG",
        exif=b"Exif\0\0II*\0" + struct.pack("<IH", 8, 65535)), as_read(plain))
    put("jpeg/garbage_behind", plain + b"\0" * 50, as_read(plain))
    progressive = saved(image, "JPEG", progressive=True)
    for share in (20, 50, 80):
        bad(f"jpeg_cut_at_{share}", plain[:len(plain) * share // 100])
        bad(f"progressive_cut_at_{share}",
            progressive[:len(progressive) * share // 100])
    at = plain.index(b"\xff\xc0")
    huge = plain[:at + 5] + struct.pack(">HH", 60000, 60000) + plain[at + 9:]
    bad("jpeg_60k", huge)
    bad("jpeg_no_size", plain[:at + 5] + b"\0\0\0\0" + plain[at + 9:])
    bad("jpeg_head_alone", plain[:at])
    bad("jpeg_start_alone", plain[:3])
    bad("jpeg_12_bit", plain[:at + 4] + b"\x0c" + plain[at + 5:])
    # Every scan is work over all pixels.
    start = progressive.index(b"\xff\xda")
    at = progressive.index(b"\xff\xc2")
    large = (progressive[:at + 5] + struct.pack(">HH", 5000, 5000) +
             progressive[at + 9:start])
    length = struct.unpack(">H", progressive[start + 2:start + 4])[0]
    bad("jpeg_scan_bomb", large + progressive[start:start + 2 + length] * 100)


def pngs():
    image = picture(23, 17)
    rgb = np.asarray(image)
    grey = np.asarray(image.convert("L"))
    alpha = (np.arange(23 * 17).reshape(17, 23) % 256).astype(np.uint8)
    put("png/rgb8", saved(image, "PNG"))
    for depth in (1, 2, 4, 8):
        small = grey.astype(int) >> (8 - depth)
        put(f"png/grey{depth}", png(23, 17, depth, 0, packed_rows(small, depth)))
        colors = 2**depth
        palette = bytes((i * 37 + c * 91) % 256
                        for i in range(colors) for c in range(3))
        put(f"png/palette{depth}", png(
            23, 17, depth, 3, packed_rows(small, depth),
            chunk(b"PLTE", palette)))
        put(f"png/palette{depth}_alpha", png(
            23, 17, depth, 3, packed_rows(small, depth),
            chunk(b"PLTE", palette) + chunk(b"tRNS", b"\0\x80")))
    wide = grey.astype(int) * 256 + np.arange(23)
    put("png/grey16", png(23, 17, 16, 0, packed_rows(wide, 16)))
    wide = rgb.astype(int) * 256 + 130
    put("png/rgb16", png(23, 17, 16, 2, packed_rows(wide, 16)))
    rgba = np.dstack([rgb, alpha])
    put("png/rgba8", png(23, 17, 8, 6, packed_rows(rgba, 8)))
    put("png/rgba16", png(23, 17, 16, 6,
                          packed_rows(rgba.astype(int) * 257, 16)))
    la = np.dstack([grey, alpha])
    put("png/grey_alpha8", png(23, 17, 8, 4, packed_rows(la, 8)))
    put("png/grey_alpha16", png(23, 17, 16, 4,
                                packed_rows(la.astype(int) * 257, 16)),
        np.repeat(grey[..., None], 3, axis=2))
    put("png/rgb8_key", png(23, 17, 8, 2, packed_rows(rgb, 8),
                            chunk(b"tRNS", struct.pack(">HHH", 250, 20, 90))))
    put("png/gamma", png(23, 17, 8, 2, packed_rows(rgb, 8),
                         chunk(b"gAMA", struct.pack(">I", 100000))))
    put("png/interlaced", png(23, 17, 8, 2, adam7(rgb, 8), interlace=1))
    put("png/interlaced_grey1", png(23, 17, 1, 0, adam7(grey >> 7, 1),
                                    interlace=1))
    put("png/1x1", saved(picture(1, 1), "PNG"))
    put("png/turned8", png(23, 17, 8, 2, packed_rows(rgb, 8),
                           chunk(b"eXIf", exif(8)[6:])))
    text = PngImagePlugin.PngInfo()
    text.add_text("comment", "text", zip=True)
    put("png/text", saved(image, "PNG", pnginfo=text))
    put("png/animated", saved(image, "PNG", save_all=True,
                              append_images=[image.rotate(180)]))
    whole = saved(image, "PNG")
    for share in (10, 50, 95):
        bad(f"png_cut_at_{share}", whole[:len(whole) * share // 100])
    bad("png_wrong_sum", whole[:60] + bytes([whole[60] ^ 1]) + whole[61:])
    bad("png_60k", png(60000, 60000, 8, 2, b""))
    bad("png_bomb", png(60000, 60000, 1, 0, b"\0" * 1_000_000))
    bad("png_2g", png(2**31 - 1, 2**31 - 1, 8, 2, b""))
    bad("png_no_size", png(0, 0, 8, 2, b""))
    bad("png_too_few_rows", png(23, 17, 8, 2, packed_rows(rgb, 8)[:500]))
    bad("png_no_palette", png(23, 17, 8, 3, packed_rows(grey, 8)))
    # Texts that unpack to a gigabyte are passed over.
    bomb = b"k\0\0" + zlib.compress(b"\0" * 10_000_000, 9)
    put("png/text_bomb", png(23, 17, 8, 2, packed_rows(rgb, 8),
                             chunk(b"zTXt", bomb)), rgb)


def webps():
    image = picture(33, 21)
    alpha = image.copy()
    alpha.putalpha(Image.linear_gradient("L").resize(image.size))
    put("webp/lossy", saved(image, "WEBP"))
    put("webp/lossless", saved(image, "WEBP", lossless=True))
    put("webp/lossy_alpha", saved(alpha, "WEBP"))
    put("webp/lossless_alpha", saved(alpha, "WEBP", lossless=True, exact=True))
    put("webp/turned6", saved(image, "WEBP", lossless=True, exif=exif(6)))
    put("webp/1x1", saved(picture(1, 1), "WEBP", lossless=True))
    put("webp/animated", saved(image, "WEBP", lossless=True, save_all=True,
                               append_images=[image.rotate(180)]))
    whole = saved(image, "WEBP")
    for share in (10, 50, 95):
        bad(f"webp_cut_at_{share}", whole[:len(whole) * share // 100])
    animated = saved(image, "WEBP", lossless=True, save_all=True,
                     append_images=[image.rotate(180)])
    canvas = struct.pack("<I", 60000 - 1)[:3]  # behind the flags of VP8X
    bad("webp_60k", animated[:24] + canvas * 2 + animated[30:])
    small = bytearray(animated)
    small[24:30] = struct.pack("<I", 40 - 1)[:3] * 2
    rgb = np.zeros((40, 40, 3), np.uint8)
    rgb[:21, :33] = np.asarray(image)
    put("webp/frame_in_canvas", bytes(small), rgb)


def others():
    image = picture(9, 7)
    for form in ("GIF", "BMP", "TIFF"):
        bad(form.lower(), saved(image, form))
    bad("empty", b"")
    bad("text", b"this is no picture")
    bad("one_byte", b"\xff")
    bad("riff", b"RIFF\x10\0\0\0WAVEfmt ")


METHODS = {"nearest": Image.Resampling.NEAREST,
           "bilinear": Image.Resampling.BILINEAR,
           "bicubic": Image.Resampling.BICUBIC,
           "lanczos": Image.Resampling.LANCZOS}


def resizes():
    for name, image, sizes in [
            ("noise", picture(47, 31, smooth=False),
             [(16, 16), (47, 10), (9, 31), (60, 45), (1, 1), (47, 31)]),
            ("long", picture(211, 3), [(20, 8), (13, 2)])]:
        put(name, saved(image, "PNG"))
        for method, how in METHODS.items():
            for width, height in sizes:
                if method == "lanczos" and (width, height) == image.size:
                    continue
                ARRAYS[f"resized/{name}/{method}/{width}x{height}"] = (
                    np.asarray(image.resize((width, height), how)))


def inputs():
    """torchvision's Resize, CenterCrop, ToTensor and Normalize on PIL images,
    spelled out."""
    def crop(image, side):
        width, height = image.size
        left = int(round((width - side) / 2.0))
        top = int(round((height - side) / 2.0))
        if side > width or side > height:
            left_pad = (side - width) // 2 if side > width else 0
            top_pad = (side - height) // 2 if side > height else 0
            padded = Image.new("RGB", (max(side, width), max(side, height)))
            padded.paste(image, (left_pad, top_pad))
            image = padded
            left = int(round((image.width - side) / 2.0))
            top = int(round((image.height - side) / 2.0))
        return image.crop((left, top, left + side, top + side))

    def shorter(image, size, how):
        width, height = image.size
        if width <= height:
            return image.resize((size, int(size * height / width)), how)
        return image.resize((int(size * width / height), size), how)

    mean = np.array([0.485, 0.456, 0.406], np.float32)
    std = np.array([0.229, 0.224, 0.225], np.float32)
    for name in ("noise", "jpeg/turned6", "png/rgba8", "long"):
        image = Image.fromarray(ARRAYS["rgb/" + name])
        for case, size, side in [("16_14", 16, 14), ("40_32", 40, 32),
                                 ("9_13", 9, 13)]:
            for method in ("bilinear", "bicubic"):
                pixels = np.asarray(
                    crop(shorter(image, size, METHODS[method]), side))
                value = (pixels.astype(np.float32) / 255 - mean) / std
                ARRAYS[f"input/{name}/{method}/{case}"] = np.ascontiguousarray(
                    value.transpose(2, 0, 1))


def main():
    for make in (jpegs, pngs, webps, others, resizes, inputs):
        make()
    np.savez_compressed(HERE / "images.npz", **ARRAYS)
    files = [name for name in ARRAYS if name.startswith("file/")]
    print(len(files), "files,", (HERE / "images.npz").stat().st_size, "bytes")


if __name__ == "__main__":
    main()
