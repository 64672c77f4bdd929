# %% [case]
# id: positions-added-to-unbound-frames
# source: https://github.com/pytorch/pytorch/issues/36403 and pull 32839 ("its base or another view of its base has been modified")
# family: multi_output_view
# fails: 3
# culprit: 2:13
# saved: -
# needed: 2:17
# effect: same
# observe: [loss.detach()] + [p.grad.clone() for p in model.parameters()]
# note: no view is written: the base of unbind's outputs is, after the views were made; the error comes later, where a frame is first used. Human fix: add the positions before unbind.
# %%
import torch
from torch import nn
torch.manual_seed(6)
# %%
class FrameReader(nn.Module):
    def __init__(self, n_frames, feat, hidden):
        super().__init__()
        self.embed = nn.Linear(feat, hidden)
        self.pos = nn.Parameter(0.02 * torch.randn(n_frames, hidden))
        self.cell = nn.GRUCell(hidden, hidden)
        self.out = nn.Linear(hidden, 2)

    def forward(self, clip):
        tokens = self.embed(clip)               # (N, T, H)
        frames = tokens.unbind(1)
        # learned positions
        tokens += self.pos
        h = clip.new_zeros(clip.shape[0], self.cell.hidden_size)
        states = []
        for frame in reversed(frames):
            h = self.cell(frame, h)
            states.append(h)
        return self.out(torch.stack(states, 1).mean(1))
# %%
model = FrameReader(4, 5, 6)
clips, target = torch.randn(3, 4, 5), torch.tensor([1, 0, 1])
loss = nn.functional.cross_entropy(model(clips), target)
loss.backward()
# %% [fixed 2]
class FrameReader(nn.Module):
    def __init__(self, n_frames, feat, hidden):
        super().__init__()
        self.embed = nn.Linear(feat, hidden)
        self.pos = nn.Parameter(0.02 * torch.randn(n_frames, hidden))
        self.cell = nn.GRUCell(hidden, hidden)
        self.out = nn.Linear(hidden, 2)

    def forward(self, clip):
        tokens = self.embed(clip)               # (N, T, H)
        # learned positions
        tokens = tokens + self.pos
        frames = tokens.unbind(1)
        h = clip.new_zeros(clip.shape[0], self.cell.hidden_size)
        states = []
        for frame in reversed(frames):
            h = self.cell(frame, h)
            states.append(h)
        return self.out(torch.stack(states, 1).mean(1))
