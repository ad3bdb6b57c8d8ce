#!/usr/bin/env python3
"""Writes the folders beside it: tiny random encoders as Hugging Face has them,
the same as ONNX, and golden.json, what transformers gives for texts.

    python3 tests/data/encoders/make_encoders.py [NAME...]

The folders bert_*, with their ONNX files, are of transformers 4.38.2, tokenizers
0.15.2, torch 1.13.1 on the CPU; the others of transformers 5.24.0, tokenizers
0.23.3, torch 2.15.0; *_ner of transformers 5.23.0. The vocabulary is that of tests/golden/text/
word_pieces.json, or byte-level BPE. make_gguf.py makes GGUF files of some.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import (BertConfig, BertForSequenceClassification, BertModel,
                          RobertaConfig, RobertaModel)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

HERE = pathlib.Path(__file__).parent
TEXTS = ["", "mill", "The mill turns the water, and the water turns the mill.",
         "Hello world! Isn't it 2024?", "\u00dcber allen Gipfeln ist Ruh",
         "\u6c34\u8f66\u306f\u56de\u308b", "a b c d e f g h i j k l m n o p q r s t",
         "the " * 60]
QUERY = "What turns the mill?"
MAX_LENGTH = 48


def tokenizer():
    golden = json.loads((HERE.parents[1] / "golden/text/word_pieces.json").read_text())
    tok = Tokenizer.from_str(json.dumps(golden["cases"][0]["tokenizer"]))
    tok.enable_truncation(MAX_LENGTH)
    return tok


def randomise(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, value in model.named_parameters():
        noise = torch.randn(value.shape, generator=generator)
        if name.endswith(("LayerNorm.weight", "layernorm.weight", "norm.weight")):
            value.data = 1 + 0.2 * noise
        elif value.dim() == 2:
            value.data = noise * (0.5 if "embeddings" in name else
                                  1.2 / value.shape[1] ** 0.5)
        else:
            value.data = 0.1 * noise
    return model.eval()


def encode(tok, text, pair=None):
    got = tok.encode(text, pair) if pair is not None else tok.encode(text)
    return {"input_ids": torch.tensor([got.ids]),
            "attention_mask": torch.tensor([got.attention_mask]),
            "token_type_ids": torch.tensor([got.type_ids])}


def export(model, outputs, path):
    names = ["input_ids", "attention_mask", "token_type_ids"]
    example = encode(tokenizer(), "Hello world")
    axes = {n: {0: "batch_size", 1: "sequence_length"} for n in names}
    axes[outputs] = {0: "batch_size"}
    if outputs == "last_hidden_state":
        axes[outputs][1] = "sequence_length"
    torch.onnx.export(model, tuple(example[n] for n in names), str(path),
                      input_names=names, output_names=[outputs],
                      dynamic_axes=axes, opset_version=14)


def save(folder, model, tok, architecture):
    folder.mkdir(exist_ok=True)
    config = model.config.to_dict()
    config["architectures"] = [architecture]
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tok = Tokenizer.from_str(tok.to_str())
    tok.no_truncation()
    (folder / "tokenizer.json").write_text(tok.to_str())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"model_max_length": MAX_LENGTH}) + "\n")
    state = {k: v.contiguous() for k, v in model.state_dict().items()
             if "position_ids" not in k and "token_type_ids" not in k}
    save_file(state, str(folder / "model.safetensors"), {"format": "pt"})


def bert(hidden, layers, **more):
    return BertConfig(vocab_size=len(tokenizer().get_vocab()), hidden_size=hidden,
                      num_hidden_layers=layers, num_attention_heads=4,
                      intermediate_size=2 * hidden, max_position_embeddings=64,
                      torch_dtype="float32", **more)


def make_embed():
    folder, tok = HERE / "bert_embed", tokenizer()
    model = randomise(BertModel(bert(32, 2), add_pooling_layer=False), 1)
    save(folder, model, tok, "BertModel")
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(json.dumps(
        {"word_embedding_dimension": 32, "pooling_mode_cls_token": False,
         "pooling_mode_mean_tokens": True}) + "\n")
    (folder / "modules.json").write_text(json.dumps(
        [{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
         {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
         {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])
        + "\n")
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": MAX_LENGTH, "do_lower_case": False}) + "\n")
    export(model, "last_hidden_state", folder / "model.onnx")
    golden = {"texts": TEXTS, "tokens": [], "mean": [], "cls": [], "max": [], "last": []}
    for text in TEXTS:
        inputs = encode(tok, text)
        hidden = model(**inputs).last_hidden_state[0].detach()
        golden["tokens"].append(len(hidden))
        golden["mean"].append(torch.nn.functional.normalize(hidden.mean(0), dim=0).tolist())
        golden["cls"].append(hidden[0].tolist())
        golden["max"].append(hidden.max(0).values.tolist())
        golden["last"].append(hidden[-1].tolist())
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


def make_scores(name, labels, seed):
    folder, tok = HERE / name, tokenizer()
    names = {i: n for i, n in enumerate(labels)}
    config = bert(16, 2, id2label=names, label2id={n: i for i, n in names.items()})
    model = randomise(BertForSequenceClassification(config), seed)
    save(folder, model, tok, "BertForSequenceClassification")
    export(model, "logits", folder / "model.onnx")
    pairs = len(labels) == 1
    logits = [model(**(encode(tok, QUERY, t) if pairs else encode(tok, t))
                    ).logits[0].tolist() for t in TEXTS]
    golden = {"query": QUERY if pairs else None, "texts": TEXTS, "logits": logits}
    if pairs:
        golden["alone"] = [model(**encode(tok, t)).logits[0].item() for t in TEXTS]
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


def byte_level(template):
    """Byte-level BPE with RoBERTa's or ModernBERT's tokens around a text."""
    from make_tiny_hf import QWEN2, train
    from tokenizers import AddedToken, processors
    tok = train(QWEN2, ignore_merges=False, nfc=False)
    names = ("<s>", "</s>", "<pad>") if template == "roberta" else (
        "[CLS]", "[SEP]", "[PAD]")
    tok.add_special_tokens([AddedToken(n, special=True) for n in names])
    cls, sep = (tok.token_to_id(n) for n in names[:2])
    if template == "roberta":
        tok.post_processor = processors.RobertaProcessing(
            ("</s>", sep), ("<s>", cls), add_prefix_space=False)
    else:
        tok.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]",
            special_tokens=[("[CLS]", cls), ("[SEP]", sep)])
    tok.enable_truncation(MAX_LENGTH)
    return tok


def make_newer(name, model, tok, architecture, scores=False):
    """Saved by transformers itself, for its names of tensors."""
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    model.save_pretrained(folder)
    plain = Tokenizer.from_str(tok.to_str())
    plain.no_truncation()
    (folder / "tokenizer.json").write_text(plain.to_str())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"model_max_length": MAX_LENGTH}) + "\n")
    types = "type_vocab_size" in model.config.to_dict() and (
        model.config.type_vocab_size > 1)

    def inputs(text, pair=None):
        got = encode(tok, text, pair)
        return got if types else {k: v for k, v in got.items()
                                  if k != "token_type_ids"}

    texts = [t for t in TEXTS if t]
    if scores:
        golden = {"query": QUERY, "texts": texts, "logits": [
            model(**inputs(QUERY, t)).logits[0].tolist() for t in texts]}
    else:
        golden = {"texts": texts, "tokens": [], "mean": [], "cls": []}
        for text in texts:
            hidden = model(**inputs(text)).last_hidden_state[0].detach()
            golden["tokens"].append(len(hidden))
            golden["mean"].append(torch.nn.functional.normalize(
                hidden.mean(0), dim=0).tolist())
            golden["cls"].append(hidden[0].tolist())
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")
    for path in folder.iterdir():
        path.chmod(0o644)


def make_roberta():
    tok = byte_level("roberta")
    model = RobertaModel(RobertaConfig(
        vocab_size=tok.get_vocab_size(), hidden_size=32, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=64, max_position_embeddings=66,
        type_vocab_size=1, pad_token_id=1,
        bos_token_id=tok.token_to_id("<s>"), eos_token_id=tok.token_to_id("</s>")),
        add_pooling_layer=False)
    make_newer("roberta_embed", randomise(model, 4), tok, "RobertaModel")


def make_nomic():
    from transformers import NomicBertConfig, NomicBertModel
    tok = tokenizer()
    model = NomicBertModel(NomicBertConfig(
        vocab_size=len(tok.get_vocab()), hidden_size=32, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=64, type_vocab_size=2,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0}),
        add_pooling_layer=False)
    make_newer("nomic_embed", randomise(model, 5), tok, "NomicBertModel")


def make_modern(name, scores):
    from transformers import (ModernBertConfig,
                              ModernBertForSequenceClassification,
                              ModernBertModel)
    tok = byte_level("modern")
    config = ModernBertConfig(
        vocab_size=tok.get_vocab_size(), hidden_size=32, num_hidden_layers=4,
        num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=64, local_attention=8,
        pad_token_id=tok.token_to_id("[PAD]"), bos_token_id=None,
        cls_token_id=tok.token_to_id("[CLS]"), eos_token_id=None,
        sep_token_id=tok.token_to_id("[SEP]"), num_labels=1,
        classifier_pooling="mean", attn_implementation="eager")
    kind = ModernBertForSequenceClassification if scores else ModernBertModel
    make_newer(name, randomise(kind(config), 6), tok, kind.__name__, scores)


def make_decoder():
    """As Qwen3-Embedding: a decoder without a head whose texts end with its
    end, and whose vector is the last token's."""
    from make_tiny_hf import QWEN2, train
    from tokenizers import processors
    from transformers import Qwen3Config, Qwen3Model
    folder = HERE / "qwen3_embed"
    tok = train(QWEN2, ignore_merges=False, nfc=True)
    end = tok.token_to_id("<|end|>")
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="$A <|end|>", pair="$A $B <|end|>",
                                      special_tokens=[("<|end|>", end)])])
    model = randomise(Qwen3Model(Qwen3Config(
        vocab_size=320, hidden_size=32, intermediate_size=48, head_dim=16,
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        max_position_embeddings=256, tie_word_embeddings=True,
        eos_token_id=end, bos_token_id=None, pad_token_id=None)), 7)
    folder.mkdir(exist_ok=True)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tok.to_str())
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"model_max_length": 200, "eos_token": "<|end|>"}) + "\n")
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(json.dumps(
        {"word_embedding_dimension": 32, "pooling_mode_cls_token": False,
         "pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}) + "\n")
    (folder / "modules.json").write_text(json.dumps(
        [{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
         {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
         {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])
        + "\n")
    golden = {"texts": [t for t in TEXTS if t], "ids": [], "mean": [], "last": []}
    for text in golden["texts"]:
        ids = tok.encode(text).ids
        hidden = model(torch.tensor([ids])).last_hidden_state[0].detach()
        golden["ids"].append(ids)
        golden["mean"].append(torch.nn.functional.normalize(hidden.mean(0), dim=0).tolist())
        golden["last"].append(torch.nn.functional.normalize(hidden[-1], dim=0).tolist())
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(0o644)


NER_TEXTS = [
    "", "mill", "Isn't the unaffable Mill in 12345 Wipfeln?",
    "\u00dcber allen Gipfeln ist Ruh, sp\u00fcrest du kaum",
    "\u00dcber  allen\tGi\u0301pfe\u0308ln u\u0308ber THE \u0130 mill.",
    "\u6c34\u8f66\u306f\u56de\u308b the \U0001f600 mill \u200b water",
    "\u041c\u0435\u043b\u044c\u043d\u0438\u0446\u0430 \u043a\u0440\u0443\u0442\u0438\u0442\u0441\u044f, \u0432\u043e\u0434\u0430 \u0442\u0435\u0447\u0451\u0442",
    "the mill{0} turns [UNK] water  {1} , n't the mill's here",
    "the " * 60]
STRATEGIES = ["none", "simple", "first", "average", "max"]
NER_LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "MISC"]


def make_ner(name, model, tok, marks):
    """What transformers' pipeline says of texts, with every strategy."""
    from transformers import PreTrainedTokenizerFast, TokenClassificationPipeline
    folder = HERE / name
    model.classifier.weight.data *= 4  # so that labels differ
    plain = Tokenizer.from_str(tok.to_str())
    plain.no_truncation()
    save(folder, model, plain, type(model).__name__)
    (folder / "model.safetensors").unlink()
    types = model.config.type_vocab_size > 1
    got = encode(tok, "Hello world")
    names = [n for n in got if types or n != "token_type_ids"]
    axes = {n: {0: "batch_size", 1: "sequence_length"} for n in [*names, "logits"]}
    torch.onnx.export(model, tuple(got[n] for n in names),
                      str(folder / "model.onnx"), input_names=names,
                      output_names=["logits"], dynamic_axes=axes,
                      opset_version=14, dynamo=False)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=plain, model_max_length=MAX_LENGTH,
        unk_token="[UNK]" if types else None,
        model_input_names=names)
    pipeline = TokenClassificationPipeline(model=model, tokenizer=fast)
    texts = [t.format(*marks) for t in NER_TEXTS]
    golden = {"texts": texts, "entities": {}, "all": []}
    for strategy in STRATEGIES:
        golden["entities"][strategy] = [
            pipeline(t, aggregation_strategy=strategy) for t in texts]
    golden["all"] = [pipeline(t, aggregation_strategy="none", ignore_labels=[])
                     for t in texts]
    (folder / "golden.json").write_text(json.dumps(golden, default=float) + "\n")
    for path in folder.iterdir():
        path.chmod(0o644)


def make_bert_ner():
    from tokenizers import decoders
    from transformers import BertForTokenClassification
    tok = tokenizer()
    tok.decoder = decoders.WordPiece("##", True)
    config = bert(16, 2, id2label=dict(enumerate(NER_LABELS)),
                  label2id={n: i for i, n in enumerate(NER_LABELS)})
    make_ner("bert_ner", randomise(BertForTokenClassification(config), 8), tok,
             ("[SEP]", "[MASK]"))


def make_roberta_ner():
    from transformers import RobertaForTokenClassification
    tok = byte_level("roberta")
    config = RobertaConfig(
        vocab_size=tok.get_vocab_size(), hidden_size=16, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=32, max_position_embeddings=66,
        type_vocab_size=1, pad_token_id=1,
        id2label=dict(enumerate(NER_LABELS)),
        label2id={n: i for i, n in enumerate(NER_LABELS)})
    make_ner("roberta_ner", randomise(RobertaForTokenClassification(config), 9),
             tok, ("</s>", "<think>"))


MAKERS = {
    "bert_ner": make_bert_ner,
    "roberta_ner": make_roberta_ner,
    "qwen3_embed": make_decoder,
    "roberta_embed": make_roberta,
    "nomic_embed": make_nomic,
    "modernbert_embed": lambda: make_modern("modernbert_embed", False),
    "modernbert_rerank": lambda: make_modern("modernbert_rerank", True),
    "bert_embed": make_embed,
    "bert_rerank": lambda: make_scores("bert_rerank", ["relevance"], 2),
    "bert_classify": lambda: make_scores("bert_classify", ["calm", "glad", "sad"], 3),
}

if __name__ == "__main__":
    with torch.no_grad():
        for each in sys.argv[1:] or MAKERS:
            MAKERS[each]()
