"""Networks of other packages by name: diffusers, spandrel, timm, transformers."""
