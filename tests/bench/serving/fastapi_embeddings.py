"""/v1/embeddings in Python, the peer of embeddings.py: FastAPI, tokenizers and ONNX
Runtime, as many processes as cores, each with one thread.

    GRAPH=minilm.onnx TOKENIZER=tokenizer.json uvicorn --workers 2 fastapi_embeddings:app
"""
import os

import numpy as np
import onnxruntime
from fastapi import FastAPI
from pydantic import BaseModel
from tokenizers import Tokenizer

OPTIONS = onnxruntime.SessionOptions()
OPTIONS.intra_op_num_threads = OPTIONS.inter_op_num_threads = 1
SESSION = onnxruntime.InferenceSession(os.environ["GRAPH"], OPTIONS)
TOKENIZER = Tokenizer.from_file(os.environ["TOKENIZER"])
TOKENIZER.enable_truncation(256)
TOKENIZER.enable_padding()
app = FastAPI()


class Request(BaseModel):
    model: str
    input: str | list[str]
    encoding_format: str = "float"


@app.get("/health")
def health():
    return {}


@app.post("/v1/embeddings")
async def embeddings(request: Request):
    texts = [request.input] if isinstance(request.input, str) else request.input
    encoded = TOKENIZER.encode_batch(texts)
    ids = np.array([e.ids for e in encoded], np.int64)
    mask = np.array([e.attention_mask for e in encoded], np.int64)
    rows = SESSION.run(["div_1"], {"input_ids": ids, "attention_mask": mask})[0]
    tokens = int(mask.sum())
    return {"object": "list", "model": request.model,
            "data": [{"object": "embedding", "index": i, "embedding": row}
                     for i, row in enumerate(rows.tolist())],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
