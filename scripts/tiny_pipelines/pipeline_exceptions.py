"""What single pipeline classes want otherwise than the rest: of their components, and of a call."""

from __future__ import annotations

from typing import Any

import torch

from swinmr_profiling.scripts.tiny_pipelines.pipeline_components import component, encoder
from swinmr_profiling.scripts.tiny_pipelines.pipeline_recipes import WIDTH

SIDE = 64
FRAMES = 9

SDXL_UNET = dict(
    addition_embed_type="text_time", addition_time_embed_dim=8, projection_class_embeddings_input_dim=6 * 8 + WIDTH,
    cross_attention_dim=2 * WIDTH,
)  # fmt: skip
# Of text to image with two text encoders: patterns of names -> component -> changes.
FAMILIES: list[tuple[str, dict[str, dict[str, Any]]]] = [
    ("XL", {"unet": SDXL_UNET, "controlnet": SDXL_UNET}),
]


def image(side: int = SIDE) -> Any:
    from PIL import Image

    return Image.new("RGB", (side, side), (120, 40, 200))


def mask() -> Any:
    from PIL import Image

    return Image.new("L", (SIDE, SIDE), 255)


LEAVE = object()


class _Passes:
    """In the place of a guard network that wants packages of its own: lets everything through."""

    def to(self, *_: Any, **__: Any) -> _Passes:
        return self

    def check_text_safety(self, *_: Any) -> bool:
        return True

    def check_video_safety(self, video: Any) -> Any:
        return video


def _prior_embeds(*shape: int) -> Any:
    return lambda: torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def _of(library: str, name: str, *args: Any, **kwargs: Any) -> Any:
    """Makes a class that diffusers keeps beside a pipeline."""

    def make() -> Any:
        import importlib

        torch.manual_seed(0)
        return getattr(importlib.import_module(f"diffusers.{library}"), name)(*args, **kwargs).eval()

    return make


def _scheduler(name: str, **changes: Any) -> Any:
    def make() -> Any:
        import diffusers

        return getattr(diffusers, name)(**changes)

    return make


IF_UNET = dict(
    in_channels=3, out_channels=6, encoder_hid_dim=WIDTH, encoder_hid_dim_type="text_proj", cross_attention_dim=16,
)  # fmt: skip
IF_SCHEDULER = _scheduler("DDPMScheduler", variance_type="learned_range")
IF = {"unet": IF_UNET, "scheduler": IF_SCHEDULER}
IF_HIGHER = {
    "unet": {**IF_UNET, "in_channels": 6, "class_embed_type": "timestep"}, "scheduler": IF_SCHEDULER,
    "image_noising_scheduler": _scheduler("DDPMScheduler"),
}  # fmt: skip
KANDINSKY_UNET = dict(
    out_channels=8, encoder_hid_dim=WIDTH, encoder_hid_dim_type="image_proj", addition_embed_type="image",
)  # fmt: skip
KANDINSKY_SCHEDULER = _scheduler("DDPMScheduler", variance_type="learned_range", clip_sample=False)
KANDINSKY = {"unet": KANDINSKY_UNET, "scheduler": KANDINSKY_SCHEDULER}
KANDINSKY_HINT = {
    "unet": {**KANDINSKY_UNET, "in_channels": 8, "addition_embed_type": "image_hint"},
    "scheduler": KANDINSKY_SCHEDULER,
}
EMBEDS = {"image_embeds": _prior_embeds(1, WIDTH), "negative_image_embeds": _prior_embeds(1, WIDTH)}
HINT = {**EMBEDS, "hint": lambda: torch.zeros(1, 3, 4 * SIDE, 4 * SIDE)}
PIXELS = lambda side: lambda: torch.zeros(1, 3, side, side)  # noqa: E731
NO_GUARD = {"safety_checker": _Passes}
FLUX_CONTROL = {"transformer": dict(in_channels=32, out_channels=16)}
MARIGOLD = {"unet": dict(in_channels=8)}
MARIGOLD_CALL = dict(processing_resolution=32, image=lambda: image(32))
SANA_VIDEO = {"vae": lambda: component("vae", "AutoencoderKLWan", {})}
UNCLIP = dict(
    unet=dict(class_embed_type="projection", projection_class_embeddings_input_dim=2 * WIDTH),
    image_normalizer=_of("pipelines.stable_diffusion.stable_unclip_image_normalizer",
                         "StableUnCLIPImageNormalizer", embedding_dim=WIDTH),
    image_noising_scheduler=_scheduler("DDPMScheduler"),
)  # fmt: skip
PAELLA = _of(
    "pipelines.wuerstchen",
    "PaellaVQModel",
    levels=1,
    bottleneck_blocks=1,
    embed_dim=8,
    num_vq_embeddings=8,
    latent_channels=4,
)
VIDEO = lambda: [image()] * FRAMES  # noqa: E731

# Pipeline -> optional components that it cannot do without.
VISION = ("image_encoder", "feature_extractor")
WANTED: dict[str, tuple[str, ...]] = dict.fromkeys(
    (
        "FluxPriorReduxPipeline", "HunyuanVideoFramepackPipeline", "KandinskyPriorPipeline",
        "KandinskyV22PriorPipeline", "KandinskyV22PriorEmb2EmbPipeline", "StableDiffusionImageVariationPipeline",
        "StableVideoDiffusionPipeline", "StableUnCLIPImg2ImgPipeline", "I2VGenXLPipeline", "WanAnimatePipeline",
        "ChronoEditPipeline", "HunyuanVideo15ImageToVideoPipeline", "ShapEImg2ImgPipeline",
        "SkyReelsV2ImageToVideoPipeline", "PaintByExamplePipeline",
    ),
    VISION,
)  # fmt: skip
# Pipeline -> component -> changes of its arguments, a function that makes it, or None.
OWN: dict[str, dict[str, Any]] = {
    **{
        f"Amused{task}Pipeline": {
            "scheduler": {"mask_token_id": 31},
            "vqvae": {"lookup_from_codebook": True, "num_vq_embeddings": 24},
        }
        for task in ("", "Img2Img", "Inpaint")
    },
    "ChronoEditPipeline": {"transformer": {"in_channels": 36}},
    "WanImageToVideoPipeline": {"transformer": {"in_channels": 36}, "transformer_2": None},
    "LucyEditPipeline": {"transformer": {"in_channels": 32}, "transformer_2": None},
    "StableVideoDiffusionPipeline": {"image_encoder": lambda: encoder(
        "CLIPVisionModelWithProjection", image_size=224, patch_size=32
    )},
    "PixArtSigmaPAGPipeline": {"transformer": {"num_layers": 2}},
    "SanaSprintPipeline": {"scheduler": _scheduler("SCMScheduler"), "transformer": {"guidance_embeds": True}},
    "SanaSprintImg2ImgPipeline": {"scheduler": _scheduler("SCMScheduler"), "transformer": {"guidance_embeds": True}},
    "StableDiffusion3ControlNetInpaintingPipeline": {"controlnet": {"extra_conditioning_channels": 1}},
    "QwenImageControlNetInpaintPipeline": {"controlnet": {"extra_condition_channels": 4}},
    "ErnieImagePipeline": {"pe": None, "pe_tokenizer": None},
    "HunyuanVideo15Pipeline": {"guider": _scheduler("ClassifierFreeGuidance")},
    "HunyuanImagePipeline": {"vae": {"latent_channels": 4}, "transformer": dict(in_channels=4, out_channels=4),
                             "guider": None, "ocr_guider": None},
    "LEditsPPPipelineStableDiffusion": {"scheduler": _scheduler(
        "DPMSolverMultistepScheduler", algorithm_type="sde-dpmsolver++", solver_order=2
    )},
    "AnyFlowFARPipeline": {"transformer": {"chunk_partition": (1, 2)}},
    "CogView4ControlPipeline": {"transformer": {"in_channels": 8}},
    "CogVideoXFunControlPipeline": {"transformer": {"in_channels": 8}},
    "CogVideoXImageToVideoPipeline": {"transformer": {"in_channels": 8}},
    "Cosmos2TextToImagePipeline": NO_GUARD, "Cosmos2_5_TransferPipeline": NO_GUARD,
    "CosmosTextToWorldPipeline": NO_GUARD,
    **{
        name: {**NO_GUARD, "transformer": {"in_channels": 17}}
        for name in ("Cosmos2VideoToWorldPipeline", "CosmosVideoToWorldPipeline")
    },
    "Cosmos2_5_PredictBasePipeline": {**NO_GUARD, "transformer": dict(
        in_channels=17, use_crossattn_projection=True, crossattn_proj_in_channels=2 * WIDTH,
        encoder_hidden_states_channels=WIDTH,
    )},
    **{f"FluxControl{task}Pipeline": FLUX_CONTROL for task in ("", "Img2Img")},
    "FluxControlInpaintPipeline": {"transformer": dict(in_channels=52, out_channels=16)},
    "FluxFillPipeline": {"transformer": dict(in_channels=16 + 16 + 256, out_channels=16)},
    "VisualClozeGenerationPipeline": {"transformer": dict(in_channels=16 + 16 + 256, out_channels=16)},
    "VisualClozePipeline": {"transformer": dict(in_channels=16 + 16 + 256, out_channels=16)},
    "HunyuanSkyreelsImageToVideoPipeline": {"transformer": {"in_channels": 32}},
    "IFPipeline": IF, "IFImg2ImgPipeline": IF, "IFInpaintingPipeline": IF,
    "IFSuperResolutionPipeline": IF_HIGHER, "IFImg2ImgSuperResolutionPipeline": IF_HIGHER,
    "IFInpaintingSuperResolutionPipeline": IF_HIGHER,
    "Kandinsky5T2VPipeline": {"transformer": dict(in_visual_dim=16, out_visual_dim=16)},
    "Kandinsky5I2VPipeline": {"transformer": dict(in_visual_dim=16, out_visual_dim=16, visual_cond=True)},
    "Kandinsky5I2IPipeline": {"transformer": dict(visual_cond=True)},
    "KandinskyV22Pipeline": KANDINSKY, "KandinskyV22Img2ImgPipeline": KANDINSKY,
    "KandinskyV22ControlnetPipeline": KANDINSKY_HINT, "KandinskyV22ControlnetImg2ImgPipeline": KANDINSKY_HINT,
    "KandinskyV22InpaintPipeline": {**KANDINSKY, "unet": {**KANDINSKY_UNET, "in_channels": 9}},
    "KandinskyV22CombinedPipeline": KANDINSKY, "KandinskyV22Img2ImgCombinedPipeline": KANDINSKY,
    "KandinskyV22InpaintCombinedPipeline": {**KANDINSKY, "unet": {**KANDINSKY_UNET, "in_channels": 9}},
    "LDMPipeline": {"unet": dict(in_channels=4, out_channels=4)},
    "LDMSuperResolutionPipeline": {"unet": dict(in_channels=6, out_channels=3)},
    "LDMTextToImagePipeline": {"unet": lambda: component("unet", "UNet2DConditionModel", {})},
    **{f"LatentConsistencyModel{task}Pipeline": {"unet": {"time_cond_proj_dim": 8}} for task in ("", "Img2Img")},
    "MarigoldDepthPipeline": MARIGOLD, "MarigoldNormalsPipeline": MARIGOLD,
    "PIAPipeline": {"unet": {"in_channels": 9}},
    "PaintByExamplePipeline": {"unet": {"in_channels": 9}, "image_encoder": lambda: _paint_encoder()},
    "SanaVideoPipeline": SANA_VIDEO, "SanaImageToVideoPipeline": SANA_VIDEO,
    "StableCascadeDecoderPipeline": {"vqgan": PAELLA, "decoder": {"in_channels": 4, "out_channels": 4}},
    "StableDiffusionDepth2ImgPipeline": {
        "unet": {"in_channels": 5}, "depth_estimator": None, "feature_extractor": None,
    },
    "StableDiffusionGLIGENPipeline": {"unet": {"attention_type": "gated"}},
    "StableDiffusionInstructPix2PixPipeline": {"unet": {"in_channels": 8}},
    "StableDiffusionXLInstructPix2PixPipeline": {"unet": {**SDXL_UNET, "in_channels": 8}},
    "StableDiffusionLatentUpscalePipeline": {"unet": {"in_channels": 8}},
    "StableDiffusionUpscalePipeline": {"unet": dict(in_channels=7, num_class_embeds=1000)},
    "StableDiffusionParadigmsPipeline": {"scheduler": _scheduler("DDIMParallelScheduler", clip_sample=False)},
    "StableUnCLIPPipeline": {**UNCLIP, "prior_scheduler": _scheduler("UnCLIPScheduler")},
    "StableUnCLIPImg2ImgPipeline": UNCLIP,
    "ShapEPipeline": {"shap_e_renderer": _of("pipelines.shap_e", "ShapERenderer")},
}  # fmt: skip
# Pipeline -> argument of its call -> value, function that makes it, or LEAVE.
CALLS: dict[str, dict[str, Any]] = {
    "AnimateDiffControlNetPipeline": {"conditioning_frames": VIDEO},
    "AnimateDiffSparseControlNetPipeline": {"conditioning_frames": image, "controlnet_frame_indices": [0]},
    "AnimateDiffVideoToVideoControlNetPipeline": {"conditioning_frames": VIDEO},
    "BriaFiboEditPipeline": {"prompt": '{"edit_instruction": "a cat"}', "image": image},
    "CogVideoXFunControlPipeline": {"control_video": VIDEO},
    "CycleDiffusionPipeline": {"image": image, "strength": 0.75},
    "DanceDiffusionPipeline": {"audio_length_in_s": 4.0},
    **{f"Flux2Klein{task}Pipeline": {"text_encoder_out_layers": (0, 1, 2)} for task in ("", "Inpaint", "KV")},
    "FluxKontextPipeline": {"max_area": SIDE * SIDE, "_auto_resize": False},
    "FluxKontextInpaintPipeline": {"max_area": SIDE * SIDE, "_auto_resize": False},
    "FluxPriorReduxPipeline": {"prompt": "a cat"},
    "Flux2Pipeline": {"text_encoder_out_layers": (0, 1, 2)},
    **{f"TextToVideoZero{task}Pipeline": dict(num_inference_steps=4, t0=1, t1=2, video_length=2)
       for task in ("", "SDXL")},
    "IFSuperResolutionPipeline": {"height": SIDE, "width": SIDE, "image": PIXELS(32)},
    "IFImg2ImgSuperResolutionPipeline": {"image": PIXELS(32), "original_image": PIXELS(SIDE)},
    "IFInpaintingSuperResolutionPipeline": {"image": PIXELS(32), "original_image": PIXELS(SIDE), "mask_image": mask},
    "KandinskyV22Pipeline": EMBEDS, "KandinskyV22Img2ImgPipeline": EMBEDS, "KandinskyV22ControlnetPipeline": HINT,
    "KandinskyV22ControlnetImg2ImgPipeline": HINT, "KandinskyV22InpaintPipeline": EMBEDS,
    "KandinskyV22PriorEmb2EmbPipeline": {"image": image},
    "LDMPipeline": {}, "LDMSuperResolutionPipeline": {"image": image},
    "LattePipeline": {"video_length": 2},
    "LucyEditPipeline": {"video": VIDEO},
    "MarigoldDepthPipeline": MARIGOLD_CALL, "MarigoldNormalsPipeline": MARIGOLD_CALL,
    "PNDMPipeline": {"num_inference_steps": 6},
    "PaintByExamplePipeline": {"example_image": image, "image": image, "mask_image": mask},
    "SkyReelsV2DiffusionForcingImageToVideoPipeline": {"image": image},
    "StableCascadeDecoderPipeline": {"image_embeddings": _prior_embeds(1, 1, WIDTH)},
    "StableDiffusionAttendAndExcitePipeline": {"token_indices": [2], "attn_res": (8, 8)},
    "StableDiffusionDepth2ImgPipeline": {"depth_map": lambda: torch.rand(1, SIDE, SIDE)},
    "StableDiffusionGLIGENPipeline": {"gligen_phrases": ["a cat"], "gligen_boxes": [[0.1, 0.1, 0.6, 0.6]]},
    "StableVideoDiffusionPipeline": {"num_frames": 2, "decode_chunk_size": 2},
    "WanVACEPipeline": {"video": VIDEO, "mask": lambda: [mask()] * FRAMES},
}  # fmt: skip


def _paint_encoder() -> Any:
    import transformers
    from diffusers.pipelines.paint_by_example import PaintByExampleImageEncoder  # type: ignore[import-not-found]

    settings = transformers.CLIPVisionConfig(
        hidden_size=WIDTH,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
    )
    return PaintByExampleImageEncoder(settings, proj_size=WIDTH).eval()


def _invert_first(pipe: Any) -> dict[str, Any]:
    pipe.invert(image=image(), num_inversion_steps=4, source_prompt="a dog", skip=0.0)
    return {"editing_prompt": ["a cat"]}


def _mask_and_latents(pipe: Any) -> dict[str, Any]:
    found = pipe.generate_mask(image(), source_prompt="a dog", target_prompt="a cat", num_inference_steps=2)
    latents = pipe.invert(image=image(), prompt="a dog", num_inference_steps=2).latents
    return {"mask_image": found, "image_latents": latents}


# Pipeline -> what is done with it before the call that is watched; gives arguments of that call.
BEFORE: dict[str, Any] = {
    "LEditsPPPipelineStableDiffusion": _invert_first,
    "LEditsPPPipelineStableDiffusionXL": _invert_first,
    "StableDiffusionDiffEditPipeline": _mask_and_latents,
}
