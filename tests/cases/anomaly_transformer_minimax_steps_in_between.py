# %% [case]
# id: anomaly-transformer-minimax-steps-in-between
# source: https://github.com/thuml/Anomaly-Transformer/issues/1
# family: modified
# fails: 4
# culprit: 3:27
# saved: 2:28 | 2:31
# needed: 3:28
# effect: same
# observe: [loss1.detach(), loss2.detach()] + [p.detach().clone() for p in solver.model.parameters()]
# note: both minimax losses come from one forward; the solver steps after the first backward, so the second one meets the updated weights. Settled in the thread: no step between the two backwards, one step after both.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(1)

def my_kl_loss(p, q):
    res = p * (torch.log(p + 0.0001) - torch.log(q + 0.0001))
    return torch.mean(torch.sum(res, dim=-1), dim=1)
# %%
class AnomalyAttention(nn.Module):
    def __init__(self, win_size, d_model):
        super().__init__()
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.sigma_projection = nn.Linear(d_model, 1)
        idx = torch.arange(win_size, dtype=torch.float)
        self.register_buffer('distances', (idx[:, None] - idx[None]).abs())

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        sigma = torch.sigmoid(self.sigma_projection(x) * 5) + 1e-5
        sigma = torch.pow(3, sigma) - 1
        prior = torch.exp(-self.distances ** 2 / 2 / sigma ** 2) / sigma
        series = torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, dim=-1)
        return series @ v, series, prior / prior.sum(-1, keepdim=True)

class AnomalyTransformer(nn.Module):
    def __init__(self, win_size, enc_in, c_out, d_model=8, e_layers=2):
        super().__init__()
        self.embedding = nn.Linear(enc_in, d_model)
        self.attn_layers = nn.ModuleList([AnomalyAttention(win_size, d_model) for _ in range(e_layers)])
        self.projection = nn.Linear(d_model, c_out)

    def forward(self, x):
        x = self.embedding(x)
        series_list, prior_list = [], []
        for attn in self.attn_layers:
            new_x, series, prior = attn(x)
            x = F.gelu(x + new_x)
            series_list.append(series); prior_list.append(prior)
        return self.projection(x), series_list, prior_list
# %%
class Solver(object):
    DEFAULTS = {'k': 3, 'lr': 1e-3}

    def __init__(self, config):
        self.__dict__.update(Solver.DEFAULTS, **config)
        self.model = AnomalyTransformer(self.win_size, self.input_c, self.output_c)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.lr)
        self.criterion = nn.MSELoss()

    def discrepancy(self, series, prior):
        series_loss, prior_loss = 0.0, 0.0
        for s, p in zip(series, prior):
            series_loss += torch.mean(my_kl_loss(s, p.detach())) + torch.mean(my_kl_loss(p.detach(), s))
            prior_loss += torch.mean(my_kl_loss(p, s.detach())) + torch.mean(my_kl_loss(s.detach(), p))
        return series_loss / len(prior), prior_loss / len(prior)

    def train_step(self, input):
        self.optimizer.zero_grad()
        output, series, prior = self.model(input)
        series_loss, prior_loss = self.discrepancy(series, prior)
        rec_loss = self.criterion(output, input)
        loss1 = rec_loss - self.k * series_loss
        loss2 = rec_loss + self.k * prior_loss

        # Minimax strategy
        loss1.backward(retain_graph=True)
        self.optimizer.step()
        loss2.backward()
        self.optimizer.step()
        return loss1, loss2
# %%
solver = Solver(dict(win_size=6, input_c=3, output_c=3))
train_loader = [torch.randn(4, 6, 3) for _ in range(2)]
for i, input_data in enumerate(train_loader):
    loss1, loss2 = solver.train_step(input_data)
    print(i, loss1.item(), loss2.item())
# %% [fixed 3]
class Solver(object):
    DEFAULTS = {'k': 3, 'lr': 1e-3}

    def __init__(self, config):
        self.__dict__.update(Solver.DEFAULTS, **config)
        self.model = AnomalyTransformer(self.win_size, self.input_c, self.output_c)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.lr)
        self.criterion = nn.MSELoss()

    def discrepancy(self, series, prior):
        series_loss, prior_loss = 0.0, 0.0
        for s, p in zip(series, prior):
            series_loss += torch.mean(my_kl_loss(s, p.detach())) + torch.mean(my_kl_loss(p.detach(), s))
            prior_loss += torch.mean(my_kl_loss(p, s.detach())) + torch.mean(my_kl_loss(s.detach(), p))
        return series_loss / len(prior), prior_loss / len(prior)

    def train_step(self, input):
        self.optimizer.zero_grad()
        output, series, prior = self.model(input)
        series_loss, prior_loss = self.discrepancy(series, prior)
        rec_loss = self.criterion(output, input)
        loss1 = rec_loss - self.k * series_loss
        loss2 = rec_loss + self.k * prior_loss

        # Minimax strategy
        loss1.backward(retain_graph=True)
        loss2.backward()
        self.optimizer.step()
        return loss1, loss2
