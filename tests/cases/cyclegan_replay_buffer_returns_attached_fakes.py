# %% [case]
# id: cyclegan-replay-buffer-returns-attached-fakes
# source: https://github.com/eriklindernoren/PyTorch-GAN/issues/71 (CycleGAN: push_and_pop without detach)
# family: second_backward
# fails: 4
# culprit: 3:8
# saved: 3:3
# needed: 3:17
# effect: truncates
# observe: [d_loss.detach(), [p.grad.clone() for p in D_B.parameters()]]
# note: the buffer stores the generators' output with its graph, which loss_G.backward() has freed. Human fix: push_and_pop(fake_B.detach()), as the issue proposes.
# %%
import random
import itertools
import torch
import torch.nn as nn
random.seed(0); torch.manual_seed(0)

class ReplayBuffer:
    def __init__(self, max_size=4):
        self.max_size, self.data = max_size, []

    def push_and_pop(self, batch):
        to_return = []
        for element in batch.split(1):
            if len(self.data) < self.max_size:
                self.data.append(element)
                to_return.append(element)
            elif random.uniform(0, 1) > 0.5:
                i = random.randint(0, self.max_size - 1)
                to_return.append(self.data[i])
                self.data[i] = element
            else:
                to_return.append(element)
        return torch.cat(to_return)
# %%
def generator():
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.InstanceNorm2d(4), nn.ReLU(inplace=True),
                         nn.Conv2d(4, 1, 3, padding=1), nn.Tanh())

def discriminator():
    return nn.Sequential(nn.Conv2d(1, 4, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(4, 1, 4, 1, 1))

G_AB, G_BA = generator(), generator()
D_A, D_B = discriminator(), discriminator()
criterion_GAN, criterion_cycle = nn.MSELoss(), nn.L1Loss()
optimizer_G = torch.optim.Adam(itertools.chain(G_AB.parameters(), G_BA.parameters()), lr=2e-4, betas=(0.5, 0.999))
optimizer_D_B = torch.optim.Adam(D_B.parameters(), lr=2e-4, betas=(0.5, 0.999))
fake_B_buffer = ReplayBuffer()
# %%
def train_generators(real_A, real_B):
    optimizer_G.zero_grad()
    fake_B, fake_A = G_AB(real_A), G_BA(real_B)
    pred_B, pred_A = D_B(fake_B), D_A(fake_A)
    loss_GAN = criterion_GAN(pred_B, torch.ones_like(pred_B)) + criterion_GAN(pred_A, torch.ones_like(pred_A))
    loss_cycle = criterion_cycle(G_BA(fake_B), real_A) + criterion_cycle(G_AB(fake_A), real_B)
    loss_G = loss_GAN + 10 * loss_cycle
    loss_G.backward()
    optimizer_G.step()
    return fake_A, fake_B

def train_discriminator_B(real_B, fake_B):
    optimizer_D_B.zero_grad()
    pred_real = D_B(real_B)
    pred_fake = D_B(fake_B_buffer.push_and_pop(fake_B))
    loss = 0.5 * (criterion_GAN(pred_real, torch.ones_like(pred_real)) + criterion_GAN(pred_fake, torch.zeros_like(pred_fake)))
    loss.backward()
    optimizer_D_B.step()
    return loss
# %%
for batch in range(4):
    real_A, real_B = torch.rand(2, 1, 8, 8), torch.rand(2, 1, 8, 8) * 2 - 1
    fake_A, fake_B = train_generators(real_A, real_B)
    d_loss = train_discriminator_B(real_B, fake_B)
    print(f'[Batch {batch}/4] [D loss: {d_loss.item():.4f}]')
# %% [fixed 3]
def train_generators(real_A, real_B):
    optimizer_G.zero_grad()
    fake_B, fake_A = G_AB(real_A), G_BA(real_B)
    pred_B, pred_A = D_B(fake_B), D_A(fake_A)
    loss_GAN = criterion_GAN(pred_B, torch.ones_like(pred_B)) + criterion_GAN(pred_A, torch.ones_like(pred_A))
    loss_cycle = criterion_cycle(G_BA(fake_B), real_A) + criterion_cycle(G_AB(fake_A), real_B)
    loss_G = loss_GAN + 10 * loss_cycle
    loss_G.backward()
    optimizer_G.step()
    return fake_A, fake_B

def train_discriminator_B(real_B, fake_B):
    optimizer_D_B.zero_grad()
    pred_real = D_B(real_B)
    pred_fake = D_B(fake_B_buffer.push_and_pop(fake_B.detach()))
    loss = 0.5 * (criterion_GAN(pred_real, torch.ones_like(pred_real)) + criterion_GAN(pred_fake, torch.zeros_like(pred_fake)))
    loss.backward()
    optimizer_D_B.step()
    return loss
