"""Makes odd_audio.npz: more recordings as they are found, and soundfile's samples.

    pip install numpy soundfile
    python make_odd_audio.py

file/NAME  bytes of a WAV or FLAC
rate/NAME  its samples a second
mono/NAME  soundfile's samples, the mean over channels; none: it must be refused
"""
import io
import pathlib
import struct

import numpy as np
import soundfile

OUT = pathlib.Path(__file__).parent / "odd_audio.npz"
PCM, FLOAT, ALAW, EXTENSIBLE = 1, 3, 6, 0xfffe
GUID_END = bytes.fromhex("000000001000800000aa00389b71")
out = {}


def tone(count, channels=1):
    t = np.arange(count)[:, None] * (1 + np.arange(channels)) / 16000
    return 0.6 * np.sin(2 * np.pi * 311 * t)


def as_bytes(samples, bits):
    """PCM of `bits`, little-endian; 8 bits are unsigned."""
    if bits == 8:
        return (np.round(samples * 127) + 128).astype(np.uint8).tobytes()
    whole = np.round(samples * (2 ** (bits - 1) - 1)).astype("<i4")
    return whole.reshape(-1, 1).view(np.uint8)[:, :bits // 8].tobytes()


def chunk(name, data, pad=True):
    return (name + struct.pack("<I", len(data)) + data +
            b"\0" * (len(data) % 2 if pad else 0))


def fmt(kind, channels, rate, bits, mask=None, valid=None, extra=b""):
    frame = channels * bits // 8
    head = struct.pack("<HHIIHH", EXTENSIBLE if mask is not None else kind,
                       channels, rate, rate * frame, frame, bits)
    if mask is not None:
        extra = struct.pack("<HHIH", 22, valid or bits, mask, kind) + GUID_END
    return chunk(b"fmt ", head + extra)


def riff(*chunks, name=b"RIFF", size=None):
    body = b"WAVE" + b"".join(chunks)
    return name + struct.pack("<I", len(body) if size is None else size) + body


def put(name, data, is_bad=False):
    out["file/" + name] = np.frombuffer(data, np.uint8)
    if is_bad:
        return
    samples, rate = soundfile.read(io.BytesIO(data), dtype="float32",
                                   always_2d=True)
    assert len(samples) > 0, name
    out["rate/" + name] = np.array([rate], np.int64)
    out["mono/" + name] = samples.astype(np.float64).mean(1).astype(np.float32)


def written(rate, channels, form, encoding, count=300):
    file = io.BytesIO()
    soundfile.write(file, tone(count, channels), rate, encoding, format=form)
    return file.getvalue()


def rf64(data, head, samples, told=0xffffffff):
    size = struct.pack("<QQQI", 72 + len(head) + len(data), len(data), samples, 0)
    return riff(chunk(b"ds64", size), head,
                b"data" + struct.pack("<I", told) + data, name=b"RF64",
                size=0xffffffff)


def wavs():
    one = as_bytes(tone(201), 16)
    head = fmt(PCM, 1, 16000, 16)
    put("pcm8_stereo.wav", riff(fmt(PCM, 2, 8000, 8),
                                chunk(b"data", as_bytes(tone(101, 2), 8))))
    put("pcm24_mono.wav", riff(fmt(PCM, 1, 16000, 24),
                               chunk(b"data", as_bytes(tone(101), 24))))
    loud = (1.5 * tone(200)).astype("<f4").tobytes()
    put("float_louder_than_full.wav", riff(
        fmt(FLOAT, 1, 16000, 32, extra=b"\0\0"),
        chunk(b"fact", struct.pack("<I", 200)), chunk(b"data", loud)))
    put("alaw_stereo.wav", riff(
        fmt(ALAW, 2, 8000, 8, extra=b"\0\0"),
        chunk(b"data", bytes(range(256)) * 2)))
    for mask, bits in ((0x3f, 16), (0, 24), (0x60f, 32)):
        put(f"six_channels_{bits}_bits.wav", riff(
            fmt(PCM, 6, 48000, bits, mask),
            chunk(b"data", as_bytes(tone(100, 6), bits))))
    put("valid_20_of_24_bits.wav", riff(
        fmt(PCM, 2, 16000, 24, 3, 20),
        chunk(b"data", as_bytes(tone(100, 2), 24))))
    put("valid_24_of_32_bits.wav", riff(
        fmt(PCM, 1, 16000, 32, 4, 24),
        chunk(b"data", as_bytes(tone(100), 32))))
    put("extensible_alaw.wav", riff(
        fmt(ALAW, 1, 8000, 8, 4), chunk(b"data", bytes(range(256)))))
    put("extensible_float.wav", riff(fmt(FLOAT, 1, 16000, 32, 4),
                                     chunk(b"data", loud)))
    # Chunks of other programs, before and behind.
    put("list_before_fmt.wav", riff(
        chunk(b"LIST", b"INFOISFT\5\0\0\0Lavf\0\0"), head, chunk(b"data", one)))
    put("odd_chunk.wav", riff(head, chunk(b"LIST", b"INFOx"),
                              chunk(b"data", one)))
    put("tag_behind.wav", riff(head, chunk(b"data", one),
                               chunk(b"id3 ", b"ID3\3\0\0\0\0\0\0")))
    put("broadcast.wav", riff(
        chunk(b"JUNK", b"\0" * 28), chunk(b"bext", b"\0" * 602), head,
        chunk(b"data", one)))
    put("odd_data.wav", riff(fmt(PCM, 1, 8000, 8),
                             chunk(b"data", as_bytes(tone(101), 8))))
    put("half_a_sample.wav", riff(head, chunk(b"data", one[:-1])))
    # Programs that could not go back to fill in the sizes. One of 0 is believed.
    put("bad_sizes_0.wav", riff(head, b"data\0\0\0\0" + one, size=0), True)
    put("riff_size_wrong.wav", riff(head, chunk(b"data", one), size=7))
    put("rf64_mono.wav", rf64(one, head, 201))
    put("rf64_size_told.wav", rf64(one, head, 201, len(one)))
    put("rf64_float_stereo.wav", rf64(
        (0.5 * tone(100, 2)).astype("<f4").tobytes(),
        fmt(FLOAT, 2, 44100, 32), 100))
    put("bad_no_samples.wav", riff(head, chunk(b"data", b"")), True)
    put("bad_no_samples_8k.wav", riff(fmt(PCM, 1, 8000, 8),
                                      chunk(b"data", b"")), True)
    put("bad_no_samples_behind_tag.wav", riff(
        head, chunk(b"data", b""), chunk(b"LIST", b"INFO")), True)
    put("bad_no_channels.wav", riff(fmt(PCM, 0, 16000, 16),
                                    chunk(b"data", one)), True)
    put("bad_no_format.wav", riff(chunk(b"data", one)), True)
    put("bad_bits.wav", riff(fmt(PCM, 1, 16000, 40), chunk(b"data", one)), True)
    put("bad_adpcm.wav", riff(fmt(2, 1, 16000, 4, extra=b"\0\0"),
                              chunk(b"data", one)), True)
    put("bad_big_endian.wav", b"RIFX" + riff(head, chunk(b"data", one))[4:],
        True)


def flacs():
    put("flac8.flac", written(16000, 1, "FLAC", "PCM_S8"))
    put("flac24_96k.flac", written(96000, 1, "FLAC", "PCM_24", 1500))
    put("flac_six_channels.flac", written(48000, 6, "FLAC", "PCM_16"))
    put("flac_one_sample.flac", written(16000, 1, "FLAC", "PCM_16", 1))
    # Programs for music put their tags before the file.
    tag = b"ID3\4\0\0\0\0\0\x0a" + b"\0" * 10
    put("flac_behind_tag.flac", tag + written(16000, 1, "FLAC", "PCM_16"))
    # STREAMINFO alone, as the last block, without and with a number of samples.
    head = bytearray(written(16000, 1, "FLAC", "PCM_16")[:42])
    head[4] |= 0x80
    put("bad_no_frames.flac", bytes(head), True)
    head[21:26] = bytes([head[21] & 0xf0]) + b"\0" * 4
    put("bad_no_samples.flac", bytes(head), True)


wavs()
flacs()
np.savez_compressed(OUT, **out)
print(len([n for n in out if n.startswith("file/")]), "files,",
      OUT.stat().st_size, "bytes")
