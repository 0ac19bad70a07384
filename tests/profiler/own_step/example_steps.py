"""Steps of users, as they write them, and what they take in a real run on the CPU."""

import gc
from collections import OrderedDict
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from swinmr_profiling.profiler.prediction.trace.storage_trace import CATEGORIES

CPU = torch.device("cpu")


def mlp(*widths):
    layers = [nn.Sequential(nn.Linear(a, b), nn.GELU()) for a, b in pairwise(widths)]
    return nn.Sequential(*layers)


class GanStep:
    """Generator and discriminator, each with its optimizer, a frozen perceptual network, and an average of weights."""

    def setup(self, device):
        self.generator, self.discriminator = mlp(64, 128, 64).to(device), mlp(64, 128, 1).to(device)
        self.perceptual = mlp(64, 256, 32).requires_grad_(False).to(device)
        self.average = torch.optim.swa_utils.AveragedModel(self.generator)
        self.of_generator = torch.optim.Adam(self.generator.parameters(), foreach=False)
        self.of_discriminator = torch.optim.Adam(self.discriminator.parameters(), foreach=False)

    def batch(self, size):
        return torch.zeros(size, 64), torch.zeros(size, 64)

    def step(self, batch):
        low, high = batch
        fake = self.generator(low)
        loss = (fake - high).abs().mean() - self.discriminator(fake).mean()
        loss = loss + (self.perceptual(fake) - self.perceptual(high)).square().mean()
        self.of_generator.zero_grad()
        loss.backward()
        self.of_generator.step()
        self.of_discriminator.zero_grad()
        real = self.discriminator(high).relu().mean()
        wrong = self.discriminator(fake.detach()).relu().mean()
        (real + wrong).backward()
        self.of_discriminator.step()
        self.average.update_parameters(self.generator)


class Distillation:
    def setup(self, device):
        self.teacher, self.student = mlp(64, 512, 10).to(device), mlp(64, 128, 10).to(device)
        self.optimizer = torch.optim.SGD(self.student.parameters(), momentum=0.9, foreach=False)

    def batch(self, size):
        return torch.zeros(size, 64)

    def step(self, batch):
        with torch.no_grad():
            told = self.teacher(batch).softmax(-1)
        loss = nn.functional.kl_div(self.student(batch).log_softmax(-1), told, reduction="batchmean")
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


class Unrolled:
    """Three unrolled steps of a learned prior, each with two iterations of conjugate gradients on (A'A + 1) x = b."""

    def setup(self, device):
        self.prior = mlp(64, 128, 64).to(device)
        self.optimizer = torch.optim.AdamW(self.prior.parameters(), foreach=False)

    def batch(self, size):
        return torch.zeros(size, 64), torch.zeros(64, 64)

    def solve(self, a, b):
        x, r = torch.zeros_like(b), b
        p, rr = r, (r * r).sum(-1, keepdim=True)
        for _ in range(2):
            product = p @ a.T @ a + p
            alpha = rr / (p * product).sum(-1, keepdim=True)
            x, r = x + alpha * p, r - alpha * product
            new = (r * r).sum(-1, keepdim=True)
            p, rr = r + new / rr * p, new
        return x

    def step(self, batch):
        measured, a = batch
        image = measured
        for _ in range(3):
            image = self.solve(a, measured + self.prior(image))
        image.square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class LowRank:
    """LoRA by peft on a frozen network."""

    def setup(self, device):
        from peft import LoraConfig, inject_adapter_in_model

        names = ("in_proj", "first", "between", "second", "out_proj")
        parts = (nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 64))
        network = nn.Sequential(OrderedDict(zip(names, parts, strict=True))).requires_grad_(False)
        targets = ["in_proj", "between", "out_proj"]
        self.network = inject_adapter_in_model(LoraConfig(r=4, target_modules=targets), network).to(device)
        self.optimizer = torch.optim.AdamW(
            [p for p in self.network.parameters() if p.requires_grad], foreach=False
        )

    def batch(self, size):
        return torch.zeros(size, 64)

    def step(self, batch):
        self.network(batch).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class HuggingFace:
    """`Trainer.training_step` of transformers, with the optimizer that its Trainer makes."""

    def setup(self, device):
        from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

        config = BertConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=100,
            max_position_embeddings=16, attn_implementation="eager",
        )  # fmt: skip
        arguments = TrainingArguments("none", use_cpu=True, report_to=[], optim="adamw_torch")
        arguments.__dict__["_setup_devices"] = device  # what `arguments.device` gives from then on
        self.trainer = Trainer(BertForSequenceClassification(config).to(device), arguments)
        self.trainer.create_optimizer()
        self.trainer.current_gradient_accumulation_steps = 1

    def batch(self, size):
        return {
            "input_ids": torch.ones(size, 16, dtype=torch.int64),
            "labels": torch.ones(size, dtype=torch.int64),
        }

    def step(self, batch):
        self.trainer.training_step(self.trainer.model, batch)
        self.trainer.optimizer.step()
        self.trainer.optimizer.zero_grad()


class Lightning:
    """`training_step` of a LightningModule, in the order of Lightning's automatic optimization: by a closure."""

    def setup(self, device):
        import pytorch_lightning

        class Module(pytorch_lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = mlp(64, 256, 64)

            def training_step(self, batch, batch_index):
                return (self.net(batch[0]) - batch[1]).abs().mean()

            def configure_optimizers(self):
                return torch.optim.AdamW(self.parameters(), foreach=False)

        self.module = Module().to(device)
        self.optimizer = self.module.configure_optimizers()

    def batch(self, size):
        return torch.zeros(size, 64), torch.zeros(size, 64)

    def step(self, batch):
        def closure():
            loss = self.module.training_step(batch, 0)
            self.optimizer.zero_grad()
            self.module.backward(loss)
            return loss

        return self.optimizer.step(closure).detach()


def real_peak_bytes(step, batch_size, calls=2):
    """Most bytes that PyTorch's CPU allocator had given out while a step was set up and called so often."""
    # What cycles of earlier tests hold would be given back in between.
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step.setup(CPU)
        for _ in range(calls):
            # What only cycles hold goes at some time; here, as in the trace, between steps.
            gc.collect()
            step.step(step.batch(batch_size))
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def bytes_at_the_end(trace):
    """Category -> bytes that are alive after the last step, as asked for."""
    alive = np.zeros(len(trace.sizes), dtype=bool)
    for event in trace.events.tolist():
        alive[abs(event) - 1] = event > 0
    return {
        name: int(trace.sizes[alive & (trace.categories == number)].sum())
        for number, name in enumerate(CATEGORIES)
    }
