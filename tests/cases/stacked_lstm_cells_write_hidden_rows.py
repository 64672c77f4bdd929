# %% [case]
# id: stacked-lstm-cells-write-hidden-rows
# source: https://github.com/pytorch/rl/issues/1742 (Python-based RNNs, in place operations cause RuntimeError)
# family: modified
# fails: 4
# culprit: 2:19
# saved: 2:19
# needed: 4:7
# effect: same
# observe: [p.detach().clone() for p in model.parameters()]
# note: h and c of all layers are one (layers, batch, hidden) tensor; the cell saved the views h[layer], c[layer] and the tuple assignment writes the new state over them. Human fix: lists of states (unbind) and a stack at the end.
# %%
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
random.seed(1); torch.manual_seed(1)

SRC_VOCAB, TRG_VOCAB, EMB, HID, LAYERS = 11, 9, 5, 6, 2

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(SRC_VOCAB, EMB)
        self.rnn = nn.LSTM(EMB, HID, LAYERS)

    def forward(self, src):
        outputs, (hidden, cell) = self.rnn(self.embedding(src))
        return hidden, cell
# %%
class Decoder(nn.Module):
    """LSTM decoder made of cells so that I can look at each layer's state"""
    def __init__(self, num_layers=LAYERS):
        super().__init__()
        self.embedding = nn.Embedding(TRG_VOCAB, EMB)
        self.cells = nn.ModuleList(
            nn.LSTMCell(EMB if i == 0 else HID, HID) for i in range(num_layers)
        )
        self.fc_out = nn.Linear(HID, TRG_VOCAB)

    def init_state(self, hidden, cell):
        return hidden.clone(), cell.clone()

    def forward(self, token, state):
        # token = [batch size], state = ([n layers, batch size, hid dim], same)
        h, c = state
        x = self.embedding(token)
        for layer, rnn_cell in enumerate(self.cells):
            h[layer], c[layer] = rnn_cell(x, (h[layer], c[layer]))
            x = h[layer]
        return self.fc_out(x), (h, c)
# %%
class Seq2Seq(nn.Module):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, src, trg, teacher_forcing_ratio=0.5):
        trg_len, batch_size = trg.shape
        outputs = torch.zeros(trg_len, batch_size, TRG_VOCAB)
        state = self.decoder.init_state(*self.encoder(src))
        inp = trg[0]
        for t in range(1, trg_len):
            output, state = self.decoder(inp, state)
            outputs[t] = output
            inp = trg[t] if random.random() < teacher_forcing_ratio else output.argmax(1)
        return outputs

model = Seq2Seq(Encoder(), Decoder())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
src, trg = torch.randint(1, SRC_VOCAB, (6, 3)), torch.randint(1, TRG_VOCAB, (5, 3))
# %%
model.train()
epoch_loss = 0
for i in range(3):
    optimizer.zero_grad()
    output = model(src, trg)
    loss = F.cross_entropy(output[1:].reshape(-1, TRG_VOCAB), trg[1:].reshape(-1), ignore_index=0)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
    optimizer.step()
    epoch_loss += loss.item()
print(f"Train Loss: {epoch_loss / 3:.3f}")
# %% [fixed 2]
class Decoder(nn.Module):
    """LSTM decoder made of cells so that I can look at each layer's state"""
    def __init__(self, num_layers=LAYERS):
        super().__init__()
        self.embedding = nn.Embedding(TRG_VOCAB, EMB)
        self.cells = nn.ModuleList(
            nn.LSTMCell(EMB if i == 0 else HID, HID) for i in range(num_layers)
        )
        self.fc_out = nn.Linear(HID, TRG_VOCAB)

    def init_state(self, hidden, cell):
        return hidden.clone(), cell.clone()

    def forward(self, token, state):
        # token = [batch size], state = ([n layers, batch size, hid dim], same)
        h, c = (list(s.unbind(0)) for s in state)
        x = self.embedding(token)
        for layer, rnn_cell in enumerate(self.cells):
            h[layer], c[layer] = rnn_cell(x, (h[layer], c[layer]))
            x = h[layer]
        return self.fc_out(x), (torch.stack(h), torch.stack(c))
