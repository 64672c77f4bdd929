# %% [case]
# id: shared-encoder-stepped-for-each-task
# source: https://github.com/median-research-group/LibMTL/issues/78
# family: modified
# fails: 4
# culprit: 4:12
# saved: 2:10
# needed: 4:10
# effect: same
# observe: [p.detach().clone() for p in net.parameters()]
# note: one forward for all tasks; the shared encoder's optimizer steps after every task's backward, and the next task's backward needs the encoder's old weights. The steps of the heads are harmless. Fix: step the encoder once after the loop. (Only the code's structure is from the source; the thread itself does not report this error.)
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(78)
TASKS = {"segmentation": 3, "depth": 1, "normal": 2}
# %%
class HPS(nn.Module):
    """hard parameter sharing"""
    def __init__(self, task_dim):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU())
        self.decoders = nn.ModuleDict({tn: nn.Linear(6, d) for tn, d in task_dim.items()})

    def forward(self, inputs):
        out = {}
        s_rep = self.encoder(inputs)
        for tn in self.decoders:
            out[tn] = self.decoders[tn](s_rep)
        return out
# %%
def compute_losses(preds, gts):
    losses = {"segmentation": F.cross_entropy(preds["segmentation"], gts["segmentation"])}
    losses["depth"] = F.l1_loss(preds["depth"], gts["depth"])
    losses["normal"] = 1 - F.cosine_similarity(preds["normal"], gts["normal"]).mean()
    return losses

def get_batch(n=8):
    return torch.randn(n, 5), {"segmentation": torch.randint(3, (n,)), "depth": torch.rand(n, 1),
                               "normal": F.normalize(torch.randn(n, 2), dim=1)}
# %%
net = HPS(TASKS)
enc_opt = torch.optim.SGD(net.encoder.parameters(), lr=0.05)
dec_opts = {tn: torch.optim.Adam(net.decoders[tn].parameters(), lr=1e-2) for tn in TASKS}
for step in range(3):
    inputs, gts = get_batch()
    losses = compute_losses(net(inputs), gts)
    enc_opt.zero_grad()
    for tn in TASKS:
        dec_opts[tn].zero_grad()
        losses[tn].backward(retain_graph=True)
        dec_opts[tn].step()
        enc_opt.step()
# %% [fixed 4]
net = HPS(TASKS)
enc_opt = torch.optim.SGD(net.encoder.parameters(), lr=0.05)
dec_opts = {tn: torch.optim.Adam(net.decoders[tn].parameters(), lr=1e-2) for tn in TASKS}
for step in range(3):
    inputs, gts = get_batch()
    losses = compute_losses(net(inputs), gts)
    enc_opt.zero_grad()
    for tn in TASKS:
        dec_opts[tn].zero_grad()
        losses[tn].backward(retain_graph=True)
        dec_opts[tn].step()
    enc_opt.step()
