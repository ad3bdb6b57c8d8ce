"""Steps of an ensemble that reads text in pictures with PP-OCR: what stands before,
between and behind its three graphs. Each is a model of its own; the command in its
config.yaml names it: `python3 ocr_steps.py read`. Needs numpy, opencv-python-headless
and pyclipper.

    read    a picture's file -> its pixels, and the input of the detector
    crop    pixels, the detector's map -> lines of text, cut out and straight, and boxes
    write   lines -> texts and scores; calls the two other graphs itself, since it
            decides which lines they get together

Sizes and thresholds are those of rapidocr_onnxruntime 1.4.
"""
import pathlib
import sys

import cv2
import millrace_handler
import numpy as np
import pyclipper

cv2.setNumThreads(1)
LONGEST, SHORTEST = 2000, 30    # sides of a picture; others are scaled
FLATTEST = 8                    # width by height, else bars are added above and below
DETECTOR_SIDE = 736             # the shorter side of what the detector sees, at least
MAP_LIMIT, BOX_LIMIT, GROWTH = 0.3, 0.5, 1.6
MOST_BOXES = 1000
TURNED_LIMIT, TEXT_LIMIT = 0.9, 0.5
TOGETHER = 6                    # lines of one request to a graph


def to_32(side):
    return int(round(side / 32) * 32)


def resized(image, ratio):
    height, width = image.shape[:2]
    size = to_32(int(width * ratio)), to_32(int(height * ratio))
    if min(size) <= 0:
        raise ValueError(f"a picture of {width} x {height} is too narrow to be read")
    return cv2.resize(image, size)


def over_paper(image):
    """Colours of a picture with transparency: dark text over white, or light text as
    its negative."""
    shown = np.where(image[..., 3:] > 0, image[..., :3], 0)
    if shown.any():
        return 255 - shown
    return cv2.add(shown, np.repeat(255 - image[..., 3:], 3, axis=2))


def decode(file):
    image = cv2.imdecode(file, cv2.IMREAD_UNCHANGED)
    if image is None:
        raise ValueError("the picture is in no format that OpenCV reads")
    if image.dtype != np.uint8:
        image = (image / 257).astype(np.uint8)
    if image.ndim == 2:
        return cv2.cvtColor(image, cv2.COLOR_GRAY2BGR)
    return over_paper(image) if image.shape[2] == 4 else image


def place(image):
    """The picture as the detector sees it, and what makes a point of it one of the
    file: (x - left) * scale."""
    height, width = image.shape[:2]
    if max(height, width) > LONGEST:
        image = resized(image, LONGEST / max(height, width))
    if min(image.shape[:2]) < SHORTEST:
        image = resized(image, SHORTEST / min(image.shape[:2]))
    seen_height, seen_width = image.shape[:2]
    bar = 0
    if seen_height <= SHORTEST or seen_width / seen_height > FLATTEST:
        wanted = 2 * max(int(seen_width / FLATTEST), SHORTEST)
        bar = abs(wanted - seen_height) // 2
        image = cv2.copyMakeBorder(image, bar, bar, 0, 0, cv2.BORDER_CONSTANT)
    return image, np.array([bar, width / seen_width, height / seen_height, width, height],
                           np.float32)


def normalised(image):
    """[height, width, 3] bytes -> [3, height, width], -1 to 1."""
    values = image.astype(np.float32).transpose(2, 0, 1) / np.float32(255)
    return (values - np.float32(0.5)) / np.float32(0.5)


class Read(millrace_handler.Handler):
    inputs = {"picture": ("UINT8", [-1])}
    outputs = {"image": ("UINT8", [-1, -1, 3]), "place": ("FP32", [5]),
               "x": ("FP32", [1, 3, -1, -1])}

    def handle(self, inputs, context):
        image, where = place(decode(inputs["picture"]))
        ratio = max(1, DETECTOR_SIDE / min(image.shape[:2]))
        return {"image": image, "place": where, "x": normalised(resized(image, ratio))[None]}


def corners(points):
    """The smallest rectangle around points, its corners from the upper left one on
    clockwise, and its shorter side."""
    rectangle = cv2.minAreaRect(points)
    left_to_right = sorted(cv2.boxPoints(rectangle), key=lambda p: p[0])
    left = sorted(left_to_right[:2], key=lambda p: p[1])
    right = sorted(left_to_right[2:], key=lambda p: p[1])
    return np.array([left[0], right[0], right[1], left[1]]), min(rectangle[1])


def mean_within(values, box):
    low = np.clip(np.floor(box.min(0)).astype(int), 0, np.array(values.shape[::-1]) - 1)
    high = np.clip(np.ceil(box.max(0)).astype(int), 0, np.array(values.shape[::-1]) - 1)
    part = values[low[1]:high[1] + 1, low[0]:high[0] + 1]
    mask = np.zeros(part.shape, np.uint8)
    cv2.fillPoly(mask, [(box - low).astype(np.int32)], 1)
    return cv2.mean(part, mask)[0]


def grown(box):
    """The box with a border as broad as its area by its circumference demands."""
    sides = np.linalg.norm(box - np.roll(box, 1, axis=0), axis=1)
    x, y = box.T
    area = abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2
    offset = pyclipper.PyclipperOffset()
    offset.AddPath(box, pyclipper.JT_ROUND, pyclipper.ET_CLOSEDPOLYGON)
    return np.array(offset.Execute(area * GROWTH / sides.sum())[0]).reshape(-1, 1, 2)


def boxes_of(values, width, height):
    """Boxes of text in a map of probabilities, in pixels of the picture."""
    mask = cv2.dilate((values > MAP_LIMIT).astype(np.uint8), np.ones((2, 2), np.uint8))
    outlines, _ = cv2.findContours(mask * 255, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    found = []
    for outline in outlines[:MOST_BOXES]:
        box, side = corners(outline)
        if side < 3 or mean_within(values, box) < BOX_LIMIT:
            continue
        box, side = corners(grown(box))
        if side < 5:
            continue
        scale = np.array([width, height]) / values.shape[::-1]
        box = np.clip(np.round(box * scale), 0, [width, height]).astype(np.int32)
        box = clockwise(np.clip(box, 0, [width - 1, height - 1]).astype(np.float32))
        if min(int(np.linalg.norm(box[0] - box[1])), int(np.linalg.norm(box[0] - box[3]))) > 3:
            found.append(box)
    return found


def clockwise(box):
    by_x = box[np.argsort(box[:, 0])]
    left = by_x[:2][np.argsort(by_x[:2, 1])]
    right = by_x[2:][np.argsort(by_x[2:, 1])]
    return np.array([left[0], right[0], right[1], left[1]])


def in_reading_order(boxes):
    """From above; those that begin less than 10 pixels lower are a line, from the left."""
    boxes = sorted(boxes, key=lambda box: (box[0][1], box[0][0]))
    for i in range(1, len(boxes)):
        for j in range(i, 0, -1):
            before, here = boxes[j - 1][0], boxes[j][0]
            if abs(here[1] - before[1]) >= 10 or here[0] >= before[0]:
                break
            boxes[j - 1], boxes[j] = boxes[j], boxes[j - 1]
    return boxes


def cut(image, box):
    """The box as a straight picture; upright ones are laid down."""
    width = int(max(np.linalg.norm(box[0] - box[1]), np.linalg.norm(box[2] - box[3])))
    height = int(max(np.linalg.norm(box[0] - box[3]), np.linalg.norm(box[1] - box[2])))
    target = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    line = cv2.warpPerspective(image, cv2.getPerspectiveTransform(box, target), (width, height),
                               borderMode=cv2.BORDER_REPLICATE, flags=cv2.INTER_CUBIC)
    return np.rot90(line) if height / width >= 1.5 else line


class Crop(millrace_handler.Handler):
    """`lines` are the pixels of all lines, one behind the other, `sizes` their heights
    and widths, `boxes` their corners in pixels of the file."""
    inputs = {"image": ("UINT8", [-1, -1, 3]), "place": ("FP32", [5]),
              "map": ("FP32", [1, 1, -1, -1])}
    outputs = {"lines": ("UINT8", [-1]), "sizes": ("INT64", [-1, 2]),
               "boxes": ("FP32", [-1, 4, 2]), "count": ("INT64", [1])}

    def handle(self, inputs, context):
        image = inputs["image"]
        bar, scale_x, scale_y, width, height = inputs["place"]
        boxes = in_reading_order(
            boxes_of(inputs["map"][0, 0], image.shape[1], image.shape[0]))
        lines = [cut(image, box) for box in boxes]
        placed = np.array(boxes, np.float32).reshape(-1, 4, 2)
        placed = (placed - np.array([0, bar], np.float32)) * np.array([scale_x, scale_y], np.float32)
        return {"lines": np.concatenate([np.empty(0, np.uint8), *(a.ravel() for a in lines)]),
                "sizes": np.array([a.shape[:2] for a in lines], np.int64).reshape(-1, 2),
                "boxes": np.clip(placed, 0, np.array([width, height], np.float32)),
                "count": np.array([len(boxes)], np.int64)}


def rows(lines, width):
    """Lines of one height, at the left of [n, 3, 48, width]; the rest is 0."""
    made = np.zeros((len(lines), 3, 48, width), np.float32)
    for row, line in zip(made, lines):
        wide = min(width, int(np.ceil(48 * line.shape[1] / line.shape[0])))
        row[:, :, :wide] = normalised(cv2.resize(line, (wide, 48)))
    return made


class Write(millrace_handler.Handler):
    """`text`: UTF-8, a line for each score; what scores less than TEXT_LIMIT is left
    out, and its box."""
    inputs = {"lines": ("UINT8", [-1]), "sizes": ("INT64", [-1, 2]),
              "boxes": ("FP32", [-1, 4, 2])}
    outputs = {"text": ("UINT8", [-1]), "scores": ("FP32", [-1]),
               "places": ("FP32", [-1, 4, 2])}

    def initialize(self, context):
        words = pathlib.Path("keys.txt").read_text("utf-8").split("\n")
        self.keys = ["", *words, " "]  # 0 is the blank

    def handle(self, inputs, context):
        lines, at = [], 0
        for height, width in inputs["sizes"]:
            size = int(height * width * 3)
            lines.append(inputs["lines"][at:at + size].reshape(height, width, 3))
            at += size
        self.turn(lines, context)
        read = self.read(lines, context)
        kept = [i for i, (_, score) in enumerate(read) if score >= TEXT_LIMIT]
        text = "\n".join(read[i][0] for i in kept)
        return {"text": np.frombuffer(text.encode(), np.uint8),
                "scores": np.array([read[i][1] for i in kept], np.float32),
                "places": inputs["boxes"][kept]}

    @staticmethod
    def groups(lines):
        """Places of lines that go together: those that are alike in width."""
        order = np.argsort([line.shape[1] / line.shape[0] for line in lines])
        return [order[i:i + TOGETHER] for i in range(0, len(order), TOGETHER)]

    def turn(self, lines, context):
        for group in self.groups(lines):
            x = rows([lines[i] for i in group], 192)
            odds = next(iter(context.call("ocr_turned", {"x": x}).values()))
            for i, (_, turned) in zip(group, odds):
                if turned > TURNED_LIMIT:
                    lines[i] = np.ascontiguousarray(lines[i][::-1, ::-1])

    def read(self, lines, context):
        read = [None] * len(lines)
        for group in self.groups(lines):
            widest = max(320 / 48, *(lines[i].shape[1] / lines[i].shape[0] for i in group))
            x = rows([lines[i] for i in group], int(48 * widest))
            odds = next(iter(context.call("ocr_recognise", {"x": x}).values()))
            for i, best, scores in zip(group, odds.argmax(2), odds.max(2)):
                new = best != 0
                new[1:] &= best[1:] != best[:-1]
                read[i] = ("".join(self.keys[k] for k in best[new]),
                           float(scores[new].mean()) if new.any() else 0.0)
        return read


millrace_handler.serve({"read": Read, "crop": Crop, "write": Write}[sys.argv[1]]())
