"""Tiny networks, tokenizers and schedulers with random weights, for any diffusers pipeline class, from its signature.

A class's own constructor says what it takes; `pipeline_recipes.py` and `pipeline_encoders.py` say which of its
arguments are made small. What a pipeline wants otherwise than others stands in `pipeline_exceptions.py`, by its name.
"""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any

import torch

from swinmr_profiling.scripts.tiny_pipelines.pipeline_encoders import ENCODERS
from swinmr_profiling.scripts.tiny_pipelines.pipeline_recipes import PROMPT_TOKENS, TINY

SPECIAL = [
    "<pad>", "<bos>", "<eos>", "<unk>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|image_pad|>", "<|video_pad|>",
    "<|vision_start|>", "<|vision_end|>", "<mask>", "<image>", "<|startoftext|>", "[gMASK]", "<sop>",
]  # fmt: skip
CHAT = (
    "{% for m in messages %}{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for part in m['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% elif part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% endif %}{% endfor %}"
    "{% endif %}{% endfor %}"
)

# What an abstract annotation stands for.
STANDS_FOR = {
    "Gemma2PreTrainedModel": "Gemma2Model",
    "GemmaPreTrainedModel": "GemmaModel",
    "PreTrainedModel": "Qwen3Model",
}
OPTIONAL = (
    "safety_checker", "watermark", "watermarker", "image_encoder", "feature_extractor", "requires_safety_checker",
)  # fmt: skip


class NotConstructibleError(Exception):
    """A component nobody here knows how to make small."""


@functools.cache
def tokenizer() -> Any:
    """A fast tokenizer of single bytes, with the special tokens that language models' templates use."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    entries = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    inner = Tokenizer(models.BPE(vocab={entry: n for n, entry in enumerate(entries)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(SPECIAL)
    inner.post_processor = processors.TemplateProcessing(
        single="$A <eos>", pair="$A $B <eos>", special_tokens=[("<eos>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", unk_token="<unk>",
        model_max_length=PROMPT_TOKENS, chat_template=CHAT,
    )  # fmt: skip


def small(kind: type, **changes: Any) -> Any:
    """A network of a diffusers class, made small, in eval mode. Raises NotConstructibleError for an unknown class."""
    if kind.__name__ not in TINY:
        raise NotConstructibleError(f"no tiny {kind.__name__} is known")
    accepted = inspect.signature(kind).parameters
    arguments = {k: v for k, v in {**TINY[kind.__name__], **changes}.items() if k in accepted}
    torch.manual_seed(0)
    return kind(**arguments).eval()


def encoder(name: str, **changes: Any) -> Any:
    """A network of transformers."""
    import transformers

    key = "Qwen3Model" if name == "PreTrainedModel" else name
    if key not in ENCODERS:
        raise NotConstructibleError(f"no tiny {name} is known")
    config, arguments = ENCODERS[key]
    torch.manual_seed(0)
    settings = getattr(transformers, config)(**{**arguments, **changes})
    return getattr(transformers, STANDS_FOR.get(name, name))(settings).eval()


def image_processor(name: str) -> Any:
    """An image processor for the tiny vision networks."""
    import transformers

    kind = getattr(transformers, name)
    return (
        kind(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
        if "CLIP" in name
        else kind(size={"height": 32, "width": 32})
    )


def vision_language_processor(name: str) -> Any:
    """A processor of Qwen's, for images of a few patches."""
    import transformers

    small_images = dict(patch_size=14, merge_size=2, min_pixels=28 * 28, max_pixels=56 * 56)
    return getattr(transformers, name)(
        image_processor=transformers.Qwen2VLImageProcessor(**small_images),
        tokenizer=tokenizer(),
        video_processor=transformers.Qwen2VLVideoProcessor(**small_images),
        chat_template=CHAT,
    )


def classes_of(annotation: Any) -> list[str]:
    """Names of the classes in an annotation, in order."""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return re.findall(r"[A-Za-z_][A-Za-z0-9_]*", re.sub(r"[\w.]+\.(?=\w)", "", text))


def component(name: str, annotation: Any, changes: dict[str, Any]) -> Any:
    """A component by the name and the annotation of the pipeline's argument. Raises NotConstructibleError."""
    import diffusers
    import transformers

    names = classes_of(annotation)
    if any(one.endswith("VLProcessor") for one in names):
        return vision_language_processor(next(one for one in names if one.endswith("VLProcessor")))
    if "tokenizer" in name and "audio" not in name:
        return tokenizer()
    if "processor" in name or "feature_extractor" in name:
        for one in names:
            if one == "CLIPProcessor":
                return image_processor("CLIPImageProcessor")
            if one.endswith("ImageProcessor"):
                return image_processor(one)
        raise NotConstructibleError(f"no tiny {name} ({', '.join(names)}) is known")
    for one in names:
        if one == "KarrasDiffusionSchedulers" or one == "SchedulerMixin":
            return diffusers.DDIMScheduler(clip_sample=False)
        kind = getattr(diffusers, one, None)
        if isinstance(kind, type):
            if one.endswith("Scheduler"):
                return kind(**changes)
            return small(kind, **changes)
        if isinstance(getattr(transformers, one, None), type):
            return encoder(one, **changes)
    raise NotConstructibleError(f"no tiny {name} ({', '.join(names) or annotation}) is known")
