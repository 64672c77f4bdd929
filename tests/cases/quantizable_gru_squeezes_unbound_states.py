# %% [case]
# id: quantizable-gru-squeezes-unbound-states
# source: alibaba/TinyNeuralNetwork#238
# family: multi_output_view
# fails: 4
# culprit: 2:27
# saved: -
# needed: 2:27
# effect: same
# observe: [loss.detach(), model.h0.grad.clone(), model.rnn.cells[0].weight_hh.grad.clone()]
# note: hx is unbound into per-layer states and each is squeeze_()d: a metadata in-place operation on an output of unbind. Only fails when the initial state requires grad (learned h0, quantisation-aware training). Human fix: squeeze(0).
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
from typing import Optional, List, Tuple
torch.manual_seed(238)
# %%
class QGRUCell(nn.Module):
    '''GRUCell written with basic ops so that observers can be placed between them'''
    def __init__(self, input_size, hidden_size):
        super().__init__()
        s = hidden_size ** -0.5
        self.weight_ih = nn.Parameter(torch.empty(3 * hidden_size, input_size).uniform_(-s, s))
        self.weight_hh = nn.Parameter(torch.empty(3 * hidden_size, hidden_size).uniform_(-s, s))
    def forward(self, x, h):
        i_r, i_z, i_n = F.linear(x, self.weight_ih).chunk(3, 1)
        h_r, h_z, h_n = F.linear(h, self.weight_hh).chunk(3, 1)
        r, z = torch.sigmoid(i_r + h_r), torch.sigmoid(i_z + h_z)
        n = torch.tanh(i_n + r * h_n)
        return (1 - z) * n + z * h

class QuantizableGRU(nn.Module):
    def __init__(self, input_size, hidden_size, num_layers=1, bidirectional=False):
        super().__init__()
        assert not bidirectional
        self.hidden_size, self.num_layers, self.num_directions = hidden_size, num_layers, 1
        self.cells = nn.ModuleList(QGRUCell(input_size if i == 0 else hidden_size, hidden_size) for i in range(num_layers))

    def forward(self, x: torch.Tensor, hx: Optional[torch.Tensor] = None) -> Tuple[torch.Tensor, torch.Tensor]:
        batch = x.size(1)
        if hx is None:
            hx = torch.zeros(self.num_layers * self.num_directions, batch, self.hidden_size)
        hx = hx.reshape(self.num_layers, self.num_directions, batch, self.hidden_size).unbind(0)
        hx: List[torch.Tensor] = [(hx[idx].squeeze_(0)) for idx in range(self.num_layers)]
        finals = []
        for cell, h in zip(self.cells, hx):
            outs = []
            for x_t in x.unbind(0):
                outs.append(h := cell(x_t, h))
            x = torch.stack(outs)
            finals.append(h)
        return x, torch.stack(finals)
# %%
class KWS(nn.Module):
    '''keyword spotting: conv frontend, GRU, per-frame classifier'''
    def __init__(self, n_mels=10, hidden=6, n_words=4, layers=2):
        super().__init__()
        self.frontend = nn.Sequential(nn.Conv1d(n_mels, 8, 3, padding=1), nn.ReLU(inplace=True))
        self.h0 = nn.Parameter(torch.zeros(layers, 1, hidden))
        self.rnn = QuantizableGRU(8, hidden, layers)
        self.fc = nn.Linear(hidden, n_words)
    def forward(self, mel):
        feats = self.frontend(mel).permute(2, 0, 1)
        out, _ = self.rnn(feats, self.h0.expand(-1, mel.size(0), -1))
        return self.fc(out.mean(0))

# float warm up without the learned state works
gru = QuantizableGRU(8, 6, 2)
print(gru(torch.randn(5, 3, 8))[1].shape)
# %%
model = KWS()
opt = torch.optim.Adam(model.parameters(), 1e-3)
mel, label = torch.randn(3, 10, 12), torch.tensor([0, 2, 3])
loss = F.cross_entropy(model(mel), label)
opt.zero_grad(); loss.backward(); opt.step()
# %% [fixed 2]
class QGRUCell(nn.Module):
    '''GRUCell written with basic ops so that observers can be placed between them'''
    def __init__(self, input_size, hidden_size):
        super().__init__()
        s = hidden_size ** -0.5
        self.weight_ih = nn.Parameter(torch.empty(3 * hidden_size, input_size).uniform_(-s, s))
        self.weight_hh = nn.Parameter(torch.empty(3 * hidden_size, hidden_size).uniform_(-s, s))
    def forward(self, x, h):
        i_r, i_z, i_n = F.linear(x, self.weight_ih).chunk(3, 1)
        h_r, h_z, h_n = F.linear(h, self.weight_hh).chunk(3, 1)
        r, z = torch.sigmoid(i_r + h_r), torch.sigmoid(i_z + h_z)
        n = torch.tanh(i_n + r * h_n)
        return (1 - z) * n + z * h

class QuantizableGRU(nn.Module):
    def __init__(self, input_size, hidden_size, num_layers=1, bidirectional=False):
        super().__init__()
        assert not bidirectional
        self.hidden_size, self.num_layers, self.num_directions = hidden_size, num_layers, 1
        self.cells = nn.ModuleList(QGRUCell(input_size if i == 0 else hidden_size, hidden_size) for i in range(num_layers))

    def forward(self, x: torch.Tensor, hx: Optional[torch.Tensor] = None) -> Tuple[torch.Tensor, torch.Tensor]:
        batch = x.size(1)
        if hx is None:
            hx = torch.zeros(self.num_layers * self.num_directions, batch, self.hidden_size)
        hx = hx.reshape(self.num_layers, self.num_directions, batch, self.hidden_size).unbind(0)
        hx: List[torch.Tensor] = [(hx[idx].squeeze(0)) for idx in range(self.num_layers)]
        finals = []
        for cell, h in zip(self.cells, hx):
            outs = []
            for x_t in x.unbind(0):
                outs.append(h := cell(x_t, h))
            x = torch.stack(outs)
            finals.append(h)
        return x, torch.stack(finals)
