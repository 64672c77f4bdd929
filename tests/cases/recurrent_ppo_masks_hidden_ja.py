# %% [case]
# id: recurrent-ppo-masks-hidden-ja
# source: 再帰方策の PPO, エピソードの終わりで隠れ状態をリセット
# family: modified
# fails: 3
# culprit: 1:18
# saved: 1:14 | 1:15 | 1:16
# needed: 3:6
# effect: same
# observe: [p.grad.clone() for p in policy.parameters()]
# note: GRUCell と value head が h を保存したあとで h *= mask が書き換える. Fix: h = h * mask.
# %%
import torch
import torch.nn as nn

class RecurrentPolicy(nn.Module):
    def __init__(self, obs=3, hid=5, act=2):
        super().__init__()
        self.rnn = nn.RNNCell(obs, hid)
        self.pi = nn.Linear(hid, act)
        self.v = nn.Linear(hid, 1)

    def evaluate(self, obs_seq, h, done_seq):
        logits, values = [], []
        for obs, done in zip(obs_seq, done_seq):
            h = self.rnn(obs, h)
            logits.append(self.pi(h))
            values.append(self.v(h))
            # エピソードが終わったらゼロに戻す
            h *= (1 - done).unsqueeze(-1)
        return torch.stack(logits), torch.stack(values).squeeze(-1)
# %%
torch.manual_seed(0)
policy = RecurrentPolicy()
観測 = torch.randn(4, 2, 3)
終了 = torch.tensor([[0., 0.], [1., 0.], [0., 0.], [0., 1.]])
行動 = torch.randint(0, 2, (4, 2))
収益 = torch.randn(4, 2)
# %%
%%time
logits, values = policy.evaluate(観測, torch.zeros(2, 5), 終了)
logp = torch.distributions.Categorical(logits=logits).log_prob(行動)
ratio = (logp - logp.detach()).exp()
損失 = -(ratio * (収益 - values.detach())).mean() + 0.5 * (収益 - values).pow(2).mean()
損失.backward()
# %% [fixed 1]
import torch
import torch.nn as nn

class RecurrentPolicy(nn.Module):
    def __init__(self, obs=3, hid=5, act=2):
        super().__init__()
        self.rnn = nn.RNNCell(obs, hid)
        self.pi = nn.Linear(hid, act)
        self.v = nn.Linear(hid, 1)

    def evaluate(self, obs_seq, h, done_seq):
        logits, values = [], []
        for obs, done in zip(obs_seq, done_seq):
            h = self.rnn(obs, h)
            logits.append(self.pi(h))
            values.append(self.v(h))
            # エピソードが終わったらゼロに戻す
            h = h * (1 - done).unsqueeze(-1)
        return torch.stack(logits), torch.stack(values).squeeze(-1)
