"""What `lht export` wrote, with numpy, Pillow and onnxruntime alone: python onnx_predict.py birds.onnx beach.jpg …

A model on features takes .npz files with `x`. The answer is the deepest class on the best path through the tree that reaches
the threshold kept in the file.
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
about = json.loads(session.get_modelmeta().custom_metadata_map["torchlht"])
levels, spec = about["hierarchy"]["levels"], about["preprocess"]  # levels are fine first, as the outputs are
threshold = about["threshold"]["value"] if about["threshold"] else 0.0
kinds = about["kinds"] if "kinds" in about else [about["kind"]] * len(levels)  # earlier files have one for all levels
if about["rule"] not in ("path", "argmax"):  # earlier files say argmax
    sys.exit(f"{about['method']} answers {about['rule']}, which this example does not; lht predict does")


def prepare(path):
    """A picture, resized, cropped and standardised: (1, 3, size, size). Transparency and 16 bits are left to `lht predict`."""
    image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    size, scale = spec["size"], spec["resize"] / min(image.size)
    sides = [spec["resize"]] * 2 if spec["stretch"] else [max(round(side * scale), size) for side in image.size]
    image = image.resize(sides, Image.Resampling[spec["interpolation"].upper()])
    left, top = (image.width - size) // 2, (image.height - size) // 2
    pixels = np.asarray(image.crop((left, top, left + size, top + size)), dtype=np.float32) / 255
    return ((pixels - np.float32(spec["mean"])) / np.float32(spec["std"])).transpose(2, 0, 1)[None]


def calibrated(log_p, temperature, kind):
    """Probabilities at a level's temperature: a distribution, or one for each class by itself."""
    if kind == "sigmoid":
        return 1 / (1 + np.exp((np.log(-np.expm1(np.minimum(log_p, -1e-7))) - log_p) / temperature))
    scaled = np.exp((log_p - log_p.max(axis=1, keepdims=True)) / temperature)
    return scaled / scaled.sum(axis=1, keepdims=True)


for name in sys.argv[2:]:
    outputs = session.run(None, {"input": prepare(name) if spec else np.load(name)["x"].astype(np.float32)})
    probabilities = [calibrated(*level) for level in zip(outputs[: len(levels)], about["temperatures"], kinds, strict=True)]
    paths = [np.arange(len(levels[0]["classes"]))]  # per level, the class above each finest class
    for level in levels[:-1]:
        paths.append(np.array(level["parents"])[paths[-1]])
    for i in range(len(outputs[0])):
        best = sum(np.log(p[i, path]) for p, path in zip(probabilities, paths, strict=True)).argmax()
        answer, least = "nothing is sure enough", 1.0
        for level, p, path in reversed(list(zip(levels, probabilities, paths, strict=True))):  # coarse to fine
            least = min(least, p[i, path[best]])  # no class is more probable than its parent
            if least >= threshold and level["classes"][path[best]] is not None:  # else the branch ends early or skips the level
                answer = f"{level['classes'][path[best]]} ({level['name']}, {100 * least:.0f} %)"
        print(f"{name}{'' if spec else f' row {i}'}: {answer}")
