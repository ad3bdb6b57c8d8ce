"""TorchServe handler of raw tensors: float32 3x224x224 images (the best class is
answered), or int64 token ids of any number, padded to the longest of the batch
(the sentence's vector is answered)."""
import numpy as np
import torch
from ts.torch_handler.base_handler import BaseHandler


class RawTensors(BaseHandler):
    def initialize(self, context):
        super().initialize(context)
        self.tokens = context.manifest["model"]["modelName"].startswith("minilm")

    def preprocess(self, data):
        bodies = [bytes(r.get("data") or r.get("body")) for r in data]
        if not self.tokens:
            return (torch.from_numpy(np.stack([
                np.frombuffer(b, np.float32).reshape(3, 224, 224) for b in bodies])),)
        rows = [np.frombuffer(b, np.int64) for b in bodies]
        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        mask = np.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, :len(row)] = row
            mask[i, :len(row)] = 1
        return torch.from_numpy(ids), torch.from_numpy(mask)

    def inference(self, data):
        with torch.inference_mode():
            out = self.model(*data)
        return out[1] if self.tokens else out

    def postprocess(self, out):
        return out.tolist() if self.tokens else out.argmax(1).tolist()
