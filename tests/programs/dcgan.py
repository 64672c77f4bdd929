"""A DCGAN on eight by eight pictures."""

import torch
from torch import nn

WIDTH, NOISE, BATCH = 8, 6, 4


def weights_init(module: nn.Module) -> None:
    name = type(module).__name__
    if "Conv" in name:
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif "BatchNorm" in name:
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


generator = nn.Sequential(
    nn.ConvTranspose2d(NOISE, WIDTH, 4, 1, 0, bias=False),
    nn.BatchNorm2d(WIDTH),
    nn.ReLU(True),
    nn.ConvTranspose2d(WIDTH, 1, 4, 2, 1, bias=False),
    nn.Tanh(),
)
discriminator = nn.Sequential(
    nn.Conv2d(1, WIDTH, 4, 2, 1, bias=False),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(WIDTH, 1, 4, 1, 0, bias=False),
    nn.Sigmoid(),
    nn.Flatten(0),
)


def train(steps: int) -> None:
    torch.manual_seed(0)
    generator.apply(weights_init)
    discriminator.apply(weights_init)
    criterion = nn.BCELoss()
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    real_label, fake_label = torch.ones(BATCH), torch.zeros(BATCH)
    for step in range(steps):
        discriminator.zero_grad()
        real = torch.rand(BATCH, 1, 8, 8) * 2 - 1
        loss_real = criterion(discriminator(real), real_label)
        loss_real.backward()
        fake = generator(torch.randn(BATCH, NOISE, 1, 1))
        loss_fake = criterion(discriminator(fake.detach()), fake_label)
        loss_fake.backward()
        optimizer_d.step()

        generator.zero_grad()
        output = discriminator(fake)
        loss_g = criterion(output, real_label)
        loss_g.backward()
        optimizer_g.step()
        print(f"[{step}] Loss_D {(loss_real + loss_fake).item():.3f} Loss_G {loss_g.item():.3f}")


if __name__ == "__main__":
    train(3)
